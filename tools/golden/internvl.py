#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/internvl*: tiny random InternVLs with their reference numbers.

    tools/golden/internvl.py [--out tests/golden/vision] [--images FOLDER]

internvl.gguf           the encoder made by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32
internvl_qwen2.gguf     its language model, with a vocabulary that has the words around pictures
internvl.golden         their results in `transformers`, in float64
internvl_large.gguf, internvl_large.golden   an encoder as the 6B one: RMS norms, on queries and keys too, no biases
                        in attention; its intermediates
internvl_files.golden   `tiles.NAME`: its image processor's output for the PNG files of FOLDER, if given

Format as in tiny_models.py. Besides the intermediates of one tile of random numbers (`pixels`):
  tiles.WxH   what InternVL's own image processor makes of the synthetic picture of vision.py, [tiles * 3 * SIZE, SIZE],
              the whole picture last
  rows.WxH    the projector's rows of all of them
  once.WxH    the same processor without tiles, as frames of a video are looked at
  grids       [n, 5]: a picture's width and height, the most tiles, columns and rows of the grid for tiles of SIZE
  talk.ids, talk.logits   words, the pictures of `talk.pictures` (width, height), words between and after them; the
              pictures' rows are -1

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
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import (
    GotOcr2ImageProcessorPil,
    get_optimal_tiled_canvas,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models
from tools.golden.eyes import Watch, randomise, words
from tools.golden.vision import picture, write

# 6 patches along a side, 3 rows: sizes that are not multiples of any vector length.
SIZE, SCALE, MOST = 30, 2, 6
VISION = dict(
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=3,
    num_attention_heads=3,
    image_size=SIZE,
    patch_size=5,
    attention_bias=True,
)
LARGE = dict(norm_type="rms_norm", use_qk_norm=True, attention_bias=False, num_hidden_layers=2)
TEXT = dict(
    model_type="qwen2",
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=3,
    max_position_embeddings=512,
    tie_word_embeddings=False,
)
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>")
OPEN, CLOSE, IMAGE = range(3, 6)
PIXELS = ((90, 61), (200, 20), (1, 50), (30, 30), (97, 333), (7, 5))
TALK = ((61, 45), (20, 33))


def build(seed, **more):
    config = transformers.InternVLConfig(
        vision_config={**VISION, **more},
        text_config=TEXT,
        image_token_id=IMAGE,
        downsample_ratio=1 / SCALE,
        tie_word_embeddings=False,
    )
    # sdpa: its softmax stays in float64.
    model = transformers.InternVLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    return randomise(model, seed)


def run(model, pixels):
    """Every named intermediate, [rows, cols]."""
    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    with Watch() as watch, torch.no_grad():
        watch.keep("v.embd", tower.embeddings)
        watch.keep("mm.shuffle", projector.layer_norm, before=True)
        watch.keep("mm.0", projector.layer_norm)
        watch.keep("mm.1", projector.linear_1)
        watch.keep("mm.3", projector.linear_2)
        for i, layer in enumerate(tower.encoder.layer):
            to, att = f"v.blk.{i}.", layer.attention
            watch.keep(to + "ln1", layer.layernorm_before)
            for name, module in (("q", att.q_proj), ("k", att.k_proj), ("v", att.v_proj)):
                watch.keep(to + name, module)
            watch.keep(to + "mix", att.projection_layer, before=True)
            watch.keep(to + "mid", layer.layernorm_after, before=True)
            watch.keep(to + "ln2", layer.layernorm_after)
            watch.keep(to + "out", layer)
        model.model.get_image_features(pixels[None])
    return watch.seen


def tiles_of(processor, image, **more):
    return processor(image, return_tensors="pt", **more)["pixel_values"]


def flat(tiles):
    return tiles.reshape(-1, tiles.shape[-1]).numpy()


def talk(model, processor, rng):
    """Words and pictures: ids and logits."""
    more = lambda n: words(rng, n, len(SPECIALS), TEXT["vocab_size"])
    tiles, ids = [], more(4)
    for size in TALK:
        tiles.append(tiles_of(processor, Image.fromarray(picture(*size)), crop_to_patches=True))
        ids += [OPEN] + [IMAGE] * (len(tiles[-1]) * (SIZE // 5 // SCALE) ** 2) + [CLOSE] + more(3)
    ids = torch.tensor([ids])
    with torch.no_grad():
        out = model(input_ids=ids, pixel_values=torch.cat(tiles).double(), attention_mask=torch.ones_like(ids))
    return {
        "talk.ids": np.where(ids[0].numpy() == IMAGE, -1, ids[0].numpy()).reshape(-1, 1),
        "talk.logits": out.logits[0].numpy(),
        "talk.pictures": np.array(TALK),
    }


def grids():
    """The grid for pictures of many shapes, equals among them."""
    sizes = [(w, h) for w in (1, 7, 30, 45, 60, 91, 400) for h in (1, 13, 29, 30, 60, 120, 777)]
    rows = []
    for most in (1, 2, 6, 12, 40):
        rows += [(w, h, most, *get_optimal_tiled_canvas((h, w), (SIZE, SIZE), 1, most)) for w, h in sizes]
    return np.array(rows)


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/internvl*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20250414)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    size = dict(height=SIZE, width=SIZE)
    processor = GotOcr2ImageProcessorPil(size=size, crop_to_patches=True, max_patches=MOST)
    pixels = rng.standard_normal((3, SIZE, SIZE)).astype(np.float32)
    for name, more in (("internvl", {}), ("internvl_large", LARGE)):
        model = build(args.seed, **more)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            processor.save_pretrained(folder)
            tiny_models.write_tokenizer(Path(folder), SPECIALS)
            called = "tiny random internvl"
            hf_to_gguf.convert_folder(folder, args.out / f"{name}.gguf", "f32", name=called, mmproj=True)
            if not more:
                to = args.out / f"{name}_qwen2.gguf"
                hf_to_gguf.convert_folder(folder, to, "f32", name=called, pre="qwen2")
        model = model.double()
        entries = {"pixels": pixels.reshape(-1, SIZE), **run(model, torch.tensor(pixels).double())}
        if not more:
            for width, height in PIXELS:
                image = Image.fromarray(picture(width, height))
                tiles = tiles_of(processor, image, crop_to_patches=True)
                entries[f"tiles.{width}x{height}"] = flat(tiles)
                entries[f"once.{width}x{height}"] = flat(tiles_of(processor, image, crop_to_patches=False))
                with torch.no_grad():
                    rows = model.model.get_image_features(tiles.double()).pooler_output
                entries[f"rows.{width}x{height}"] = rows.reshape(-1, rows.shape[-1]).numpy()
            entries["grids"] = grids()
            entries.update(talk(model, processor, rng))
        write(args.out / f"{name}.golden", entries)
    if args.images:
        files = {
            f"tiles.{path.name}": flat(tiles_of(processor, Image.open(path), crop_to_patches=True))
            for path in sorted(args.images.glob("*.png"))
        }
        write(args.out / "internvl_files.golden", files)


if __name__ == "__main__":
    main()
