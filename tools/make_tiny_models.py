#!/usr/bin/env python3
"""Builds the tiny random models of tests/golden/models with their reference numbers.

    tools/make_tiny_models.py [--out tests/golden/models] [NAME ...]

Each model is built by `transformers` from a fixed seed, converted by convert_hf.py to F32 GGUF, and run by `transformers` in
float64 on a fixed token sequence (its RoPE angles, RMSNorm and nothing else stay in float32, as that library computes them).
NAME.golden holds what came out. Needs torch, transformers, gguf.

Format of a golden: entries one after the other to the end of the file, each a line `name rows cols\\n` in ASCII followed by
rows * cols little-endian float32 values, row by row. The entries, with n = number of tokens:
  tokens [n, 1], pos [n, 1]     the input; small integers, exact in float32
  rows [r, 1]                   which tokens the intermediates below were stored for (first 8 and last 8)
  embd                          [r, hidden]
  blk.L.attn_norm .q .k .v      inputs of attention; q, k before RoPE, after bias, [r, heads * head_dim] with each head in
                                Hugging Face's order: RoPE pairs element i with i + head_dim / 2
  blk.L.attn_out                [r, hidden], after the output projection, before the residual sum
  blk.L.ffn_norm .ffn_out .out  [r, hidden]; out is the residual stream after the block
  final_norm                    [r, hidden]
  logits                        [n, vocab]
  strided.pos, strided.logits   the same tokens at pos 0, 7, 14, ... [n, 1] and logits of the last 8 tokens
  short.logits                  (longrope) logits of the first 16 tokens run alone: within the original context, where the
                                short factors hold; the other entries are beyond it and use the long ones
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

import convert_hf

N_TOKENS, EDGE, VOCAB = 48, 8, 320
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
            " + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
MERGES = """Ġ t|Ġ a|h e|i n|r e|o n|Ġt he|e r|Ġ s|a t|Ġ w|Ġ o|e n|Ġ c|i t|i s|a n|o r|e s|Ġ b|e d|Ġ f|in g|Ġ p|o u|Ġa n|a l
a r|Ġt o|Ġ m|Ġo f|Ġ in|Ġ d|Ġ h|Ġan d|i c|a s|l e|Ġt h|i on|o m|l l|en t|Ġ n|Ġ l|s t|Ġ re|v e|Ġ e|r o|l y|Ġb e|Ġ g|Ġ T
c t|Ġ S|i d|o t|Ġ I|u t|e t|Ġ A|Ġ is|Ġ on"""

SMALL = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, tie_word_embeddings=True, max_position_embeddings=512)


def rope(kind, theta=10000.0, **more):
    return dict(SMALL, rope_parameters=dict(rope_type=kind, rope_theta=theta, **more))


OPT = dict(hidden_size=32, ffn_dim=72, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=512, dropout=0.0)

MODELS = {
    "llama": ("llama", dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                            num_key_value_heads=2, head_dim=16, tie_word_embeddings=False, max_position_embeddings=512)),
    "qwen2": ("qwen2", dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                            num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=512,
                            rope_parameters=dict(rope_type="default", rope_theta=1000000.0))),
    "llama_tied": ("llama", dict(SMALL, head_dim=8)),
    "llama_bias": ("llama", dict(SMALL, head_dim=8, num_key_value_heads=4, attention_bias=True, mlp_bias=True)),
    "llama_head_dim": ("llama", dict(SMALL, head_dim=24, num_key_value_heads=1)),
    "llama_wide_heads": ("llama", dict(SMALL, head_dim=32)),  # whole blocks of a quantised cache
    "llama_rope_linear": ("llama", rope("linear", factor=8.0)),
    "llama_rope_llama3": ("llama", rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                        original_max_position_embeddings=64)),
    # theta 100 and 256 trained positions put the blend of the two frequencies in the middle of the 8 pairs.
    "llama_rope_yarn": ("llama", rope("yarn", theta=100.0, factor=2.0, original_max_position_embeddings=256)),
    "llama_rope_longrope": ("llama", rope("longrope", factor=4.0, original_max_position_embeddings=32,
                                          short_factor=[1.0, 1.0, 1.05, 1.1, 1.1, 1.2, 1.3, 1.4],
                                          long_factor=[1.0, 1.2, 1.5, 2.0, 2.6, 3.1, 3.6, 4.0])),
    "opt": ("opt", dict(OPT)),
    # As OPT-350M: norms after the sums, embeddings narrower than the model, projections between them.
    "opt_norm_after": ("opt", dict(OPT, do_layer_norm_before=False, word_embed_proj_dim=16)),
}


def byte_alphabet():
    """GPT-2's printable stand-in for each byte, in byte order."""
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    stand_in, n = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in stand_in:
            stand_in[b] = chr(256 + n)
            n += 1
    return [stand_in[b] for b in range(256)]


def write_tokenizer(folder):
    """Byte-level BPE: 3 specials, 256 bytes, 61 merges = 320 tokens."""
    merges = [m.split(" ") for line in MERGES.split("\n") for m in line.split("|")][:VOCAB - 259]
    tokens = list(SPECIALS) + byte_alphabet() + [a + b for a, b in merges]
    assert len(set(tokens)) == len(tokens) == VOCAB, len(set(tokens))
    vocab = {t: i for i, t in enumerate(tokens)}
    added = [dict(id=i, content=t, special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)
             for i, t in enumerate(SPECIALS)]
    (folder / "tokenizer.json").write_text(json.dumps(dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, post_processor=None,
        pre_tokenizer=dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True),
        decoder=dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True),
        model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                   fuse_unk=False, byte_fallback=False, vocab=vocab, merges=merges))))
    (folder / "tokenizer_config.json").write_text(json.dumps(dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token=SPECIALS[0], eos_token=SPECIALS[2], add_bos_token=False,
        chat_template=TEMPLATE)))


def build(kind, settings, seed):
    settings = dict(settings, vocab_size=VOCAB, bos_token_id=0, eos_token_id=2, use_cache=False)
    if kind != "opt":
        settings["rms_norm_eps"] = 1e-5
    config, model = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
        "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
        "opt": (transformers.OPTConfig, transformers.OPTForCausalLM),
    }[kind]
    # sdpa: its softmax stays in float64, the eager one casts to float32.
    model = model._from_config(config(**settings), attn_implementation="sdpa").eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                p.copy_(1.0 + 0.2 * torch.randn(p.shape, generator=g))
            elif name.endswith("bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
            elif "q_proj" in name or "k_proj" in name:
                # Wide enough that attention picks a few keys instead of averaging all of them.
                p.copy_(2.0 / p.shape[1] ** 0.5 * torch.randn(p.shape, generator=g))
            else:
                p.copy_(1.0 / p.shape[1] ** 0.5 * torch.randn(p.shape, generator=g))
    return model


def parts(model):
    """(name, module, whether its input is meant) of every intermediate."""
    base = model.model
    yield "embd", base.embed_tokens, False
    for i, layer in enumerate(base.layers):
        att = layer.self_attn
        for name, module in (("attn_norm", layer.input_layernorm), ("q", att.q_proj), ("k", att.k_proj), ("v", att.v_proj),
                             ("attn_out", att.o_proj), ("ffn_norm", layer.post_attention_layernorm),
                             ("ffn_out", layer.mlp), ("out", layer)):
            yield f"blk.{i}.{name}", module, False
    yield "final_norm", base.norm, False


def opt_parts(model):
    base = model.model.decoder
    yield "embd", base.layers[0], True
    for i, layer in enumerate(base.layers):
        att = layer.self_attn
        for name, module in (("attn_norm", layer.self_attn_layer_norm), ("q", att.q_proj), ("k", att.k_proj),
                             ("v", att.v_proj), ("attn_out", att.out_proj), ("ffn_norm", layer.final_layer_norm),
                             ("ffn_out", layer.fc2), ("out", layer)):
            yield f"blk.{i}.{name}", module, False
    yield "final_norm", base.final_layer_norm or base.layers[-1], False


def run(model, tokens, pos):
    """Logits [n, vocab] and every named intermediate [n, cols]."""
    seen, hooks = {}, []

    def keep(name, module, before):
        def hook(m, inputs, output=None):
            value = inputs[0] if before else output[0] if isinstance(output, tuple) else output
            seen[name] = value.reshape(len(tokens), -1)
        hooks.append(module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook))

    for part in (opt_parts if model.config.model_type == "opt" else parts)(model):
        keep(*part)
    with torch.no_grad():
        ids = torch.tensor([tokens])
        # An explicit mask: without one, positions with gaps would be taken for several packed sequences.
        out = model(ids, position_ids=torch.tensor([pos]), attention_mask=torch.ones_like(ids))
    for h in hooks:
        h.remove()
    return out.logits[0].double().numpy(), {k: v.double().numpy() for k, v in seen.items()}


def make(name, out, seed):
    kind, settings = MODELS[name]
    model = build(kind, settings, seed)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        write_tokenizer(Path(folder))
        convert_hf.convert_folder(folder, out / f"{name}.gguf", "f32", name=f"tiny random {name}")
    tokens = np.random.default_rng(seed).integers(3, VOCAB, N_TOKENS).tolist()
    pos, strided = list(range(N_TOKENS)), [7 * i for i in range(N_TOKENS)]
    single, _ = run(model, tokens, pos)
    model = model.double()
    logits, seen = run(model, tokens, pos)
    gap = float(np.abs(single - logits).max())
    assert gap < 1e-3, f"{name}: float32 and float64 differ by {gap}"
    rows = list(range(EDGE)) + list(range(N_TOKENS - EDGE, N_TOKENS))
    column = lambda values: np.array(values).reshape(-1, 1)
    entries = {"tokens": column(tokens), "pos": column(pos), "rows": column(rows)}
    entries.update({k: v[rows] for k, v in seen.items()})
    entries["logits"] = logits
    entries["strided.pos"] = column(strided)
    entries["strided.logits"] = run(model, tokens, strided)[0][-EDGE:]
    if "longrope" in name:
        entries["short.logits"] = run(model, tokens[:16], pos[:16])[0]
    with open(out / f"{name}.golden", "wb") as f:
        for key, v in entries.items():
            f.write(f"{key} {v.shape[0]} {v.shape[1]}\n".encode("ascii"))
            f.write(np.ascontiguousarray(v, dtype="<f4").tobytes())
    print(f"{name}: logits {logits.min():.2f} .. {logits.max():.2f}, std {logits.std():.2f}; float32 differs by {gap:.1e}")


def main():
    parser = argparse.ArgumentParser(description="Builds the tiny random models of tests/golden/models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "tests/golden/models")
    parser.add_argument("--seed", type=int, default=20240607)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    for name in args.names or MODELS:
        if name not in MODELS:
            sys.exit(f"make_tiny_models: no model {name}; known: {', '.join(MODELS)}")
        make(name, args.out, args.seed)


if __name__ == "__main__":
    main()
