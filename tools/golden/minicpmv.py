#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/minicpmv*: a tiny random MiniCPM-V with its reference numbers.

    tools/golden/minicpmv.py [--out tests/golden/vision] [--images FOLDER]

minicpmv.gguf        the encoder from a fixed seed, converted by hf_to_gguf.py to F16
minicpmv_text.gguf   its language model, a Qwen2
minicpmv.golden      their results in float64
minicpmv_files.golden   `views.NAME`: the views of the PNG files of FOLDER, if given

transformers has no implementation of the generations with a resampler. The parts that it has are taken from there: the
vision transformer with positions of any size (Idefics2's, which MiniCPM-V's code is derived from), the slices (those of
MiniCPM-V 4.6, whose processor with half the patch and one merge of 2 x 2 rounds sides as earlier ones do with a patch),
the language model. The resampler is written here from its description (2408.01800, section 3.1) over
torch.nn.MultiheadAttention.

Format as in tiny_models.py. Besides the intermediates of one picture of random numbers (`pixels`):
  views.WxH   what the image processor makes of the synthetic picture of vision.py: the whole picture and its slices,
              each [3 * height, width], one number after the other, [n, 1]
  shapes.WxH  [views, 2]: height and width in patches of each
  rows.WxH    the resampler's rows of all of them
  talk.ids, talk.logits   words, the pictures of `talk.pictures` (width, height), words between and after them; the
              pictures' rows are -1, the words around views are not
  greedy.ids  the likeliest words that follow, one after the other

Needs torch, transformers, safetensors, gguf, pillow.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from transformers.models.idefics2.modeling_idefics2 import Idefics2VisionTransformer
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models
from tools.golden.eyes import Watch, randomise, words
from tools.golden.vision import picture, write

# Sizes that are not multiples of any vector length, but for the resampler's heads, which have 128 numbers.
PATCH, SIDE, PLACES, MOST_SLICES, QUERIES, WIDTH, HEAD = 6, 36, 7, 4, 5, 256, 128
VISION = dict(
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=3,
    num_attention_heads=3,
    image_size=PATCH * PLACES,
    patch_size=PATCH,
    hidden_act="gelu_pytorch_tanh",
    layer_norm_eps=1e-6,
)
TEXT = dict(
    vocab_size=320,
    hidden_size=WIDTH,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
    rms_norm_eps=1e-6,
    tie_word_embeddings=True,
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<unk>", "<image>", "</image>", "<slice>", "</slice>")
UNKNOWN, OPEN, CLOSE, SLICE, SLICE_END = range(3, 8)
PIXELS = ((90, 61), (61, 90), (200, 20), (1, 50), (36, 36), (30, 54), (7, 5))
TALK = ((90, 61), (20, 33))  # the first is cut into slices
N_GREEDY = 24


class Resampler(nn.Module):
    """Learned queries that read a picture's patches, whose keys carry sines and cosines of column and line."""

    def __init__(self):
        super().__init__()
        norm = lambda: nn.LayerNorm(WIDTH, eps=1e-6)
        self.query = nn.Parameter(torch.zeros(QUERIES, WIDTH))
        self.kv_proj = nn.Linear(VISION["hidden_size"], WIDTH, bias=False)
        self.attn = nn.MultiheadAttention(WIDTH, WIDTH // HEAD)
        self.ln_q, self.ln_kv, self.ln_post = norm(), norm(), norm()
        self.proj = nn.Parameter(torch.zeros(WIDTH, WIDTH))

    def places(self, n_y, n_x):
        """[n_y * n_x, WIDTH]: half of each row is of the column, half of the line."""
        omega = 10000.0 ** -(torch.arange(WIDTH // 4, dtype=torch.float64) / (WIDTH // 4))
        angles = lambda n: torch.outer(torch.arange(n, dtype=torch.float64), omega)
        across, down = (torch.cat([angles(n).sin(), angles(n).cos()], 1) for n in (n_x, n_y))
        return torch.cat([across.repeat(n_y, 1), down.repeat_interleave(n_x, 0)], 1)

    def forward(self, x, n_y, n_x):
        kv, q = self.ln_kv(self.kv_proj(x)), self.ln_q(self.query)
        keys = kv + self.places(n_y, n_x).to(kv.dtype)
        out, _ = self.attn(q[:, None], keys[:, None], kv[:, None], need_weights=False)
        return self.ln_post(out[:, 0]) @ self.proj


class Eye(nn.Module):
    def __init__(self):
        super().__init__()
        config = transformers.Idefics2VisionConfig(**VISION)
        config._attn_implementation = "sdpa"  # its softmax stays in float64
        self.vpm = Idefics2VisionTransformer(config)
        self.resampler = Resampler()

    def forward(self, pixels):
        n_y, n_x = (side // PATCH for side in pixels.shape[1:])
        mask = torch.ones(1, n_y, n_x, dtype=torch.bool)
        x = self.vpm(pixel_values=pixels[None], patch_attention_mask=mask).last_hidden_state[0]
        return self.resampler(x, n_y, n_x)


def build(seed):
    torch.manual_seed(seed)
    eye = randomise(Eye(), seed, wide=("q_proj", "k_proj", "in_proj"))
    config = transformers.Qwen2Config(**TEXT)
    llm = transformers.Qwen2ForCausalLM._from_config(config, attn_implementation="sdpa")
    randomise(llm, seed + 1)
    g = torch.Generator().manual_seed(seed + 2)
    with torch.no_grad():
        for name, p in eye.named_parameters():
            if name.endswith(("resampler.query", "position_embedding.weight")):
                p.copy_(torch.randn(p.shape, generator=g))
        # What the files hold.
        for p in (*eye.parameters(), *llm.parameters()):
            p.copy_(p.half().float())
    return eye, llm


def save(folder, eye, llm):
    """A folder as those of MiniCPM-V 2.6 are."""
    tensors = {name: p.detach().clone() for name, p in eye.named_parameters()}
    tensors |= {f"llm.{name}": p.detach().clone() for name, p in llm.named_parameters()}
    save_file(tensors, folder / "model.safetensors")
    config = {**llm.config.to_dict(), "architectures": ["MiniCPMV"], "model_type": "minicpmv", "version": 2.6}
    config |= dict(image_size=SIDE, patch_size=PATCH, query_num=QUERIES, drop_vision_last_layer=False)
    config |= dict(vision_config={**VISION, "model_type": "siglip_vision_model"})
    config |= dict(slice_config=dict(max_slice_nums=MOST_SLICES, patch_size=PATCH, model_type="minicpmv"))
    (folder / "config.json").write_text(json.dumps(config))
    processor = dict(max_slice_nums=MOST_SLICES, scale_resolution=SIDE, patch_size=PATCH, slice_mode=True)
    processor |= dict(norm_mean=[0.5] * 3, norm_std=[0.5] * 3, version=2.6, image_feature_size=QUERIES)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))


def views(processor, image):
    """Planes of the whole picture and of its slices, and the grid."""
    out = processor(image.convert("RGB"), return_tensors="pt")
    strips, planes, done = out["pixel_values"][0], [], 0
    half = PATCH // 2  # the processor's patches are half as wide as the model's
    for n_y, n_x in out["target_sizes"].tolist():
        n = n_y * n_x
        part = strips[:, :, done : done + n * half].reshape(3, half, n_y, n_x, half)
        planes.append(part.permute(0, 2, 1, 3, 4).reshape(3, n_y * half, n_x * half))
        done += n * half
    return planes, out["grids"][0]


def run(eye, pixels):
    """Every named intermediate, [rows, cols]."""
    resampler, tower = eye.resampler, eye.vpm
    n_y, n_x = (side // PATCH for side in pixels.shape[1:])
    with Watch() as watch, torch.no_grad():
        watch.keep("v.embd", tower.embeddings)
        watch.keep("v.post_ln", tower.post_layernorm)
        for i, layer in enumerate(tower.encoder.layers):
            to, att = f"v.blk.{i}.", layer.self_attn
            watch.keep(to + "ln1", layer.layer_norm1)
            for name, module in (("q", att.q_proj), ("k", att.k_proj), ("v", att.v_proj)):
                watch.keep(to + name, module)
            watch.keep(to + "mix", att.out_proj, before=True)
            watch.keep(to + "mid", layer.layer_norm2, before=True)
            watch.keep(to + "ln2", layer.layer_norm2)
            watch.keep(to + "out", layer)
        watch.keep("mm.ln_kv", resampler.ln_kv)
        watch.keep("mm.ln_q", resampler.ln_q)
        watch.keep("mm.out", resampler.ln_post, before=True)
        watch.keep("mm.ln_post", resampler.ln_post)
        seen = watch.seen
        seen["mm.proj"] = eye(pixels).numpy()
        # Inside of the attention.
        kv, q = torch.tensor(seen["mm.ln_kv"]), torch.tensor(seen["mm.ln_q"])
        weights, bias = resampler.attn.in_proj_weight.chunk(3), resampler.attn.in_proj_bias.chunk(3)
        parts = q, kv + resampler.places(n_y, n_x), kv
        for name, part, w, b in zip("qkv", parts, weights, bias):
            seen[f"mm.{name}"] = (part @ w.T + b).numpy()
        heads = lambda name: torch.tensor(seen[f"mm.{name}"]).reshape(-1, WIDTH // HEAD, HEAD).transpose(0, 1)
        scores = heads("q") @ heads("k").transpose(1, 2) / math.sqrt(HEAD)
        seen["mm.mix"] = (scores.softmax(-1) @ heads("v")).transpose(0, 1).reshape(-1, WIDTH).numpy()
    return seen


def talk(eye, llm, processor, newline, rng):
    """Words and pictures: ids, logits and the words that follow."""
    more = lambda n: words(rng, n, len(SPECIALS), TEXT["vocab_size"])
    ids, rows = more(4), []
    for size in TALK:
        planes, (n_rows, n_cols) = views(processor, Image.fromarray(picture(*size)))
        with torch.no_grad():
            rows += [eye(view.double()) for view in planes]
        ids += [OPEN] + [UNKNOWN] * QUERIES + [CLOSE]
        for line in range(n_rows):
            ids += ([newline] if line else []) + ([SLICE] + [UNKNOWN] * QUERIES + [SLICE_END]) * n_cols
        ids += more(3)

    def logits(ids):
        ids = torch.tensor(ids)
        embeds = llm.model.embed_tokens(ids)
        embeds[ids == UNKNOWN] = torch.cat(rows)
        with torch.no_grad():
            return llm(inputs_embeds=embeds[None]).logits[0].detach().numpy()

    longer, margin = list(ids), np.inf
    for _ in range(N_GREEDY):
        last = logits(longer)[-1]
        last[UNKNOWN] = -np.inf  # stands for rows here
        best = np.argsort(last)[::-1]
        margin = min(margin, last[best[0]] - last[best[1]])
        longer.append(int(best[0]))
    print(f"the closest two words of an answer differ by {margin:.2g}")
    return {
        "talk.ids": np.where(np.array(ids) == UNKNOWN, -1, ids).reshape(-1, 1),
        "talk.logits": logits(ids),
        "talk.pictures": np.array(TALK),
        "greedy.ids": np.array(longer[len(ids) :]).reshape(-1, 1),
    }


def flat(planes):
    return torch.cat([view.reshape(-1) for view in planes]).reshape(-1, 1).numpy()


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/minicpmv*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20240807)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    processor = MiniCPMV4_6ImageProcessorPil(
        max_slice_nums=MOST_SLICES, scale_resolution=SIDE, patch_size=PATCH // 2, downsample_mode="4x"
    )
    eye, llm = build(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), eye, llm)
        tiny_models.write_tokenizer(Path(folder), SPECIALS, SPECIALS[2])
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
        (newline,) = tokenizer("\n", add_special_tokens=False)["input_ids"]
        called = "tiny random minicpm-v"
        hf_to_gguf.convert_folder(folder, args.out / "minicpmv.gguf", "f16", name=called, mmproj=True)
        hf_to_gguf.convert_folder(folder, args.out / "minicpmv_text.gguf", "f16", name=called, pre="qwen2")
    eye, llm = eye.double(), llm.double()
    # Wider than high: of the table of 7 x 7 positions some columns are left out, and lines.
    pixels = rng.standard_normal((3, 4 * PATCH, 9 * PATCH)).astype(np.float32)
    entries = {"pixels": pixels.reshape(-1, pixels.shape[-1]), **run(eye, torch.tensor(pixels).double())}
    for width, height in PIXELS:
        planes, _ = views(processor, Image.fromarray(picture(width, height)))
        name = f"{width}x{height}"
        entries[f"views.{name}"] = flat(planes)
        entries[f"shapes.{name}"] = np.array([[view.shape[1] // PATCH, view.shape[2] // PATCH] for view in planes])
        with torch.no_grad():
            entries[f"rows.{name}"] = torch.cat([eye(view.double()) for view in planes]).numpy()
    entries.update(talk(eye, llm, processor, newline, rng))
    write(args.out / "minicpmv.golden", entries)
    if args.images:
        files = {
            f"views.{path.name}": flat(views(processor, Image.open(path))[0])
            for path in sorted(args.images.glob("*.png"))
        }
        write(args.out / "minicpmv_files.golden", files)


if __name__ == "__main__":
    main()
