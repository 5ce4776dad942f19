#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/lfm2_*: a tiny random LFM2-VL with its reference numbers.

    tools/golden/lfm2_vision.py [--out tests/golden/vision] [--images FOLDER]

lfm2_vision.gguf     the encoder made by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32
lfm2_text.gguf       its language model, with the words of pictures
lfm2_vision.golden   their results in `transformers`, in float64
lfm2_plain.gguf, lfm2_plain.golden   an encoder without the projector's norm, and without tiles; its intermediates
lfm2_vision_files.golden   `tiles.NAME`: its image processor's output for the PNG files of FOLDER, if given

Format as in tiny_models.py. Besides the intermediates of one picture of random numbers (`pixels`):
  tiles.WxH   what LFM2-VL's own image processor makes of the synthetic picture of vision.py: tiles of TILE x TILE, line
              by line, and the whole picture last, each [3 * height, width], one number after the other, [n, 1]
  shapes.WxH  [views, 2]: height and width in patches of each
  rows.WxH    the projector's rows of all of them
  talk.ids, talk.logits   words, the pictures of `talk.pictures` (width, height), words between and after them; the
              pictures' rows are -1, the words around views are not

Needs torch, torchvision, transformers, gguf, pillow.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models
from tools.golden.eyes import Watch, randomise, words
from tools.golden.vision import picture, write

# Sizes that are not multiples of any vector length; a table of 3 x 3 positions.
PATCH, SCALE, TILE, MOST_TILES = 5, 2, 30, 4
VISION = dict(
    hidden_size=36,
    intermediate_size=52,
    num_hidden_layers=3,
    num_attention_heads=3,
    patch_size=PATCH,
    num_patches=9,
)
TEXT = dict(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=3,
    num_attention_heads=3,
    num_key_value_heads=3,
    conv_L_cache=3,
    layer_types=["conv", "full_attention", "conv"],
    block_auto_adjust_ff_dim=False,
    max_position_embeddings=512,
    tie_word_embeddings=True,
)
SPECIALS = (
    "<|pad|>",
    "<|im_start|>",
    "<|im_end|>",
    "<image>",
    "<|image_start|>",
    "<|image_end|>",
    "<|img_thumbnail|>",
    *(f"<|img_row_{y}_col_{x}|>" for y in range(1, 5) for x in range(1, 5)),
)
IMAGE, START, END, WHOLE, FIRST_TILE = range(3, 8)
PIXELS = ((90, 61), (61, 90), (200, 20), (1, 50), (36, 36), (60, 54), (56, 59), (7, 5))
TALK = ((90, 61), (7, 5))  # the first is cut into tiles


def build(seed, **more):
    config = transformers.Lfm2VlConfig(
        vision_config=transformers.Siglip2VisionConfig(**VISION, vision_use_head=False),
        text_config=transformers.Lfm2Config(**TEXT),
        image_token_id=IMAGE,
        projector_hidden_size=44,
        downsample_factor=SCALE,
        **more,
    )
    # sdpa: its softmax stays in float64.
    model = transformers.Lfm2VlForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    return randomise(model, seed)


def inputs_of(processor, image):
    return processor(image, return_tensors="pt", return_row_col_info=True)


def features(model, inputs):
    out = model.model.get_image_features(
        inputs["pixel_values"].double(), inputs["spatial_shapes"], inputs["pixel_attention_mask"]
    ).pooler_output
    return [rows.detach() for rows in out]


def views(inputs):
    """Each view as planes, one number after the other."""
    parts = []
    for patches, (n_y, n_x) in zip(inputs["pixel_values"], inputs["spatial_shapes"].tolist()):
        grid = patches[: n_y * n_x].reshape(n_y, n_x, PATCH, PATCH, 3)
        parts.append(grid.permute(4, 0, 2, 1, 3).reshape(-1))
    return torch.cat(parts).reshape(-1, 1).numpy()


def run(model, pixels):
    """Every named intermediate, [rows, cols]."""
    tower, projector = model.model.vision_tower, model.model.multi_modal_projector
    tower = getattr(tower, "vision_model", tower)
    n_y, n_x = (side // PATCH for side in pixels.shape[1:])
    patches = pixels.reshape(3, n_y, PATCH, n_x, PATCH).permute(1, 3, 2, 4, 0).reshape(1, n_y * n_x, -1)
    with Watch() as watch, torch.no_grad():
        watch.keep("v.embd", tower.embeddings)
        watch.keep("v.post_ln", tower.post_layernorm)
        if projector.use_layer_norm:
            watch.keep("mm.shuffle", projector.layer_norm, before=True)
            watch.keep("mm.norm", projector.layer_norm)
        else:
            watch.keep("mm.shuffle", projector.linear_1, before=True)
        watch.keep("mm.1", projector.linear_1)
        for i, layer in enumerate(tower.encoder.layers):
            to, att = f"v.blk.{i}.", layer.self_attn
            watch.keep(to + "ln1", layer.layer_norm1)
            for name, module in (("q", att.q_proj), ("k", att.k_proj), ("v", att.v_proj)):
                watch.keep(to + name, module)
            watch.keep(to + "mix", att.out_proj, before=True)
            watch.keep(to + "mid", layer.layer_norm2, before=True)
            watch.keep(to + "ln2", layer.layer_norm2)
            watch.keep(to + "out", layer)
        rows = features(
            model,
            dict(
                pixel_values=patches,
                spatial_shapes=torch.tensor([[n_y, n_x]]),
                pixel_attention_mask=torch.ones(1, n_y * n_x, dtype=torch.long),
            ),
        )
    watch.seen["mm.2"] = rows[0].numpy()
    return watch.seen


def shown_as(inputs, rows):
    """Ids of a picture with the words around its views."""
    n_y, n_x = int(inputs["image_rows"][0]), int(inputs["image_cols"][0])
    out = [START]
    if n_y * n_x > 1:
        for i in range(n_y * n_x):
            out += [FIRST_TILE + i // n_x * MOST_TILES + i % n_x] + [IMAGE] * len(rows[i])
        out.append(WHOLE)
    return [*out, *[IMAGE] * len(rows[-1]), END]


def talk(model, processor, rng):
    more = lambda n: words(rng, n, len(SPECIALS), TEXT["vocab_size"])
    shown, ids = [], more(4)
    for size in TALK:
        shown.append(inputs_of(processor, Image.fromarray(picture(*size))))
        ids += shown_as(shown[-1], features(model, shown[-1])) + more(3)
    ids = torch.tensor([ids])
    whole = {
        key: torch.cat([inputs[key] for inputs in shown])
        for key in ("pixel_values", "spatial_shapes", "pixel_attention_mask")
    }
    whole["pixel_values"] = whole["pixel_values"].double()
    with torch.no_grad():
        out = model(input_ids=ids, attention_mask=torch.ones_like(ids), **whole)
    return {
        "talk.ids": np.where(ids[0].numpy() == IMAGE, -1, ids[0].numpy()).reshape(-1, 1),
        "talk.logits": out.logits[0].numpy(),
        "talk.pictures": np.array(TALK),
    }


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/lfm2_*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20250812)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    common = dict(downsample_factor=SCALE, encoder_patch_size=PATCH, min_image_tokens=4, max_image_tokens=16)
    tiled = dict(tile_size=TILE, min_tiles=2, max_tiles=MOST_TILES)
    processors = {
        "lfm2_vision": Lfm2VlImageProcessor(**common, **tiled),
        "lfm2_plain": Lfm2VlImageProcessor(**common, **tiled, do_image_splitting=False),
    }
    for name, processor in processors.items():
        model = build(args.seed, projector_use_layernorm=name == "lfm2_vision")
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            processor.save_pretrained(folder)
            tiny_models.write_tokenizer(Path(folder), SPECIALS, SPECIALS[2])
            called = "tiny random lfm2-vl"
            hf_to_gguf.convert_folder(folder, args.out / f"{name}.gguf", "f32", name=called, mmproj=True)
            if name == "lfm2_vision":
                hf_to_gguf.convert_folder(folder, args.out / "lfm2_text.gguf", "f32", name=called, pre="lfm2")
        model = model.double()
        # Wider than high; the table of positions is made larger along one side and smaller along the other.
        pixels = rng.standard_normal((3, 2 * PATCH, 8 * PATCH)).astype(np.float32)
        entries = {"pixels": pixels.reshape(-1, pixels.shape[-1]), **run(model, torch.tensor(pixels).double())}
        if name == "lfm2_vision":
            for width, height in PIXELS:
                inputs = inputs_of(processor, Image.fromarray(picture(width, height)))
                entries[f"tiles.{width}x{height}"] = views(inputs)
                entries[f"shapes.{width}x{height}"] = inputs["spatial_shapes"].numpy()
                with torch.no_grad():
                    entries[f"rows.{width}x{height}"] = torch.cat(features(model, inputs)).numpy()
            entries.update(talk(model, processor, rng))
        write(args.out / f"{name}.golden", entries)
    if args.images:
        files = {}
        for path in sorted(args.images.glob("*.png")):
            inputs = inputs_of(processors["lfm2_vision"], Image.open(path).convert("RGB"))
            files[f"tiles.{path.name}"] = views(inputs)
        write(args.out / "lfm2_vision_files.golden", files)


if __name__ == "__main__":
    main()
