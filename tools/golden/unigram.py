#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizer/*.json: small SentencePiece models as GGUF arrays, and SentencePiece's
tokenization of some texts with them, for sentencepiece_test.

The models are trained on a public-domain text (the first 300 kB of FILE). Needs: sentencepiece, protobuf.
Run from the repository root: python3 tools/golden/unigram.py FILE
"""

import argparse
import base64
import io
import json
import pathlib
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2

# A few rules instead of the library's 240 kB of NFKC: full-width letters, ligatures, a three-character rule, removal.
RULES = [
    ("\uff21", "A"),
    ("\uff22", "B"),
    ("\ufb01", "fi"),
    ("\ufb02", "fl"),
    ("\u00e9", "e\u0301"),
    ("...", "\u2026"),
    ("\u00a0", " "),
    ("\u3000", " "),
    ("\t", " "),
    ("\n", " "),
    ("\u200b", ""),
]
TEXTS = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "a ",
    "Hello world",
    "  two  spaces   inside ",
    "The quick brown fox, he said; and so on.",
    "don't ... stop",
    "\uff21\uff22 \ufb01nd the \ufb02ower caf\u00e9",
    "tabs\tand\nlines\u00a0here",
    "zero\u200bwidth",
    "unknown \u4e16\u754c\U0001f999 characters \u4e16",
    "\u4e16",
    "1234 56.78",
    "\u2581literal mark",
    "It was the best of times, it was the worst of times, it was the age of wisdom.",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "supercalifragilisticexpialidocious",
    "x  \n\n  y",
    "e\u0301",
]
MODELS = {
    "unigram": dict(model_type="unigram", vocab_size=600),
    "unigram_bytes": dict(model_type="unigram", vocab_size=900, byte_fallback=True),
    "unigram_spaces": dict(model_type="unigram", vocab_size=600, remove_extra_whitespaces=False),
    "spm": dict(model_type="bpe", vocab_size=900, byte_fallback=True, remove_extra_whitespaces=False, rules=False),
    "spm_no_prefix": dict(
        model_type="bpe", vocab_size=600, remove_extra_whitespaces=False, add_dummy_prefix=False, rules=False
    ),
}


def train(lines, rules=True, **options):
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as tsv:
        out = io.BytesIO()
        if rules:
            for source, target in RULES:
                tsv.write(
                    " ".join(f"{ord(c):X}" for c in source) + "\t" + " ".join(f"{ord(c):X}" for c in target) + "\n"
                )
            tsv.flush()
            options["normalization_rule_tsv"] = tsv.name
        else:
            options["normalization_rule_name"] = "identity"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=out,
            num_threads=1,
            minloglevel=2,
            character_coverage=0.9995,
            **options,
        )
    return out.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    args = parser.parse_args()
    text = pathlib.Path(args.file).read_bytes()[:300_000].decode("utf-8", "ignore")
    lines = [line for line in text.split("\n") if line.strip()]
    for name, options in MODELS.items():
        blob = train(lines, **options)
        proto = sentencepiece_model_pb2.ModelProto.FromString(blob)
        processor = sentencepiece.SentencePieceProcessor(model_proto=blob)
        golden = {
            "model": "t5" if options["model_type"] == "unigram" else "llama",
            "tokens": [p.piece for p in proto.pieces],
            "scores": [p.score for p in proto.pieces],
            "types": [p.type for p in proto.pieces],
            "unknown_id": processor.unk_id(),
            "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
            "remove_extra_whitespaces": proto.normalizer_spec.remove_extra_whitespaces,
            "charsmap_base64": base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode(),
            "cases": [{"text": t, "ids": processor.encode(t)} for t in TEXTS],
        }
        path = pathlib.Path(f"tests/golden/tokenizer/{name}.json")
        path.write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(path, path.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
