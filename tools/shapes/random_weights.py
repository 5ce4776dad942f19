#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model file with random weights in the shape of a real model.

Speed and memory do not depend on the values of weights, so a shape can be measured without the real model:

    tools/shapes/random_weights.py llama2-7b --type q4_0 7b.gguf
    weir bench -m 7b.gguf --policy infinipot --against streaming_llm --pot 2048 -p 4096

With --vocab FOLDER the file has a byte-level BPE vocabulary (vocab.json and merges.txt), so that text has as many
tokens as with the real model. llama.cpp reads the files too. Needs the Python packages gguf and numpy.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np


class Shape(NamedTuple):
    architecture: str
    n_layers: int
    n_embd: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_ff: int
    n_vocab: int
    n_ctx: int
    rope_base: float
    tied: bool
    n_experts: int = 0
    n_used: int = 0


SHAPES = {
    "smollm2-135m": Shape("llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5, True),
    "llama3.2-1b": Shape("llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5, True),
    "tinyllama-1.1b": Shape("llama", 22, 2048, 32, 4, 64, 5632, 32000, 2048, 1e4, False),
    "llama2-7b": Shape("llama", 32, 4096, 32, 32, 128, 11008, 32000, 4096, 1e4, False),
    "qwen2.5-0.5b": Shape("qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6, True),
    # Three layers of gated DeltaNet, 16 heads of 128, to one that attends.
    "qwen3.5-0.8b": Shape("qwen35", 24, 1024, 8, 2, 256, 3584, 248320, 262144, 1e7, True),
    # Six of Qwen3-30B-A3B's 48 layers and a smaller vocabulary; n_ff is an expert's.
    "qwen3-a3b-6l": Shape("qwen3moe", 6, 2048, 32, 4, 128, 768, 32000, 32768, 1e6, False, 128, 8),
    # With the words around pictures; its encoder is eyes.py's shape of the same name.
    "qwen3-vl-2b": Shape("qwen3vl", 28, 2048, 16, 8, 128, 6144, 151936, 262144, 5e6, True),
    "llama3-8b": Shape("llama", 32, 4096, 32, 8, 128, 14336, 128256, 8192, 5e5, False),
}
TYPES = {
    "f32": gguf.GGMLQuantizationType.F32,
    "f16": gguf.GGMLQuantizationType.F16,
    "bf16": gguf.GGMLQuantizationType.BF16,
    "q8_0": gguf.GGMLQuantizationType.Q8_0,
    "q4_0": gguf.GGMLQuantizationType.Q4_0,
    "q4_1": gguf.GGMLQuantizationType.Q4_1,
    "q5_0": gguf.GGMLQuantizationType.Q5_0,
    "q5_1": gguf.GGMLQuantizationType.Q5_1,
}


class Weights:
    """Encoded random rows, cut from one pool: every matrix is different, and all are fast to create."""

    POOL = 1 << 22  # values; rounded down below to a multiple of the row length

    def __init__(self, kind, seed):
        self.kind = kind
        self.rng = np.random.default_rng(seed)
        self.values = self.rng.standard_normal(self.POOL, dtype=np.float32) * 0.02
        self.pools = {}

    def matrix(self, rows, cols):
        if cols not in self.pools:
            n = self.POOL // cols
            self.pools[cols] = gguf.quants.quantize(self.values[: n * cols].reshape(n, cols), self.kind)
        pool = self.pools[cols]
        return pool[self.rng.integers(0, len(pool), rows)]


def add_vocabulary(out, n_vocab, marks=()):
    """Text is encoded as bytes; the other ids are words that match no text, and control tokens of these names."""
    control, unknown, normal, byte = 3, 2, 1, 6
    tokens = [("<unk>", unknown), ("<s>", control), ("</s>", control)] + [(mark, control) for mark in marks]
    tokens += [(f"<0x{i:02X}>", byte) for i in range(256)]
    tokens += [(f"\u2581word{i}", normal) for i in range(len(tokens), n_vocab)]
    out.add_tokenizer_model("llama")
    out.add_token_list([token for token, _ in tokens])
    out.add_token_scores([0.0] * n_vocab)
    out.add_token_types([kind for _, kind in tokens])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)


def add_bpe_vocabulary(out, n_vocab, folder):
    """A vocabulary of GPT-2's kind; ids that it leaves out are control tokens, the first of which ends a text."""
    control, normal = 3, 1
    ids = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = [line for line in (folder / "merges.txt").read_text(encoding="utf-8").split("\n") if line]
    tokens = [(f"<|free_{i}|>", control) for i in range(n_vocab)]
    for token, i in ids.items():
        tokens[i] = (token, normal)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("qwen2")
    out.add_token_list([token for token, _ in tokens])
    out.add_token_types([kind for _, kind in tokens])
    out.add_token_merges([line for line in merges if not line.startswith("#version")])
    out.add_eos_token_id(len(ids))


DELTA_HEADS, DELTA_DIM = 16, 128


def delta_net(out, blk, n_embd, matrix, ones):
    inner = DELTA_HEADS * DELTA_DIM
    matrix(blk + "attn_qkv", 3 * inner, n_embd)
    matrix(blk + "attn_gate", inner, n_embd)
    matrix(blk + "ssm_alpha", DELTA_HEADS, n_embd)
    matrix(blk + "ssm_beta", DELTA_HEADS, n_embd)
    matrix(blk + "ssm_out", n_embd, inner)
    ones(blk + "ssm_norm", DELTA_DIM)
    out.add_tensor(blk + "ssm_conv1d.weight", np.full((3 * inner, 4), 0.25, dtype=np.float32))
    out.add_tensor(blk + "ssm_a", np.full(DELTA_HEADS, -0.1, dtype=np.float32))
    out.add_tensor(blk + "ssm_dt.bias", np.zeros(DELTA_HEADS, dtype=np.float32))


def write(shape, kind, name, path, seed, vocab):
    # use_temp_file: tensors wait on disk, not in memory, until all are known.
    out = gguf.GGUFWriter(path, shape.architecture, use_temp_file=True)
    out.add_name(name + " (random weights)")
    out.add_block_count(shape.n_layers)
    out.add_context_length(shape.n_ctx)
    out.add_embedding_length(shape.n_embd)
    out.add_feed_forward_length(shape.n_ff)
    out.add_head_count(shape.n_heads)
    out.add_head_count_kv(shape.n_kv_heads)
    out.add_key_length(shape.head_dim)
    out.add_value_length(shape.head_dim)
    hybrid = shape.architecture == "qwen35"
    out.add_rope_dimension_count(shape.head_dim // 4 if hybrid else shape.head_dim)
    if hybrid:
        out.add_rope_dimension_sections([11, 11, 10, 0])
        out.add_ssm_conv_kernel(4)
        out.add_ssm_state_size(DELTA_DIM)
        out.add_ssm_group_count(DELTA_HEADS)
        out.add_ssm_time_step_rank(DELTA_HEADS)
        out.add_ssm_inner_size(DELTA_HEADS * DELTA_DIM)
        out.add_full_attention_interval(4)
    if shape.architecture == "qwen3vl":
        out.add_rope_dimension_sections([24, 20, 20, 0])
        out.add_uint32("qwen3vl.n_deepstack_layers", 3)
    out.add_rope_freq_base(shape.rope_base)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(shape.n_vocab)
    if shape.n_experts:
        out.add_expert_count(shape.n_experts)
        out.add_expert_used_count(shape.n_used)
        out.add_expert_feed_forward_length(shape.n_ff)
    if vocab:
        add_bpe_vocabulary(out, shape.n_vocab, vocab)
    else:
        add_vocabulary(
            out, shape.n_vocab, ("<|vision_start|>", "<|vision_end|>") if shape.architecture == "qwen3vl" else ()
        )
    weights = Weights(kind, seed)

    def matrix(tensor, rows, cols):
        data = weights.matrix(rows, cols)
        out.add_tensor(tensor + ".weight", data, raw_dtype=kind)

    def stack(tensor, rows, cols):
        data = weights.matrix(shape.n_experts * rows, cols)
        out.add_tensor(tensor + ".weight", data.reshape(shape.n_experts, rows, -1), raw_dtype=kind)

    def ones(tensor, n):
        out.add_tensor(tensor + ".weight", np.ones(n, dtype=np.float32))

    matrix("token_embd", shape.n_vocab, shape.n_embd)
    q, kv = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    for layer in range(shape.n_layers):
        blk = f"blk.{layer}."
        ones(blk + "attn_norm", shape.n_embd)
        if hybrid and (layer + 1) % 4:
            delta_net(out, blk, shape.n_embd, matrix, ones)
        else:
            matrix(blk + "attn_q", 2 * q if hybrid else q, shape.n_embd)
            matrix(blk + "attn_k", kv, shape.n_embd)
            matrix(blk + "attn_v", kv, shape.n_embd)
            matrix(blk + "attn_output", shape.n_embd, q)
            if hybrid:
                ones(blk + "attn_q_norm", shape.head_dim)
                ones(blk + "attn_k_norm", shape.head_dim)
        if shape.architecture == "qwen2":
            for tensor, n in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                out.add_tensor(blk + tensor + ".bias", np.zeros(n, dtype=np.float32))
        if shape.architecture in ("qwen3moe", "qwen3vl"):
            ones(blk + "attn_q_norm", shape.head_dim)
            ones(blk + "attn_k_norm", shape.head_dim)
        ones(blk + ("post_attention_norm" if hybrid else "ffn_norm"), shape.n_embd)
        if shape.n_experts:
            router = weights.rng.standard_normal((shape.n_experts, shape.n_embd), dtype=np.float32) * 0.02
            out.add_tensor(blk + "ffn_gate_inp.weight", router)
            stack(blk + "ffn_gate_exps", shape.n_ff, shape.n_embd)
            stack(blk + "ffn_up_exps", shape.n_ff, shape.n_embd)
            stack(blk + "ffn_down_exps", shape.n_embd, shape.n_ff)
            print(f"\r{layer + 1} of {shape.n_layers} layers", end="", file=sys.stderr)
            continue
        matrix(blk + "ffn_gate", shape.n_ff, shape.n_embd)
        matrix(blk + "ffn_up", shape.n_ff, shape.n_embd)
        matrix(blk + "ffn_down", shape.n_embd, shape.n_ff)
        print(f"\r{layer + 1} of {shape.n_layers} layers", end="", file=sys.stderr)
    print(file=sys.stderr)
    ones("output_norm", shape.n_embd)
    if not shape.tied:
        matrix("output", shape.n_vocab, shape.n_embd)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("file", help="file to write")
    parser.add_argument("--type", choices=TYPES, default="q4_0", help="of all matrices (default: q4_0)")
    parser.add_argument("--vocab", type=Path, metavar="FOLDER", help="with vocab.json and merges.txt")
    parser.add_argument("--layers", type=int, metavar="N", help="this many layers instead of the model's")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    shape = SHAPES[args.shape]._replace(**({"n_layers": args.layers} if args.layers else {}))
    partial = args.file + ".part"
    try:
        write(shape, TYPES[args.type], args.shape, partial, args.seed, args.vocab)
        os.replace(partial, args.file)
    finally:
        if os.path.exists(partial):
            os.remove(partial)


if __name__ == "__main__":
    main()
