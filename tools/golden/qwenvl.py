#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/qwenvl*: a tiny random Qwen-VL with its reference numbers.

    tools/golden/qwenvl.py [--out tests/golden/vision]

qwenvl_resampler.gguf   the encoder: random weights laid out as in Qwen-VL's repository, converted to F32 by
                        hf_to_gguf.py
qwenvl.gguf             its language model, with a vocabulary read from a .tiktoken file
qwenvl.golden           the rules of the paper (2308.12966, section 2.1) and of its published code, reimplemented
                        below in PyTorch and run in float64; the language model is transformers'
                        Qwen2, which computes the same thing as Qwen

Format as in tiny_models.py. Besides the intermediates of one square of random numbers (`pixels`):
  picture.WxH   the synthetic picture of vision.py after Qwen-VL's transform
  ids.WxH       a chat turn of this picture and words; the picture's rows are -1
  logits.WxH    after the last token of that turn, [1, vocab]

Needs torch, transformers, safetensors, gguf, pillow.
"""

import argparse
import base64
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.convert.families import qwen
from tools.golden import qwen_folder, tiny_models
from tools.golden.vision import picture, write

# 7 patches along a side, positions of 4; 4 x 4 queries: sizes that are not multiples of any vector length.
VISUAL = dict(image_size=37, patch_size=5, width=40, layers=3, heads=5, mlp_ratio=1.8, output_dim=48, n_queries=16)
N_HEADS, POSITIONS = 3, 16
N_MERGES = 512 - 256 - len(qwen.SPECIALS + qwen.PICTURE_SPECIALS)
TEXT = dict(
    vocab_size=512,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=3,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    use_cache=False,
    bos_token_id=None,
    eos_token_id=None,
)
SIZES = ((90, 61), (31, 120), (37, 37), (1, 3))
WORDS = "the man and the"


def tokens_by_rank():
    """The contents of a .tiktoken: every byte, then merges."""
    letters = {letter: bytes([b]) for b, letter in enumerate(tiny_models.byte_alphabet())}
    merged = [m.replace(" ", "") for line in tiny_models.MERGES.split("\n") for m in line.split("|")][:N_MERGES]
    return [bytes([b]) for b in range(256)] + [b"".join(letters[c] for c in token) for token in merged]


def encode(text, ranks):
    """tiktoken's rule: repeatedly merge the adjacent pair of lowest rank, until no pair has one."""
    specials = {t: len(ranks) + i for i, t in enumerate(qwen.SPECIALS + qwen.PICTURE_SPECIALS)}
    out = []
    for piece in re.split("(" + "|".join(map(re.escape, specials)) + ")", text):
        if piece in specials:
            out.append(specials[piece])
            continue
        # The part of Qwen's expression that these words need: letters with a preceding character, line ends.
        for word in re.findall(r"[^\r\nA-Za-z]?[A-Za-z]+|[^\sA-Za-z]+[\r\n]*|\s*[\r\n]+|\s+", piece):
            parts = [bytes([b]) for b in word.encode()]
            while len(parts) > 1:
                rank, i = min((ranks.get(a + b, len(ranks)), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
                if rank == len(ranks):
                    break
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            out += [ranks[p] for p in parts]
    return out


def grid_positions(dim, side):
    """[side * side, dim]: sines and cosines of the column, then of the line."""
    frequency = 10000.0 ** (-torch.arange(dim // 4, dtype=torch.float64) / (dim // 4))
    axis = lambda at: torch.cat([torch.sin(at[:, None] * frequency), torch.cos(at[:, None] * frequency)], dim=1)
    line, column = (
        v.reshape(-1).double() for v in torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    )
    return torch.cat([axis(column), axis(line)], dim=1)


def build_visual(seed):
    """Tensors under the names of Qwen-VL's repository."""
    g = torch.Generator().manual_seed(seed)
    width, dim, patch = VISUAL["width"], VISUAL["output_dim"], VISUAL["patch_size"]
    hidden = int(width * VISUAL["mlp_ratio"])
    out = {"attn_pool.pos_embed": grid_positions(dim, 4).float()}

    def matrix(name, *shape, scale=1.0):
        out[name] = scale / np.prod(shape[1:]) ** 0.5 * torch.randn(shape, generator=g)

    def bias(name, n):
        out[name] = 0.3 * torch.randn(n, generator=g)

    def linear(name, n_out, n_in, scale=1.0):
        matrix(f"{name}.weight", n_out, n_in, scale=scale)
        bias(f"{name}.bias", n_out)

    def norm(name, n):
        out[f"{name}.weight"] = 1.0 + 0.2 * torch.randn(n, generator=g)
        bias(f"{name}.bias", n)

    matrix("conv1.weight", width, 3, patch, patch)
    out["positional_embedding"] = torch.randn((POSITIONS, width), generator=g)
    norm("ln_pre", width)
    for i in range(VISUAL["layers"]):
        block = f"transformer.resblocks.{i}."
        norm(f"{block}ln_1", width)
        norm(f"{block}ln_2", width)
        linear(f"{block}attn.in_proj", 3 * width, width, scale=1.5)
        linear(f"{block}attn.out_proj", width, width)
        linear(f"{block}mlp.c_fc", hidden, width)
        linear(f"{block}mlp.c_proj", width, hidden)
    out["attn_pool.query"] = torch.randn((VISUAL["n_queries"], dim), generator=g)
    matrix("attn_pool.kv_proj.weight", dim, width)
    matrix("attn_pool.attn.in_proj_weight", 3 * dim, dim, scale=1.5)
    bias("attn_pool.attn.in_proj_bias", 3 * dim)
    linear("attn_pool.attn.out_proj", dim, dim)
    for name in ("attn_pool.ln_q", "attn_pool.ln_kv", "ln_post"):
        norm(name, dim)
    matrix("proj", dim, dim)
    return out


def attention(q, k, v, n_heads):
    split = lambda x: x.reshape(len(x), n_heads, -1).transpose(0, 1)
    q, k, v = split(q), split(k), split(v)
    p = torch.softmax(q @ k.transpose(1, 2) / q.shape[-1] ** 0.5, dim=-1)
    return (p @ v).transpose(0, 1).reshape(q.shape[1], -1)


def for_grid(table, n):
    side, to = round(len(table) ** 0.5), round(n**0.5)
    square = table.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    return F.interpolate(square, size=(to, to), mode="bicubic", align_corners=False).permute(0, 2, 3, 1).reshape(n, -1)


def run_visual(tensors, pixels):
    """Rows of [3, size, size], and every named intermediate."""
    w = {name: value.double() for name, value in tensors.items()}
    linear = lambda name, x: F.linear(x, w[f"{name}.weight"], w.get(f"{name}.bias"))
    norm = lambda name, x: F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)
    seen = {}
    x = F.conv2d(pixels[None], w["conv1.weight"], stride=VISUAL["patch_size"])[0].flatten(1).T
    n, width, dim, n_heads = len(x), VISUAL["width"], VISUAL["output_dim"], VISUAL["heads"]
    x = seen["v.embd"] = x + for_grid(w["positional_embedding"], n)
    x = seen["v.pre_ln"] = norm("ln_pre", x)
    for i in range(VISUAL["layers"]):
        block, to = f"transformer.resblocks.{i}.", f"v.blk.{i}."
        h = seen[f"{to}ln1"] = norm(f"{block}ln_1", x)
        # Of every head q, then k, then v.
        parts = linear(f"{block}attn.in_proj", h).reshape(n, n_heads, 3, width // n_heads)
        q, k, v = (parts[:, :, j].reshape(n, width) for j in range(3))
        seen[f"{to}q"], seen[f"{to}k"], seen[f"{to}v"] = q, k, v
        h = seen[f"{to}mix"] = attention(q, k, v, n_heads)
        x = seen[f"{to}mid"] = x + linear(f"{block}attn.out_proj", h)
        h = seen[f"{to}ln2"] = norm(f"{block}ln_2", x)
        x = seen[f"{to}out"] = x + linear(f"{block}mlp.c_proj", F.gelu(linear(f"{block}mlp.c_fc", h)))
    at = w["attn_pool.pos_embed"]
    e = seen["mm.ln_kv"] = norm("attn_pool.ln_kv", linear("attn_pool.kv_proj", x))
    query = seen["mm.ln_q"] = norm("attn_pool.ln_q", w["attn_pool.query"])
    wq, wk, wv = w["attn_pool.attn.in_proj_weight"].split(dim)
    bq, bk, bv = w["attn_pool.attn.in_proj_bias"].split(dim)
    q, k, v = F.linear(query + at, wq, bq), F.linear(e + for_grid(at, n), wk, bk), F.linear(e, wv, bv)
    seen["mm.q"], seen["mm.k"], seen["mm.v"] = q, k, v
    x = seen["mm.mix"] = attention(q, k, v, N_HEADS)
    x = seen["mm.out"] = linear("attn_pool.attn.out_proj", x)
    x = seen["mm.ln_post"] = norm("ln_post", x)
    seen["mm.proj"] = x @ w["proj"]
    return seen["mm.proj"], {name: value.numpy() for name, value in seen.items()}


def transformed(image):
    """Qwen-VL's transform: stretched, bicubic, CLIP's normalisation."""
    side = VISUAL["image_size"]
    values = np.asarray(image.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float64) / 255
    return ((values - qwen.CLIP_MEAN) / qwen.CLIP_STD).transpose(2, 0, 1)


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/qwenvl*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--seed", type=int, default=20240607)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    visual, by_rank = build_visual(args.seed), tokens_by_rank()
    config = transformers.Qwen2Config(**TEXT, rms_norm_eps=1e-6)
    model = transformers.Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa").eval()
    g = torch.Generator().manual_seed(args.seed)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            wide = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
            p.copy_(
                0.3 * torch.randn(p.shape, generator=g)
                if p.ndim == 1 and "norm" not in name
                else 1.0 + 0.2 * torch.randn(p.shape, generator=g)
                if p.ndim == 1
                else wide / p.shape[1] ** 0.5 * torch.randn(p.shape, generator=g)
            )
    qwen.RESAMPLER_HEAD_DIM = VISUAL["output_dim"] // N_HEADS  # hard-coded in the published code
    with tempfile.TemporaryDirectory() as folder:
        qwen_folder.save(
            model,
            folder,
            visual=VISUAL,
            visual_tensors=visual,
            seq_length=256,
            use_dynamic_ntk=True,
            use_logn_attn=True,
        )
        lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(by_rank)]
        (Path(folder) / "qwen.tiktoken").write_text("".join(lines))
        (Path(folder) / "generation_config.json").write_text(json.dumps(dict(chat_format="chatml")))
        hf_to_gguf.convert_folder(
            folder, args.out / "qwenvl_resampler.gguf", "f32", name="tiny random qwenvl", mmproj=True
        )
        hf_to_gguf.convert_folder(folder, args.out / "qwenvl.gguf", "f32", name="tiny random qwenvl")
    side, model = VISUAL["image_size"], model.double()
    pixels = torch.tensor(np.random.default_rng(args.seed).standard_normal((3, side, side)), dtype=torch.float32)
    entries = {"pixels": pixels.reshape(3 * side, side).numpy(), **run_visual(visual, pixels.double())[1]}
    ranks = {token: rank for rank, token in enumerate(by_rank)}
    before = encode("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n<img>", ranks)
    after = encode(f"</img>{WORDS}<|im_end|>\n<|im_start|>assistant\n", ranks)
    words = lambda ids: model.model.embed_tokens(torch.tensor(ids))
    for width, height in SIZES:
        shown = transformed(Image.fromarray(picture(width, height)))
        with torch.no_grad():
            rows, _ = run_visual(visual, torch.tensor(shown))
            out = model(inputs_embeds=torch.cat([words(before), rows, words(after)])[None])
        name = f"{width}x{height}"
        entries[f"picture.{name}"] = shown.reshape(3 * side, side)
        entries[f"ids.{name}"] = np.array(before + [-1] * len(rows) + after).reshape(-1, 1)
        entries[f"logits.{name}"] = out.logits[0, -1:].numpy()
    write(args.out / "qwenvl.golden", entries)


if __name__ == "__main__":
    main()
