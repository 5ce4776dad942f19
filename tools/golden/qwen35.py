#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/qwen35*: a tiny random Qwen3.5 with its reference numbers.

    tools/golden/qwen35.py [--out tests/golden/vision]

qwen35_merger.gguf  the encoder made by `transformers` from a fixed seed, converted by hf_to_gguf.py to F32
qwen35_axes.gguf    its language model, of whose four layers one attends
qwen35.golden       their results in `transformers`, in float64

Entries as in qwen3vl.py; no rows of earlier blocks. Needs torch, transformers, gguf, pillow.
"""

import sys
from pathlib import Path

import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.golden import qwen2vl
from tools.golden.eyes import Watch, randomise

VISION = dict(
    depth=2,
    hidden_size=36,
    intermediate_size=52,
    num_heads=3,
    patch_size=qwen2vl.PATCH,
    num_position_embeddings=49,
    out_hidden_size=48,
)
TEXT = dict(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=4,
    num_attention_heads=3,
    num_key_value_heads=1,
    head_dim=32,
    max_position_embeddings=512,
    tie_word_embeddings=False,
    linear_key_head_dim=32,
    linear_value_head_dim=32,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    bos_token_id=0,
    eos_token_id=2,
    rope_parameters=dict(
        rope_type="default",
        rope_theta=10000.0,
        partial_rotary_factor=0.5,
        mrope_section=[3, 3, 2],
        mrope_interleaved=True,
    ),
)


def build(seed):
    config = transformers.Qwen3_5Config(vision_config=VISION, text_config=TEXT, **qwen2vl.IDS)
    model = transformers.Qwen3_5ForConditionalGeneration._from_config(config, attn_implementation="sdpa")
    return randomise(model, seed)


def run(model, values, grid):
    """Every named intermediate, [rows, cols]."""
    tower = model.model.visual
    with Watch() as watch:
        watch.keep("v.embd", tower.blocks[0], before=True)
        watch.keep("v.post_ln", tower.merger.norm)
        watch.keep("mm.0", tower.merger.linear_fc1)
        watch.keep("mm.rows", tower.merger)
        qwen2vl.watch_blocks(watch, tower.blocks)
        qwen2vl.rows_of(model, values, grid)
    qwen2vl.split_blocks(watch, tower.blocks)
    return watch.seen


if __name__ == "__main__":
    half = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)
    qwen2vl.main("qwen35", "Qwen3.5", build, run, pictures=False, text="qwen35_axes", **half)
