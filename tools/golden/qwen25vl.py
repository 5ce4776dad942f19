#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/qwen25vl*: a tiny random Qwen2.5-VL with its reference numbers.

    tools/golden/qwen25vl.py [--out tests/golden/vision]

qwen25vl_merger.gguf  the encoder made by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32
qwen25vl.gguf         its language model
qwen25vl.golden       their results in `transformers`, in float64

Entries as in qwen2vl.py, whose image processor this family has, without its output; intermediates of blocks are window
by window.

Needs torch, transformers, gguf, pillow.
"""

import sys
from pathlib import Path

import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.golden import qwen2vl
from tools.golden.eyes import Watch, randomise

# Windows of 3 x 3 squares: most pictures have narrower ones at the right and at the bottom.
VISION = dict(
    depth=4,
    hidden_size=36,
    intermediate_size=52,
    num_heads=3,
    patch_size=qwen2vl.PATCH,
    window_size=3 * qwen2vl.FACTOR,
    fullatt_block_indexes=[1, 3],
    tokens_per_second=2,  # as released models have it
    out_hidden_size=48,
)


def build(seed):
    config = transformers.Qwen2_5_VLConfig(vision_config=VISION, text_config=qwen2vl.TEXT, **qwen2vl.IDS)
    model = transformers.Qwen2_5_VLForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    return randomise(model, seed)


def run(model, values, grid):
    """Every named intermediate, [rows, cols]."""
    tower = model.model.visual
    with Watch() as watch:
        watch.keep("v.embd", tower.patch_embed)
        watch.keep("v.post_ln", tower.merger.ln_q)
        watch.keep("mm.0", tower.merger.mlp[0])
        qwen2vl.watch_blocks(watch, tower.blocks)
        rows = qwen2vl.rows_of(model, values, grid)
    watch.seen["mm.2"] = rows  # back in the picture's order
    qwen2vl.split_blocks(watch, tower.blocks)
    return watch.seen


if __name__ == "__main__":
    qwen2vl.main("qwen25vl", "Qwen2.5-VL", build, run, pictures=False)
