#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/gemma4*: tiny random Gemma 4 models with pictures and their reference numbers.

    tools/golden/gemma4_vision.py [--out tests/golden/vision] [--images FOLDER]

gemma4_vision.gguf   the encoder made by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32: as in the
                     small models, with bounds of matrices
gemma4_text.gguf     its language model, with per-layer embeddings and shared keys; rows of a picture in one direction
gemma4_vision.golden   their results in `transformers`, in float64 (the family's own norms are in float32)
gemma4_large_vision.gguf, gemma4_large_text.gguf, gemma4_large.golden   the same as in the large models: rows are moved
                     and stretched; in layers with a window, shorter than a picture, a picture's rows see each other
gemma4_vision_files.golden   `once.NAME`: its image processor's output for the PNG files of FOLDER, if given

Format as in tiny_models.py. Besides the intermediates of one picture of random numbers (`pixels`):
  once.WxH    what Gemma 4's own image processor makes of the synthetic picture of vision.py, brought to -1 to 1 as the
              model does it, [3 * height, width]; of the small model only
  rows.WxH    the projector's rows
  talk.ids, talk.logits   words, the pictures of `talk.pictures` (width, height), words between and after them; the
              pictures' rows are -1
  causal.logits   the last row's with every row seeing only what came before it
  greedy.ids  the likeliest words that follow, one after the other

Needs torch, transformers, gguf, pillow.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil, convert_image_to_patches

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models
from tools.golden.eyes import Watch, randomise, words
from tools.golden.vision import picture, write

# Sizes that are not multiples of any vector length; the fewest rows that the processor takes.
PATCH, SCALE, ROWS = 3, 3, 70
SIDE = PATCH * SCALE
VISION = dict(
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=3,
    head_dim=12,
    patch_size=PATCH,
    pooling_kernel_size=SCALE,
    position_embedding_size=ROWS * SCALE + 6,
)
TEXT = dict(
    vocab_size=320,
    hidden_size=32,
    num_attention_heads=4,
    head_dim=8,
    global_head_dim=16,
    sliding_window=20,
    max_position_embeddings=512,
    pad_token_id=0,
    eos_token_id=1,
    bos_token_id=2,
    rms_norm_eps=1e-5,
)
SMALL = dict(
    TEXT,
    intermediate_size=24,
    num_hidden_layers=8,
    num_key_value_heads=1,
    layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    + ["full_attention", "sliding_attention", "sliding_attention", "full_attention"],
    num_kv_shared_layers=3,
    use_double_wide_mlp=True,
    hidden_size_per_layer_input=8,
    vocab_size_per_layer_input=TEXT["vocab_size"],
    final_logit_softcapping=4.0,
)
LARGE = dict(
    TEXT,
    intermediate_size=48,
    num_hidden_layers=4,
    num_key_value_heads=4,
    num_global_key_value_heads=2,
    layer_types=["sliding_attention", "full_attention"] * 2,
    attention_k_eq_v=True,
    hidden_size_per_layer_input=0,
    use_bidirectional_attention="vision",
)
SPECIALS = ("<pad>", "<eos>", "<bos>", "<|image>", "<image|>", "<|image|>")
OPEN, CLOSE, IMAGE = range(3, 6)
PIXELS = ((90, 61), (200, 20), (1, 50), (36, 63), (2, 400))
TALK = ((61, 45), (20, 33))
N_GREEDY = 24


def build(seed, text, **vision):
    config = transformers.Gemma4Config(
        vision_config={**VISION, **vision},
        text_config=text,
        audio_config=None,
        image_token_id=IMAGE,
        boi_token_id=OPEN,
        eoi_token_id=CLOSE,
        tie_word_embeddings=True,
    )
    # sdpa: its softmax stays in float64.
    model = transformers.Gemma4ForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    # Norms of queries and keys alone decide how sharp attention without a scale is.
    randomise(model, seed, wide=())
    g = torch.Generator().manual_seed(seed + 1)
    normal = lambda like: torch.randn(like.shape, generator=g)
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            if name.endswith("position_embedding_table"):
                p.copy_(0.3 * normal(p))
            elif name.endswith(("q_norm.weight", "k_norm.weight")):
                p.copy_(0.6 + 0.1 * normal(p))
            elif "embed_tokens" in name:  # scaled by the square root of the width at the input, unscaled at the output
                p.copy_(2 * normal(p) / p.shape[1] ** 0.5)
        for name, p in sorted(model.named_buffers()):
            part = name.rsplit(".", 1)[-1]
            if part == "layer_scalar":
                p.copy_(1 + 0.2 * normal(p))
            elif part in ("input_min", "output_min"):  # some of what is normal or nearly so lies beyond
                p.copy_(-1.3 - 0.3 * torch.rand(p.shape, generator=g))
            elif part in ("input_max", "output_max"):
                p.copy_(1.6 + 0.3 * torch.rand(p.shape, generator=g))
            elif part == "std_bias":
                p.copy_(2 * normal(p))
            elif part == "std_scale":
                p.copy_(0.5 + 0.1 * normal(p))
    return model.double().eval()


def places(n_x, n_y):
    y, x = torch.meshgrid(torch.arange(n_y), torch.arange(n_x), indexing="ij")
    return torch.stack([x, y], dim=-1).reshape(1, n_x * n_y, 2)


def run(model, pixels):
    """Every named intermediate, [rows, cols], of pixels from -1 to 1, more or less."""
    tower, embed = model.model.vision_tower, model.model.embed_vision
    n_y, n_x = (side // PATCH for side in pixels.shape[1:])
    patches = torch.tensor(convert_image_to_patches((pixels + 1) / 2, PATCH))[None]
    with Watch() as watch, torch.no_grad():
        watch.keep("v.embd", tower.patch_embedder)
        watch.keep("mm.pool", tower.pooler)
        if model.config.vision_config.standardize:
            watch.keep("mm.std", embed.embedding_pre_projection_norm, before=True)
        watch.keep("mm.norm", embed.embedding_pre_projection_norm)
        for i, layer in enumerate(tower.encoder.layers):
            to, att = f"v.blk.{i}.", layer.self_attn
            watch.keep(to + "ln1", layer.input_layernorm)
            for name, module in (("q", att.q_proj), ("k", att.k_proj), ("v", att.v_proj)):
                watch.keep(to + name, module)
            watch.keep(to + "mix", att.o_proj, before=True)
            watch.keep(to + "mid", layer.pre_feedforward_layernorm, before=True)
            watch.keep(to + "ln2", layer.pre_feedforward_layernorm)
            watch.keep(to + "out", layer)
        rows = model.model.get_image_features(patches.double(), places(n_x, n_y)).pooler_output
    watch.seen["mm.fc"] = rows[0].numpy()
    return watch.seen


def inputs_of(processor, image):
    inputs = processor(image.convert("RGB"), return_tensors="pt")
    return dict(pixel_values=inputs["pixel_values"].double(), image_position_ids=inputs["image_position_ids"])


def features(model, inputs):
    with torch.no_grad():
        (rows,) = model.model.get_image_features(**inputs).pooler_output
    return rows.numpy()


def planes(inputs):
    """What a picture's patches show, [3 * height, width]."""
    (where,) = inputs["image_position_ids"]
    n = int((where[:, 0] >= 0).sum())
    n_x, n_y = (int(side) + 1 for side in where[:n].max(dim=0)[0])
    grid = inputs["pixel_values"][0, :n].reshape(n_y, n_x, PATCH, PATCH, 3).permute(4, 0, 2, 1, 3)
    return (2 * grid - 1).reshape(-1, n_x * PATCH).numpy()


def talk(model, processor, rng):
    """Words and pictures: ids and logits, and the words that follow."""
    more = lambda n: words(rng, n, len(SPECIALS), TEXT["vocab_size"])
    shown, ids = [], more(4)
    for size in TALK:
        shown.append(inputs_of(processor, Image.fromarray(picture(*size))))
        ids += [OPEN] + [IMAGE] * len(features(model, shown[-1])) + [CLOSE] + more(3)
    pictures = {key: torch.cat([inputs[key] for inputs in shown]) for key in shown[0]}

    def logits(ids, two_way=True):
        ids = torch.tensor([ids])
        call = dict(input_ids=ids, attention_mask=torch.ones_like(ids), **pictures)
        if two_way:
            call["mm_token_type_ids"] = (ids == IMAGE).long()
        with torch.no_grad():
            return model(**call).logits[0].numpy()

    longer, margin = list(ids), np.inf
    for _ in range(N_GREEDY):
        last = logits(longer)[-1]
        best = np.argsort(last)[::-1]
        margin = min(margin, last[best[0]] - last[best[1]])
        longer.append(int(best[0]))
    print(f"the closest two words of an answer differ by {margin:.2g}")
    return {
        "talk.ids": np.where(np.array(ids) == IMAGE, -1, ids).reshape(-1, 1),
        "talk.logits": logits(ids),
        "talk.pictures": np.array(TALK),
        "causal.logits": logits(ids, two_way=False)[-1:],
        "greedy.ids": np.array(longer[len(ids) :]).reshape(-1, 1),
    }


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/gemma4*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20260402)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    processor = Gemma4ImageProcessorPil(patch_size=PATCH, pooling_kernel_size=SCALE, max_soft_tokens=ROWS)
    pixels = rng.standard_normal((3, 2 * SIDE, 3 * SIDE)).astype(np.float32)
    for name, text, vision in (
        ("gemma4", SMALL, dict(use_clipped_linears=True)),
        ("gemma4_large", LARGE, dict(standardize=True)),
    ):
        model = build(args.seed, text, **vision)
        with tempfile.TemporaryDirectory() as folder:
            model.float().save_pretrained(folder)
            processor.save_pretrained(folder)
            tiny_models.write_tokenizer(Path(folder), SPECIALS, SPECIALS[1])
            called = f"tiny random {name}"
            hf_to_gguf.convert_folder(folder, args.out / f"{name}_vision.gguf", "f32", name=called, mmproj=True)
            hf_to_gguf.convert_folder(folder, args.out / f"{name}_text.gguf", "f32", name=called, pre="qwen2")
        model = model.double()
        entries = {"pixels": pixels.reshape(-1, pixels.shape[-1]), **run(model, pixels)}
        for width, height in PIXELS if name == "gemma4" else PIXELS[:2]:
            inputs = inputs_of(processor, Image.fromarray(picture(width, height)))
            if name == "gemma4":
                entries[f"once.{width}x{height}"] = planes(inputs)
            entries[f"rows.{width}x{height}"] = features(model, inputs)
        entries.update(talk(model, processor, rng))
        write(args.out / ("gemma4_vision.golden" if name == "gemma4" else f"{name}.golden"), entries)
    if args.images:
        files = {
            f"once.{path.name}": planes(inputs_of(processor, Image.open(path)))
            for path in sorted(args.images.glob("*.png"))
        }
        write(args.out / "gemma4_vision_files.golden", files)


if __name__ == "__main__":
    main()
