#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/qwen3vl*: a tiny random Qwen3-VL with its reference numbers.

    tools/golden/qwen3vl.py [--out tests/golden/vision]

qwen3vl_merger.gguf  the encoder made by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32
qwen3vl_deepstack.gguf   its language model
qwen3vl.golden       their results in `transformers`, in float64

Entries as in qwen2vl.py, whose image processor this family has, without its output. `mm.rows` and `rows.WxH` hold the
last block's merged rows, and beside them those of the earlier blocks.

Needs torch, transformers, gguf, pillow.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.golden import qwen2vl
from tools.golden.eyes import Watch, randomise

# A table of 7 x 7 positions: most pictures have more lines or fewer columns.
VISION = dict(
    depth=4,
    hidden_size=36,
    intermediate_size=52,
    num_heads=3,
    patch_size=qwen2vl.PATCH,
    num_position_embeddings=49,
    deepstack_visual_indexes=[0, 2],
    out_hidden_size=48,
)
# 8 pairs; those of lines and columns end before the last ones, which follow time.
TEXT = dict(
    qwen2vl.TEXT,
    num_hidden_layers=3,
    head_dim=16,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[4, 2, 2]),
)


def build(seed):
    config = transformers.Qwen3VLConfig(vision_config=VISION, text_config=TEXT, **qwen2vl.IDS)
    model = transformers.Qwen3VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    return randomise(model, seed)


def rows_of(model, values, grid):
    with torch.no_grad():
        out = model.model.get_image_features(values, grid)
    parts = [out.pooler_output, *out.deepstack_features]  # each of them one picture's
    return np.concatenate([part[0].numpy() for part in parts], axis=1)


def run(model, values, grid):
    """Every named intermediate, [rows, cols]."""
    tower = model.model.visual
    with Watch() as watch:
        watch.keep("v.embd", tower.blocks[0], before=True)
        watch.keep("v.post_ln", tower.merger.norm)
        watch.keep("mm.0", tower.merger.linear_fc1)
        for block, merger in zip(VISION["deepstack_visual_indexes"], tower.deepstack_merger_list):
            watch.keep(f"v.deepstack.{block}.norm", merger.norm)
            watch.keep(f"v.deepstack.{block}.fc1", merger.linear_fc1)
        qwen2vl.watch_blocks(watch, tower.blocks)
        rows = rows_of(model, values, grid)
    watch.seen["mm.rows"] = rows
    qwen2vl.split_blocks(watch, tower.blocks)
    return watch.seen


if __name__ == "__main__":
    half = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)
    qwen2vl.main("qwen3vl", "Qwen3-VL", build, run, rows_of, pictures=False, text="qwen3vl_deepstack", **half)
