#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizer/pretokenizer.json: texts split into words by the models' published
expressions, for pretokenizer_test.

Each entry of RULES is as in a tokenizer.json: expressions applied in order, each splitting the pieces left by the
earlier ones into its matches and the text between them.

Needs: regex. Run from the repository root: python3 tools/golden/pretokenizer.py
"""

import json
import pathlib
import random

import regex

SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL100K = SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+SHORT|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*SHORT|DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# DeepSeek's cased letters, as ranges: those of Unicode 11 except a few scripts.
CASED = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d"
    "\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5"
    "\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115"
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
RULES = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [CL100K.replace("DIGITS", r"\p{N}{1,3}")],
    "qwen2": [CL100K.replace("DIGITS", r"\p{N}")],
    "qwen35": [
        SHORT + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "gpt-4o": [O200K.replace("SHORT", SHORT + "?").replace("DIGITS", r"\p{N}{1,3}")],
    "tekken": [O200K.replace("SHORT", "").replace("DIGITS", r"\p{N}")],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    # V1: classes may be intersected, as in the engine of tiktoken.
    "kimi-k2": [
        r"(?V1)[\p{Han}]+|"
        + O200K.replace("SHORT", SHORT + "?")
        .replace("DIGITS", r"\p{N}{1,3}")
        .replace(r"\p{M}]", r"\p{M}&&[^\p{Han}]]")
        .replace(r"[\r\n/]*", r"[\r\n]*")
    ],
    "seed-coder": [SHORT + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek-llm": [
        r"[\r\n]",
        rf"\s?[{CASED}]+",
        "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
        r"\s+$",
        HAN,
        r"\p{N}",
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN, r"\p{N}"],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
        r"""| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
    ],
}

TEXTS = [
    "",
    " ",
    "   ",
    "\n",
    "a",
    " a",
    "a ",
    "Hello, world!",
    "  two  spaces   inside  ",
    "tabs\t\tand \t mixtures\t a",
    "We'll see: it's HE'S they'Re I'D don\u2019t 'tis o'clock",
    "camelCaseWords HTMLParser XMLHttpRequest aB Ab AB",
    "1234567 3.14 1,000,000 x2y3 \u00bd\u00b2 \u0663\u0664\u0665\u0666 \u216b \u0967\u0968 \uff11\uff12",
    "line\r\nline\n\n\nline \n  \n\t\n  end\r",
    "if (a[i] != b) {\n    return x_1 /* c */;\n}\n",
    "path/to//file.txt http://a.b/c?d=e&f#g",
    "!!! ... ?! -- ---- ((())) <|im_end|> #tag @name $5 50% a/b\n/",
    "na\u00efve caf\u00e9 \u00dcn\u00efc\u00f6d\u00e9 e\u0301a x\u0308",
    (
        "\u0395\u03bb\u03bb\u03b7\u03bd\u03b9\u03ba\u03ac \u0420\u0443\u0441\u0441\u043a\u0438\u0439 "
        "\u0540\u0561\u0575 "
        "\u10a0\u10d0 \u13a0\u13e3 \u1e00\u1f00 \u2102\u2126"
    ),
    (
        "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd  \u05d1 \u0645\u0631\u062d\u0628\u0627\u060c "
        "\u0639\u0627\u0644\u0645\u061f"
    ),
    (
        "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e\u0964 "
        "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01"
    ),
    (
        "\u4f60\u597d\uff0c\u4e16\u754c\uff01 \u4e2d\u6587abc \u4e2d123\u6587\u3002\u3000\u3000\u6362\u884c\n\u3000a "
        "\u300c\u5f15\u300d\uff08x\uff09"
    ),
    (
        "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8\u30fc\u306e\u30fb\u4e2d\u309b\u304b\u3099 \u30a2\u30a2 "
        "\u3400\u9fa6 "
        "\ud55c\uad6d\uc5b4 \uae00"
    ),
    "\u2018a\u2019 \u201cb\u201d\u2014c\u2026 \u2003x\u2003\u2018\u3000 \u2003\u3000!\u3000",
    "\u00a0a\u00a0\u00a0!\u3000b\u2028c\u2029\u0085d\u180e\u180ee\u200b f\x0bg\x0c",
    "\U0001f999 \U0001f469\u200d\U0001f4bb\u2764\ufe0f a\U0001f60ab \U0001f1fa\U0001f1f8!",
    "a\x00b\x01\x02 c \x7f\x1c\x1d d\ufeffe\u00ad \ue000\ufffd",
    "\u20ac5 \u00a9 x\u00b1y \u2192\u2264 ^~`|+=<> \u02c6 _a_ __b",
    "   1  22   333    4444  a  !  \u4e2d  \u05e9  \U0001f60a",
    (
        "\u4e2d\u6587a\u4e2dB'S \u3007\u3005\u2e80x \u4e8c\u3007\u4e8c\u516d\u5e74 \u4e2d's it's\u6587 "
        "\u3021\u3038 \U00020000z !/\u4e2d!\n/a \uf900A\u3006b"
    ),
]
# Fragments that the rules distinguish, concatenated at random.
ALPHABET = (
    "a",
    "Zb",
    "\xe9",
    "\u01c5",
    "\u0431",
    "\u1e00",
    "\u10a0",
    "\uff41",
    "\u05d0",
    "\u0e01",
    "\u4e2d",
    "\uac00",
    "\u30a2",
    "\u30fb",
    "\u309b",
    "\u3099",
    "\u0301",
    "\u0903",
    "1",
    "22",
    "\u0663",
    "\u2160",
    "\u0967",
    " ",
    "  ",
    "\t",
    "\xa0",
    "\u2003",
    "\u3000",
    "\u2028",
    "\n",
    "\r\n",
    "!",
    "'s",
    "'",
    "/",
    "$",
    "_",
    "\uff01",
    "\u2018",
    "\u2014",
    "\u3002",
    "\u20ac",
    "\u2190",
    "\U0001f600",
    "\x01",
    "\u200b",
    "\u3040",
    "\x0c",
)


def cut(text, rules):
    pieces = [text]
    for rule in rules:
        expression, out = regex.compile(rule), []
        for piece in pieces:
            pos = 0
            for match in expression.finditer(piece):
                out += [piece[pos : match.start()], match.group()]
                pos = match.end()
            out.append(piece[pos:])
        pieces = [piece for piece in out if piece]
    return pieces


def main():
    rng = random.Random(5)
    texts = TEXTS + ["".join(rng.choices(ALPHABET, k=rng.randint(4, 40))) for _ in range(60)]
    golden = {"texts": texts, "lengths": {}}
    for name, rules in RULES.items():
        # Words as their lengths in bytes.
        golden["lengths"][name] = [[len(word.encode()) for word in cut(text, rules)] for text in texts]
    path = pathlib.Path("tests/golden/tokenizer/pretokenizer.json")
    path.write_text(
        json.dumps(golden, ensure_ascii=True, indent=None, separators=(",", ":")).replace("]],", "]],\n") + "\n"
    )
    print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
