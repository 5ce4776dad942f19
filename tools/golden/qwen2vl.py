#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/qwen2vl*: a tiny random Qwen2-VL with its reference numbers.

    tools/golden/qwen2vl.py [--out tests/golden/vision] [--images FOLDER]

qwen2vl_merger.gguf  the encoder made by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32
qwen2vl.gguf         its language model
qwen2vl.golden       their results in `transformers`, in float64
qwen2vl_files.golden `picture.NAME`: its image processor's output for the PNG files of FOLDER, if given

Format as in tiny_models.py. Besides the intermediates of one input of random numbers (`pixels`, [3 * height, width]):
  picture.WxH   what Qwen2-VL's own image processor makes of the synthetic picture of vision.py, put together
                again from its patches, [3 * height, width]
  rows.WxH      the encoder's rows of it
  text.ids, text.logits   words alone
  talk.ids, talk.pos, talk.logits   words, the pictures of `talk.pictures` (width, height), words between and after
                them; the pictures' rows are -1. Coordinates are [3, n].

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
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.golden import tiny_models
from tools.golden.eyes import Watch, randomise
from tools.golden.vision import picture, write

# Patches of 5 pixels, heads of 12 numbers: sizes that are not multiples of any vector length.
PATCH, MERGE = 5, 2
FACTOR, MIN_PIXELS, MAX_PIXELS = PATCH * MERGE, 4 * 100, 40 * 100
VISION = dict(depth=3, embed_dim=36, hidden_size=48, mlp_ratio=2, num_heads=3, patch_size=PATCH)
TEXT = dict(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=3,
    num_key_value_heads=3,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    bos_token_id=0,
    eos_token_id=2,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 3, 3]),
)
SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
START, END, IMAGE, VIDEO = range(3, 7)
SIZES = ((40, 30), (90, 61), (61, 90), (35, 45), (7, 9), (3, 200), (25, 25), (333, 97))
TALK = ((40, 30), (33, 71))
INPUT = (50, 30)


IDS = dict(
    image_token_id=IMAGE,
    video_token_id=VIDEO,
    vision_start_token_id=START,
    vision_end_token_id=END,
    tie_word_embeddings=False,
)


def build(seed):
    config = transformers.Qwen2VLConfig(vision_config=VISION, text_config=TEXT, **IDS)
    # sdpa: its softmax stays in float64, the eager one casts to float32.
    model = transformers.Qwen2VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    return randomise(model, seed)


def patches(pixels):
    """[3, height, width] to the model's input: patches square by square, each of two equal frames."""
    _, height, width = pixels.shape
    lines, columns = height // PATCH, width // PATCH
    x = pixels.reshape(3, lines // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH).transpose(1, 4, 2, 5, 0, 3, 6)
    x = np.repeat(x[:, :, :, :, :, None], 2, axis=5)
    return x.reshape(lines * columns, -1), np.array([[1, lines, columns]])


def pixels_of(values, grid):
    """The inverse: the processor's output as a picture."""
    _, lines, columns = (int(n) for n in grid)
    x = values.reshape(lines // MERGE, columns // MERGE, MERGE, MERGE, 3, 2, PATCH, PATCH)
    assert (x[..., 0, :, :] == x[..., 1, :, :]).all()
    return x[:, :, :, :, :, 0].transpose(4, 0, 2, 5, 1, 3, 6).reshape(3, lines * PATCH, columns * PATCH)


def watch_blocks(watch, blocks):
    for i, block in enumerate(blocks):
        for name, module, before in (
            ("ln1", block.norm1, False),
            ("qkv", block.attn.qkv, False),
            ("mix", block.attn.proj, True),
            ("mid", block.norm2, True),
            ("ln2", block.norm2, False),
            ("out", block, False),
        ):
            watch.keep(f"v.blk.{i}.{name}", module, before)


def split_blocks(watch, blocks):
    for i in range(len(blocks)):
        watch.split(f"v.blk.{i}.qkv", [f"v.blk.{i}.{name}" for name in "qkv"])


def rows_of(model, values, grid):
    """The encoder's rows of one picture."""
    with torch.no_grad():
        return model.model.get_image_features(values, grid).pooler_output[0].numpy()


def run(model, values, grid):
    """Every named intermediate, [rows, cols]."""
    tower = model.model.visual
    with Watch() as watch:
        watch.keep("v.embd", tower.patch_embed)
        watch.keep("v.post_ln", tower.merger.ln_q)
        watch.keep("mm.0", tower.merger.mlp[0])
        watch.keep("mm.2", tower.merger.mlp[2])
        watch_blocks(watch, tower.blocks)
        rows_of(model, values, grid)
    split_blocks(watch, tower.blocks)
    return watch.seen


def talk(model, processor, rng):
    """Words and pictures: ids, coordinates, logits."""
    words = lambda n: rng.integers(8, TEXT["vocab_size"], n).tolist()
    values, grids, ids = [], [], words(4)
    for width, height in TALK:
        shown = processor(Image.fromarray(picture(width, height)), return_tensors="pt")
        values.append(shown["pixel_values"])
        grids.append(shown["image_grid_thw"])
        n = int(shown["image_grid_thw"].prod()) // MERGE**2
        ids += [START] + [IMAGE] * n + [END] + words(3)
    ids, grid = torch.tensor([ids]), torch.cat(grids)
    kinds = (ids == IMAGE).int()
    with torch.no_grad():
        pos, _ = model.model.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=grid)
        out = model(
            input_ids=ids,
            pixel_values=torch.cat(values).double(),
            image_grid_thw=grid,
            mm_token_type_ids=kinds,
            attention_mask=torch.ones_like(ids),
        )
    shown = np.where(ids[0].numpy() == IMAGE, -1, ids[0].numpy()).reshape(-1, 1)
    return {
        "talk.ids": shown,
        "talk.pos": pos[:, 0].numpy(),
        "talk.logits": out.logits[0].numpy(),
        "talk.pictures": np.array(TALK),
    }


def main(name, called, build, run, rows=rows_of, pictures=True, text=None, **more):
    parser = argparse.ArgumentParser(description=f"Builds tests/golden/vision/{name}*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--images", type=Path, help="folder of PNG files")
    parser.add_argument("--seed", type=int, default=20240607)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    model, rng = build(args.seed), np.random.default_rng(args.seed)
    processor = Qwen2VLImageProcessorPil(
        patch_size=PATCH, size=dict(shortest_edge=MIN_PIXELS, longest_edge=MAX_PIXELS), **more
    )
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        processor.save_pretrained(folder)
        tiny_models.write_tokenizer(Path(folder), SPECIALS)
        tiny = f"tiny random {called}"
        hf_to_gguf.convert_folder(folder, args.out / f"{name}_merger.gguf", "f32", name=tiny, mmproj=True)
        hf_to_gguf.convert_folder(folder, args.out / f"{text or name}.gguf", "f32", name=tiny, pre="qwen2")
    model = model.double()
    pixels = rng.standard_normal((3, INPUT[1], INPUT[0])).astype(np.float32)
    values, grid = patches(pixels)
    entries = {"pixels": pixels.reshape(-1, INPUT[0]), **run(model, torch.tensor(values).double(), torch.tensor(grid))}
    for width, height in SIZES:
        shown = processor(Image.fromarray(picture(width, height)), return_tensors="pt")
        values, grid = shown["pixel_values"], shown["image_grid_thw"]
        whole = pixels_of(values.numpy(), grid[0])
        assert (patches(whole)[0] == values.numpy()).all()
        if pictures:
            entries[f"picture.{width}x{height}"] = whole.reshape(-1, whole.shape[2])
        entries[f"rows.{width}x{height}"] = rows(model, values.double(), grid)
    ids = torch.tensor([rng.integers(8, TEXT["vocab_size"], 40).tolist()])
    with torch.no_grad():
        entries["text.logits"] = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0].numpy()
    entries["text.ids"] = ids[0].numpy().reshape(-1, 1)
    entries.update(talk(model, processor, rng))
    write(args.out / f"{name}.golden", entries)
    if args.images:
        files = {}
        for path in sorted(args.images.glob("*.png")):
            shown = processor(Image.open(path), return_tensors="np")
            whole = pixels_of(shown["pixel_values"], shown["image_grid_thw"][0])
            files[f"picture.{path.name}"] = whole.reshape(-1, whole.shape[2])
        write(args.out / f"{name}_files.golden", files)


if __name__ == "__main__":
    main("qwen2vl", "qwen2vl", build, run)
