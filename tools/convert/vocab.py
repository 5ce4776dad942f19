# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: a model folder's tokenizer files to GGUF's `tokenizer.ggml.*` keys.

tokenizer.model (SentencePiece) becomes the model `llama`; tokenizer.json, vocab.json with merges.txt, or a *.tiktoken
becomes `gpt2` (byte-level BPE) or, when it is a SentencePiece BPE in disguise (byte_fallback), `llama` with scores that
restore the merge order.
"""

import base64
import json

import gguf

from .source import ConvertError

T = gguf.TokenType

# A fragment unique to one family's pre-tokenizer -> its GGUF name. First match wins.
_PRE_BY_REGEX = (
    (r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|", "llama-bpe"),
    (r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|", "qwen2"),
    (r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|", "qwen35"),
    (r"\p{L}+|\p{N}{1}|", "seed-coder"),
    (r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|", "tekken"),  # in GPT-4o a word may end with a contraction
    (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+", "gpt-4o"),
    ("\\s?[A-Za-z\u00b5", "deepseek-llm"),
    (r"\s?\p{P}+", "deepseek-coder"),
    ("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", "deepseek-v3"),
)


def detect_pre(pre):
    """The GGUF name of a byte-level BPE's pre-tokenizer, from tokenizer.json."""
    steps = pre.get("pretokenizers", [pre]) if pre else []
    regexes = [s["pattern"].get("Regex", "") for s in steps if s.get("type") == "Split"]
    for fragment, name in _PRE_BY_REGEX:
        if any(fragment in r for r in regexes):
            return name
    if not regexes and any(s.get("type") == "ByteLevel" and s.get("use_regex", True) for s in steps):
        if any(s.get("type") == "Digits" and s.get("individual_digits") for s in steps):
            return "smollm"
        if len(steps) == 1:
            return "gpt-2"
    raise ConvertError(
        "tokenizer.json: unknown pre-tokenizer; name it with --pre (llama-bpe, qwen2, gpt-2, smollm ...)"
    )


def _load(folder, name):
    path = folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _pad(tokens, types, n_vocab, scores=None):
    """Fills gaps (and embedding rows beyond the vocabulary) with placeholder tokens that no text matches."""
    if len(tokens) > n_vocab:
        raise ConvertError(f"tokenizer has {len(tokens)} tokens, the model only {n_vocab}")
    tokens.extend([None] * (n_vocab - len(tokens)))
    types.extend([T.UNUSED] * (n_vocab - len(types)))
    if scores is not None:
        scores.extend([-10000.0] * (n_vocab - len(scores)))
    for i, token in enumerate(tokens):
        if token is None:
            tokens[i], types[i] = f"[PAD{i}]", T.UNUSED


def _open_sentencepiece(path):
    """None when the file is something else: Llama 3 ships a list of byte strings under the same name."""
    from sentencepiece import SentencePieceProcessor

    sp = SentencePieceProcessor()
    try:
        sp.Load(str(path))
    except (RuntimeError, OSError):
        return None
    return sp


def _from_sentencepiece(source, writer, sp):
    """Returns every token's id, for looking up the special ones."""
    tokens, scores, types = [], [], []
    for i in range(sp.vocab_size()):
        tokens.append(sp.IdToPiece(i))
        scores.append(sp.GetScore(i))
        types.append(
            T.UNKNOWN
            if sp.IsUnknown(i)
            else T.CONTROL
            if sp.IsControl(i)
            else T.UNUSED
            if sp.IsUnused(i)
            else T.BYTE
            if sp.IsByte(i)
            else T.NORMAL
        )
    added = dict(_load(source.folder, "added_tokens.json"))
    for entry in _load(source.folder, "tokenizer.json").get("added_tokens", []):
        added.setdefault(entry["content"], entry["id"])
    for token, i in added.items():
        if i >= len(tokens):
            tokens.extend([None] * (i + 1 - len(tokens)))
            scores.extend([-1000.0] * (i + 1 - len(scores)))
            types.extend([T.UNUSED] * (i + 1 - len(types)))
        if tokens[i] is None:
            tokens[i], types[i] = token, T.USER_DEFINED
    _pad(tokens, types, source.need("vocab_size"), scores)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    return {token: i for i, token in enumerate(tokens)}


def _from_json(source, writer, tok, pre_name):
    model = tok["model"]
    if model.get("type", "BPE") != "BPE":
        raise ConvertError(f"tokenizer.json: model type {model.get('type')} is not converted")
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    n_vocab = source.need("vocab_size")
    tokens, types = [None] * n_vocab, [T.UNUSED] * n_vocab
    added = {e["id"]: e for e in tok.get("added_tokens", [])}
    for token, i in list(model["vocab"].items()) + [(e["content"], i) for i, e in added.items()]:
        if not 0 <= i < n_vocab:
            raise ConvertError(f"tokenizer.json: token {token!r} has id {i}, the model has {n_vocab} rows")
        tokens[i] = token
        types[i] = T.NORMAL if i not in added else T.CONTROL if added[i].get("special") else T.USER_DEFINED
    byte_fallback = bool(model.get("byte_fallback"))
    if byte_fallback:
        # SentencePiece joins the pair with the highest score first; minus the merge's rank keeps that order.
        rank = {}
        for i, m in enumerate(merges):
            rank.setdefault(m.replace(" ", "", 1), i)
        scores = [float(-rank[t]) if t in rank else -1e6 for t in tokens]
        for i, t in enumerate(tokens):
            if t == model.get("unk_token"):
                types[i] = T.UNKNOWN
            elif t is not None and len(t) == 6 and t.startswith("<0x") and t.endswith(">"):
                types[i] = T.BYTE
        _pad(tokens, types, n_vocab)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        return
    _pad(tokens, types, n_vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_name or detect_pre(tok.get("pre_tokenizer")))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)


def _specials(source, writer, tok, pieces):
    """Ids of the special tokens, whether BOS and EOS are added, the chat template."""
    conf = _load(source.folder, "tokenizer_config.json")
    ids = dict(pieces)
    ids.update(tok.get("model", {}).get("vocab", {}) if tok else {})
    ids.update({e["content"]: e["id"] for e in tok.get("added_tokens", [])} if tok else {})
    ids.update(_load(source.folder, "added_tokens.json"))
    generation = _load(source.folder, "generation_config.json")
    for kind in ("bos", "eos", "unk", "pad"):
        text = conf.get(f"{kind}_token") or source.get(f"{kind}_token")
        text = text.get("content") if isinstance(text, dict) else text
        i = ids.get(text) if text else None
        if i is None:
            i = source.get(f"{kind}_token_id", generation.get(f"{kind}_token_id"))
        if isinstance(i, list):
            i = i[0] if i else None
        if isinstance(i, int) and 0 <= i < source.need("vocab_size"):
            getattr(writer, f"add_{kind}_token_id")(i)
    for kind in ("bos", "eos"):
        if isinstance(flag := conf.get(f"add_{kind}_token"), bool):
            getattr(writer, f"add_add_{kind}_token")(flag)
        elif kind == "bos" and tok:
            # Newer folders define it only in the post-processor.
            steps = json.dumps(tok.get("post_processor") or {})
            bos = conf.get("bos_token")
            bos = bos.get("content") if isinstance(bos, dict) else bos
            writer.add_add_bos_token(bool(bos) and json.dumps(bos) in steps)
    if isinstance(flag := conf.get("add_prefix_space"), bool):
        writer.add_add_space_prefix(flag)
    template = conf.get("chat_template")
    path = source.folder / "chat_template.jinja"
    if path.is_file():
        template = path.read_text(encoding="utf-8")
    if isinstance(template, list):  # several named templates: the default one is the chat
        template = next((t["template"] for t in template if t.get("name") == "default"), None)
    if template:
        writer.add_chat_template(template)


def _from_merges(folder):
    """vocab.json and merges.txt in the shape of a tokenizer.json; they do not name the pre-tokenizer."""
    path = folder / "merges.txt"
    vocab = _load(folder, "vocab.json")
    if not vocab or not path.is_file():
        return {}
    lines = path.read_text(encoding="utf-8").split("\n")
    merges = [line for line in lines if line and not line.startswith("#version")]
    added = dict(_load(folder, "added_tokens.json"))
    for i, entry in _load(folder, "tokenizer_config.json").get("added_tokens_decoder", {}).items():
        added.setdefault(entry["content"], int(i))
    return {
        "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        "added_tokens": [{"id": i, "content": t, "special": True} for t, i in added.items()],
    }


def byte_alphabet():
    """GPT-2's printable substitute for each byte, in byte order."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def _halves(token, ranks):
    """The two tokens whose merge gives this one: what remains of its bytes after all merges of lower rank, lowest
    first."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(a + b, len(ranks)) for a, b in zip(parts, parts[1:])]
        i = pairs.index(min(pairs))
        if pairs[i] >= ranks[token]:
            break
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    if len(parts) != 2:
        raise ConvertError(f"*.tiktoken: token {token!r} is not made of two others")
    return parts


def _from_tiktoken(source):
    """A *.tiktoken in the shape of a tokenizer.json: byte strings by rank, which is their id. Special tokens follow;
    they are listed only in the family's code."""
    files = sorted(source.folder.glob("*.tiktoken"))
    specials = getattr(source, "special_tokens", None)
    if not files or specials is None:
        return {}
    try:
        lines = [line.split() for line in files[0].read_bytes().splitlines() if line]
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
    except ValueError as e:
        raise ConvertError(f"{files[0]}: not lines of a token in base 64 and its rank: {e}") from None
    if sorted(ranks.values()) != list(range(len(lines))):
        raise ConvertError(f"{files[0]}: ranks are not 0, 1, 2 ...")
    letters = byte_alphabet()
    text = lambda token: "".join(letters[b] for b in token)
    merges = [
        " ".join(map(text, _halves(token, ranks)))
        for token, _ in sorted(ranks.items(), key=lambda item: item[1])
        if len(token) > 1
    ]
    return {
        "model": {"type": "BPE", "vocab": {text(token): rank for token, rank in ranks.items()}, "merges": merges},
        "added_tokens": [{"id": len(ranks) + i, "content": t, "special": True} for i, t in enumerate(specials)],
        "pre": "qwen2",
    }  # the expression in Qwen's code; no file has it


def write(source, writer, pre_name=None):
    tok = _load(source.folder, "tokenizer.json")
    spm = source.folder / "tokenizer.model"
    pieces = {}
    if spm.is_file() and (sp := _open_sentencepiece(spm)) is not None:
        pieces = _from_sentencepiece(source, writer, sp)
    elif tok := tok or _from_merges(source.folder) or _from_tiktoken(source):
        _from_json(source, writer, tok, pre_name or tok.get("pre"))
    else:
        raise ConvertError(
            f"{source.folder}: no tokenizer.json, no SentencePiece tokenizer.model, no vocab.json with "
            "merges.txt and no *.tiktoken of a known family; --no-vocab leaves the tokenizer out"
        )
    _specials(source, writer, tok, pieces)
