#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/rope/inv_freq.json: inverse frequencies and magnitudes of every scaling kind of rotary embedding,
as the `transformers` package computes them, with the configuration in the terms of src/ops/rope.h.

    pip install transformers torch
    tools/golden/rope.py tests/golden/rope/inv_freq.json
"""

import json
import math
import sys

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS


def llama3_factors(n_rot, base, scaling):
    """The divisors that GGUF files carry as `rope_freqs.weight`, from the four numbers of a llama3 configuration."""
    factors = []
    for i in range(0, n_rot, 2):
        wavelength = 2 * math.pi * base ** (i / n_rot)
        turns = scaling["original_max_position_embeddings"] / wavelength
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        if turns > high:
            factors.append(1.0)
        elif turns < low:
            factors.append(scaling["factor"])
        else:
            smooth = (turns - low) / (high - low)
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return factors


def case(name, head_dim, base, rotary=1.0, n_positions=4096, **scaling):
    n_rot = int(head_dim * rotary)
    kind = scaling.get("rope_type", "default")
    config = LlamaConfig(
        hidden_size=head_dim * 4,
        num_attention_heads=4,
        head_dim=head_dim,
        max_position_embeddings=131072,
        rope_parameters={"rope_theta": base, "partial_rotary_factor": rotary, **scaling},
    )
    weir = {"n_rot": n_rot, "freq_base": base, "n_positions": n_positions}
    if kind == "default":
        inv_freq = [1.0 / base ** (i / n_rot) for i in range(0, n_rot, 2)]
        magnitude = 1.0
    else:
        tensor, magnitude = ROPE_INIT_FUNCTIONS[kind](config, device="cpu", seq_len=n_positions)
        inv_freq = tensor.tolist()
    if kind == "linear":
        weir |= {"scaling": "linear", "factor": scaling["factor"]}
    if kind == "yarn":
        weir |= {
            "scaling": "yarn",
            "factor": scaling["factor"],
            "original_context": scaling["original_max_position_embeddings"],
            "beta_fast": scaling.get("beta_fast", 32),
            "beta_slow": scaling.get("beta_slow", 1),
        }
    if kind == "llama3":
        weir |= {"freq_factors": llama3_factors(n_rot, base, scaling)}
    if kind == "longrope":
        weir |= {
            "scaling": "longrope",
            "original_context": scaling["original_max_position_embeddings"],
            "freq_factors": scaling["short_factor"],
            "freq_factors_long": scaling["long_factor"],
            "attn_factor": magnitude,  # files store the final value
        }
    return {"name": name, "config": weir, "inv_freq": inv_freq, "magnitude": float(magnitude)}


def main():
    short = [1.0 + 0.01 * i for i in range(48)]
    long = [1.05 + 0.9 * i for i in range(48)]
    phi3 = dict(
        rope_type="longrope", short_factor=short, long_factor=long, original_max_position_embeddings=4096, factor=32.0
    )
    cases = [
        case("plain", 64, 10000.0),
        case("partial", 80, 10000.0, rotary=0.25),
        case("linear", 128, 10000.0, rope_type="linear", factor=8.0),
        case("yarn", 128, 1000000.0, rope_type="yarn", factor=4.0, original_max_position_embeddings=32768),
        case(
            "yarn_betas",
            64,
            10000.0,
            rope_type="yarn",
            factor=16.0,
            original_max_position_embeddings=4096,
            beta_fast=24,
            beta_slow=2,
        ),
        case("yarn_short", 16, 10000.0, rope_type="yarn", factor=2.0, original_max_position_embeddings=64),
        case(
            "llama3_1b",
            64,
            500000.0,
            rope_type="llama3",
            factor=32.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=8192,
        ),
        case("longrope_short", 96, 10000.0, n_positions=4096, **phi3),
        case("longrope_long", 96, 10000.0, n_positions=4097, **phi3),
    ]
    with open(sys.argv[1], "w") as f:
        json.dump({"cases": cases}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
