#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `weir plan` for models without having their weights.

    tools/shapes/plan.py --weir build/release/weir [--pots 512,4096] [NAME ...]
    tools/shapes/plan.py --weir build/release/weir --check docs/models.md

For each model the tool creates a sparse GGUF file with the real metadata and tensor shapes in a temporary folder and
plans it: the plan depends on nothing else. Prints one Markdown row per model: weights as Q8_0, keys and values of one
token in F16, then for each pot the keys and values of all tokens and the whole session without weights (including
policy statistics, activations and logits). --check compares a file's rows instead: keys and values must be equal, the
rest may differ by 5 percent, because packing and scratch depend on the processor. Needs Python with numpy and gguf.
"""

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

Q = gguf.GGMLQuantizationType

# name: architecture, layers, width, feed-forward, heads, KV heads, head size, vocabulary, trained context, other keys
MODELS = {
    "SmolLM2-135M": ("llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, {}),
    "Llama-3.2-1B": ("llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, {}),
    "Mistral-7B-v0.1": (
        "llama",
        32,
        4096,
        14336,
        32,
        8,
        128,
        32000,
        32768,
        {"attention.sliding_window": 4096, "head": 1},
    ),
    "Qwen2.5-0.5B": ("qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, {"bias": 1}),
    "Qwen3-0.6B": ("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, {}),
    "Qwen3-4B": ("qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, {}),
    "Pythia-410M": ("gptneox", 24, 1024, 4096, 16, 16, 64, 50304, 2048, {"rope.dimension_count": 16, "head": 1}),
    "Pythia-2.8B": ("gptneox", 32, 2560, 10240, 32, 32, 80, 50304, 2048, {"rope.dimension_count": 20, "head": 1}),
    "Phi-3-mini-4k": ("phi3", 32, 3072, 8192, 32, 32, 96, 32064, 4096, {"attention.sliding_window": 2047, "head": 1}),
    "Gemma-2-2B": ("gemma2", 26, 2304, 9216, 8, 4, 256, 256000, 8192, {"attention.sliding_window": 4096}),
    "Qwen2-VL-2B": (
        "qwen2vl",
        28,
        1536,
        8960,
        12,
        2,
        128,
        151936,
        32768,
        {"rope.dimension_sections": [16, 24, 24, 0], "bias": 1},
    ),
    "Gemma-3-270M": ("gemma3", 18, 640, 2048, 4, 1, 256, 262144, 32768, {"attention.sliding_window": 512}),
    "Gemma-3-1B": ("gemma3", 26, 1152, 6912, 4, 1, 256, 262144, 32768, {"attention.sliding_window": 512}),
    "Gemma-3-4B": ("gemma3", 34, 2560, 10240, 8, 4, 256, 262208, 131072, {"attention.sliding_window": 1024}),
    # The last 20 layers store no keys and values, and have feed-forward parts of twice the width.
    "Gemma-4-E2B": (
        "gemma4",
        35,
        1536,
        6144,
        8,
        1,
        512,
        262144,
        131072,
        {
            "attention.sliding_window": 512,
            "attention.sliding_window_pattern": [True, True, True, True, False] * 7,
            "attention.key_length_swa": 256,
            "attention.value_length_swa": 256,
            "attention.shared_kv_layers": 20,
            "embedding_length_per_layer_input": 256,
            "rope.dimension_count_swa": 256,
            "feed_forward_length": [6144] * 15 + [12288] * 20,
        },
    ),
    # The last 10 layers store no keys and values.
    "Gemma-3n-E2B": (
        "gemma3n",
        30,
        2048,
        8192,
        8,
        2,
        256,
        262400,
        32768,
        {
            "attention.sliding_window": 512,
            "attention.sliding_window_pattern": [True, True, True, True, False] * 6,
            "attention.shared_kv_layers": 10,
            "embedding_length_per_layer_input": 256,
            "altup.num_inputs": 4,
            "activation_sparsity_scale": [1.6448534] * 10 + [-math.inf] * 20,
        },
    ),
    # One latent for all heads of a token.
    "DeepSeek-V2-Lite": (
        "deepseek2",
        27,
        2048,
        10944,
        16,
        1,
        576,
        102400,
        163840,
        {
            "attention.kv_lora_rank": 512,
            "attention.key_length_mla": 192,
            "attention.value_length_mla": 128,
            "rope.dimension_count": 64,
            "leading_dense_block_count": 1,
            "expert_count": 64,
            "expert_used_count": 6,
            "expert_feed_forward_length": 1408,
            "expert_shared_count": 2,
        },
    ),
    "gpt-oss-20b": (
        "gpt-oss",
        24,
        2880,
        2880,
        64,
        8,
        64,
        201088,
        131072,
        {
            "attention.sliding_window": 128,
            "expert_count": 32,
            "expert_used_count": 4,
            "expert_feed_forward_length": 2880,
        },
    ),
}


def gemma4_shapes(layers, n_embd, heads, kv_heads, head_dim, vocab, extra):
    """Every tensor of a Gemma 4 with per-layer embeddings."""
    own = extra["embedding_length_per_layer_input"]
    out = [("rope_freqs.weight", (head_dim // 2,)), ("per_layer_proj_norm.weight", (own,))]
    out += [("token_embd.weight", (vocab, n_embd)), ("output_norm.weight", (n_embd,))]
    out += [("per_layer_token_embd.weight", (vocab, layers * own))]
    out += [("per_layer_model_proj.weight", (layers * own, n_embd))]
    for i in range(layers):
        window = extra["attention.sliding_window_pattern"][i]
        size = extra["attention.key_length_swa"] if window else head_dim
        q, kv, n_ff = heads * size, kv_heads * size, extra["feed_forward_length"][i]
        names = ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm"]
        tensors = [(name, (n_embd,)) for name in names] + [("attn_q_norm", (size,)), ("attn_q", (q, n_embd))]
        if i < layers - extra["attention.shared_kv_layers"]:
            tensors += [("attn_k_norm", (size,)), ("attn_k", (kv, n_embd)), ("attn_v", (kv, n_embd))]
        tensors += [("attn_output", (n_embd, q)), ("layer_output_scale", (1,))]
        tensors += [("ffn_gate", (n_ff, n_embd)), ("ffn_up", (n_ff, n_embd)), ("ffn_down", (n_embd, n_ff))]
        tensors += [("inp_gate", (own, n_embd)), ("proj", (n_embd, own))]
        out += [(f"blk.{i}.{name}.weight", shape) for name, shape in tensors]
    return out


def gemma3n_shapes(layers, n_embd, n_ff, heads, kv_heads, head_dim, vocab, extra):
    """Every tensor of a Gemma 3n."""
    own, n, laurel = extra["embedding_length_per_layer_input"], extra["altup.num_inputs"], 64
    q, kv = heads * head_dim, kv_heads * head_dim
    out = [("per_layer_proj_norm.weight", (own,)), ("output_norm.weight", (n_embd,))]
    out += [("token_embd.weight", (vocab, n_embd)), ("per_layer_token_embd.weight", (vocab, layers * own))]
    out += [("per_layer_model_proj.weight", (layers * own, n_embd))]
    out += [(f"altup_{name}.weight", (n - 1, n_embd, n_embd)) for name in ("proj", "unembd_proj")]
    for i in range(layers):
        names = ["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm", "post_norm", "laurel_post_norm"]
        tensors = [(name, (n_embd,)) for name in [*names, "altup_router_norm", "altup_correct_scale"]]
        tensors += [("attn_q_norm", (head_dim,)), ("attn_k_norm", (head_dim,))]
        tensors += [("attn_q", (q, n_embd)), ("attn_k", (kv, n_embd)), ("attn_v", (kv, n_embd))]
        tensors += [("attn_output", (n_embd, q)), ("inp_gate", (own, n_embd)), ("proj", (n_embd, own))]
        tensors += [("ffn_gate", (n_ff, n_embd)), ("ffn_up", (n_ff, n_embd)), ("ffn_down", (n_embd, n_ff))]
        tensors += [("laurel_l", (laurel, n_embd)), ("laurel_r", (n_embd, laurel)), ("altup_router", (n, n_embd))]
        tensors += [("altup_predict_coef", (n * n, n)), ("altup_correct_coef", (n, n))]
        out += [(f"blk.{i}.{name}.weight", shape) for name, shape in tensors]
    return out


def deepseek2_shapes(layers, n_embd, n_ff, heads, vocab, extra):
    """Every tensor of a DeepSeek-V2-Lite."""
    rank, n_rot = extra["attention.kv_lora_rank"], extra["rope.dimension_count"]
    n_key, n_value = extra["attention.key_length_mla"], extra["attention.value_length_mla"]
    n, own = extra["expert_count"], extra["expert_feed_forward_length"]
    shared = own * extra["expert_shared_count"]
    out = [
        ("token_embd.weight", (vocab, n_embd)),
        ("output_norm.weight", (n_embd,)),
        ("output.weight", (vocab, n_embd)),
    ]
    for i in range(layers):
        tensors = [("attn_norm", (n_embd,)), ("ffn_norm", (n_embd,)), ("attn_kv_a_norm", (rank,))]
        tensors += [("attn_q", (heads * n_key, n_embd)), ("attn_kv_a_mqa", (rank + n_rot, n_embd))]
        tensors += [("attn_k_b", (heads, rank, n_key - n_rot)), ("attn_v_b", (heads, n_value, rank))]
        tensors += [("attn_output", (n_embd, heads * n_value))]
        dense = i < extra["leading_dense_block_count"]
        for suffix, first, width in [("", (), n_ff)] if dense else [("_exps", (n,), own), ("_shexp", (), shared)]:
            tensors += [(f"ffn_gate{suffix}", (*first, width, n_embd)), (f"ffn_up{suffix}", (*first, width, n_embd))]
            tensors += [(f"ffn_down{suffix}", (*first, n_embd, width))]
        tensors += [] if dense else [("ffn_gate_inp", (n, n_embd))]
        out += [(f"blk.{i}.{name}.weight", shape) for name, shape in tensors]
    return out


def gpt_oss_shapes(layers, n_embd, n_ff, heads, kv_heads, head_dim, vocab, extra):
    """Every tensor of a gpt-oss."""
    q, kv, n = heads * head_dim, kv_heads * head_dim, extra["expert_count"]
    out = [
        ("token_embd.weight", (vocab, n_embd)),
        ("output_norm.weight", (n_embd,)),
        ("output.weight", (vocab, n_embd)),
    ]
    tensors = [
        ("attn_norm.weight", (n_embd,)),
        ("post_attention_norm.weight", (n_embd,)),
        ("attn_sinks.weight", (heads,)),
    ]
    for name, n_out, n_in in [
        ("attn_q", q, n_embd),
        ("attn_k", kv, n_embd),
        ("attn_v", kv, n_embd),
        ("attn_output", n_embd, q),
        ("ffn_gate_inp", n, n_embd),
    ]:
        tensors += [(f"{name}.weight", (n_out, n_in)), (f"{name}.bias", (n_out,))]
    for name, n_out, n_in in [("gate", n_ff, n_embd), ("up", n_ff, n_embd), ("down", n_embd, n_ff)]:
        tensors += [(f"ffn_{name}_exps.weight", (n, n_out, n_in)), (f"ffn_{name}_exps.bias", (n, n_out))]
    return out + [(f"blk.{i}.{name}", shape) for i in range(layers) for name, shape in tensors]


def shapes(arch, layers, n_embd, n_ff, heads, kv_heads, head_dim, vocab, extra):
    """Every tensor of the model: (name, shape)."""
    if arch == "gemma4":
        return gemma4_shapes(layers, n_embd, heads, kv_heads, head_dim, vocab, extra)
    if arch == "gemma3n":
        return gemma3n_shapes(layers, n_embd, n_ff, heads, kv_heads, head_dim, vocab, extra)
    if arch == "deepseek2":
        return deepseek2_shapes(layers, n_embd, n_ff, heads, vocab, extra)
    if arch == "gpt-oss":
        return gpt_oss_shapes(layers, n_embd, n_ff, heads, kv_heads, head_dim, vocab, extra)
    q, kv, neox = heads * head_dim, kv_heads * head_dim, arch == "gptneox"
    vectors = lambda name, n: [(f"{name}.weight", (n,))] + ([(f"{name}.bias", (n,))] if neox else [])
    matrix = lambda name, n_out, n_in: (
        [(f"{name}.weight", (n_out, n_in))] + ([(f"{name}.bias", (n_out,))] if neox else [])
    )
    out = [("token_embd.weight", (vocab, n_embd))] + vectors("output_norm", n_embd)
    if extra.get("head"):
        out.append(("output.weight", (vocab, n_embd)))
    for i in range(layers):
        b = f"blk.{i}."
        out += vectors(b + "attn_norm", n_embd) + vectors(b + "ffn_norm", n_embd)
        out += matrix(b + "attn_output", n_embd, q) + matrix(b + "ffn_down", n_embd, n_ff)
        if arch in ("gptneox", "phi3"):
            out += matrix(b + "attn_qkv", q + 2 * kv, n_embd)
        else:
            out += matrix(b + "attn_q", q, n_embd) + matrix(b + "attn_k", kv, n_embd) + matrix(b + "attn_v", kv, n_embd)
        out += matrix(b + "ffn_up", 2 * n_ff if arch == "phi3" else n_ff, n_embd)
        if arch not in ("gptneox", "phi3"):
            out += matrix(b + "ffn_gate", n_ff, n_embd)
        if extra.get("bias"):
            out += [(b + "attn_q.bias", (q,)), (b + "attn_k.bias", (kv,)), (b + "attn_v.bias", (kv,))]
        if arch in ("qwen3", "gemma3"):
            out += [(b + "attn_q_norm.weight", (head_dim,)), (b + "attn_k_norm.weight", (head_dim,))]
        if arch in ("gemma2", "gemma3"):
            out += [(b + "post_attention_norm.weight", (n_embd,)), (b + "post_ffw_norm.weight", (n_embd,))]
    return out


def write(path, arch, layers, n_embd, n_ff, heads, kv_heads, head_dim, vocab, context, extra):
    w = gguf.GGUFWriter(path, arch)
    w.add_context_length(context)
    w.add_embedding_length(n_embd)
    w.add_block_count(layers)
    if "feed_forward_length" not in extra:
        w.add_feed_forward_length(n_ff)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_key_length(head_dim)
    w.add_value_length(head_dim)
    (w.add_layer_norm_eps if arch == "gptneox" else w.add_layer_norm_rms_eps)(1e-5)
    for key, value in extra.items():
        if isinstance(value, list):
            w.add_array(f"{arch}.{key}", value)
        elif key not in ("bias", "head"):  # those two say which tensors there are
            w.add_uint32(f"{arch}.{key}", value)
    # One placeholder word of the vocabulary, which is never read.
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(["a"])
    w.add_token_merges(["a a"])
    n_bytes = 0
    for name, shape in shapes(arch, layers, n_embd, n_ff, heads, kv_heads, head_dim, vocab, extra):
        matrix = len(shape) > 1 and not name.endswith(".bias")
        kind = Q.F32 if not matrix else Q.Q8_0 if shape[-1] % 32 == 0 else Q.F16
        block, size = gguf.GGML_QUANT_SIZES[kind]
        n = size
        for side in shape:
            n *= side
        n //= block
        w.add_tensor_info(
            name,
            shape if kind != Q.Q8_0 else (*shape[:-1], shape[-1] // block * size),
            np.dtype("uint8" if kind == Q.Q8_0 else "float16" if kind == Q.F16 else "float32"),
            n,
            raw_dtype=kind if kind == Q.Q8_0 else None,
        )
        n_bytes += (n + 31) // 32 * 32
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    w.close()
    with open(path, "r+b") as f:
        f.seek(0, 2)
        begin = (f.tell() + 31) // 32 * 32
        f.truncate(begin + n_bytes)
        if arch == "gemma4":  # its first tensor: factors of the rotary embedding, which are checked
            f.seek(begin)
            f.write(np.ones(head_dim // 2, dtype=np.float32).tobytes())


def plan(weir, policy, name, pots):
    """The row's cells: the model's name, then texts."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shapes.gguf"
        write(path, *MODELS[name])
        run = lambda pot, *more: json.loads(
            subprocess.run(
                [weir, "plan", "-m", str(path), "--policy", policy, "-c", pot, "-o", "json", *more],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        plans = [run(pot) for pot in pots]
        whole = run(pots[0], "--window-layers", "pot")
    mib = lambda n_bytes: f"{n_bytes / 2**20:,.0f}"
    # One line for the layers of each kind.
    is_kv = lambda item: item["tag"] == "kv" and item["what"].startswith("keys and values, ")
    kv_bytes = lambda p: sum(item["bytes"] for item in p["items"] if is_kv(item))
    kv = [kv_bytes(p) for p in plans]
    return [name, f"{mib(plans[0]['weights_bytes'])} MiB", f"{kv_bytes(whole) / int(pots[0]) / 1024:,.0f} KiB"] + [
        f"{mib(n)} of {mib(p['session_bytes'])} MiB" for n, p in zip(kv, plans)
    ]


def agree(want, got):
    """Whether two rows match: keys and values exactly, the rest within 5 percent."""
    if len(want) != len(got):
        return False
    for i, (a, b) in enumerate(zip(want[1:], got[1:])):
        one, other = ([float(x.replace(",", "")) for x in re.findall(r"[\d,]+", text)] for text in (a, b))
        exact = [i == 1] if i < 2 else [True, False]
        if len(one) != len(exact) or len(other) != len(exact):
            return False
        if any(x != y if same else abs(x - y) > max(1, 0.05 * y) for x, y, same in zip(one, other, exact)):
            return False
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--weir", required=True)
    parser.add_argument("--pots", default="512,1024,4096")
    parser.add_argument("--policy", default="weir")
    parser.add_argument("--check", metavar="FILE", help="a Markdown file with such rows, of all models")
    args = parser.parse_args()
    pots = args.pots.split(",")
    written = {}
    if args.check:
        for line in Path(args.check).read_text().splitlines():
            cells = [cell.strip() for cell in line.strip("| ").split("|")]
            if cells[0] in MODELS:
                written[cells[0]] = cells
    print("| model | weights | a token | " + " | ".join(f"pot {int(pot):,}" for pot in pots) + " |")
    print("|---|--:|--:|" + "--:|" * len(pots))
    wrong = []
    for name in args.names or MODELS:
        row = plan(args.weir, args.policy, name, pots)
        print(f"| {' | '.join(row)} |", flush=True)
        if args.check and not agree(written.get(name, []), row):
            wrong.append(name)
    if wrong:
        sys.exit(f"plan: {args.check} says something else of {', '.join(wrong)}")


if __name__ == "__main__":
    main()
