#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/quant/blocks.txt: blocks and floats converted by the reference package `gguf` (PyPI).

Usage: python3 tools/golden/quant.py            (needs: pip install gguf numpy)

Each format has random numbers of its own: a new one adds lines and changes no other.

Lines, fields separated by blanks, hex digits of little-endian bytes:
    decode TYPE BLOCKS FLOATS   BLOCKS decode to exactly FLOATS
    encode TYPE FLOATS BLOCKS   FLOATS encode to exactly BLOCKS (only formats whose encoder the package defines)
"""

import pathlib
import zlib

import numpy as np
from gguf import GGMLQuantizationType, quants
from gguf.constants import GGML_QUANT_SIZES

BLOCKED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]
BLOCKED += ["Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
BLOCKED += ["IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S", "TQ1_0", "TQ2_0", "NVFP4"]
ENCODED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]
# Byte offsets of the binary16 scales in a block; every other byte is arbitrary.
HALVES = {
    "Q8_0": [0],
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "MXFP4": [],
    "IQ3_S": [0],
    "IQ3_XXS": [0],
    "IQ2_S": [0],
    "IQ2_XS": [0],
    "IQ2_XXS": [0],
    "IQ1_M": [],
    "IQ1_S": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "NVFP4": [],
}
# Where a scale's four nibbles, the lowest first, are the upper ones of bytes.
NIBBLES = {"IQ1_M": [49, 51, 53, 55]}
# Formats that the package does not know: name -> (bytes of a block, blocks [n, bytes] -> float32 [n, elements]).
# Written from the format's definition, not from src/quant.
OWN = {}
SPECIAL_SCALES = np.array([0.0, -0.0, 5.9604645e-08, 6.0975552e-05, 1.0, 65504.0], dtype=np.float16)


def block_bytes(name):
    return OWN[name][0] if name in OWN else GGML_QUANT_SIZES[GGMLQuantizationType[name]][1]


def decode(name, blocks):
    return OWN[name][1](blocks) if name in OWN else quants.dequantize(blocks, GGMLQuantizationType[name])


def rng_of(*words):
    return np.random.default_rng([20240607, zlib.crc32(" ".join(words).encode())])


def decode_blocks(name, rng):
    """A few random blocks, then one per special scale; Q8_0 also walks all 256 codes."""
    size = block_bytes(name)
    n_random = 3
    blocks = rng.integers(0, 256, size=(n_random + 2, size), dtype=np.uint8)
    if name == "Q8_0":
        walk = np.zeros((8, size), dtype=np.uint8)
        walk[:, 2:] = np.arange(256, dtype=np.uint8).reshape(8, 32)
        blocks = np.concatenate([walk, blocks])
    for i, block in enumerate(blocks):

        def scale(i=i):
            random = np.float16(rng.normal() * 0.05)
            return np.array([rng.choice(SPECIAL_SCALES) if i >= len(blocks) - 2 else random], dtype="<f2")

        for offset in HALVES[name]:
            block[offset : offset + 2] = scale().view(np.uint8)
        for offsets in [NIBBLES[name]] if name in NIBBLES else []:
            bits = int(scale().view(np.uint16)[0])
            for n, offset in enumerate(offsets):
                block[offset] = (block[offset] & 0x0F) | (bits >> (4 * n) & 0x0F) << 4
    return blocks


def encode_inputs(rng):
    rows = [
        rng.normal(size=32) * 0.02,
        rng.normal(size=32) * 3 + 1,
        rng.uniform(0.5, 1.5, size=32),
        np.zeros(32),
        np.full(32, 0.75),
        np.concatenate([np.zeros(31), [-2.5]]),
        np.arange(32) - 16.0,
        rng.normal(size=32) * 1e-6,
    ]
    return np.array(rows, dtype=np.float32)


def hexed(array):
    return np.ascontiguousarray(array).tobytes().hex()


def main():
    lines = []
    for name in BLOCKED:
        blocks = decode_blocks(name, rng_of("decode", name))
        floats = decode(name, blocks).astype("<f4")
        lines += [f"decode {name} {hexed(b)} {hexed(f)}" for b, f in zip(blocks, floats)]
    rng = rng_of("plain")
    halves = rng.integers(0, 0x7C00, size=64).astype("<u2") | (rng.integers(0, 2, size=64).astype("<u2") << 15)
    lines.append(f"decode F16 {hexed(halves)} {hexed(halves.view('<f2').astype('<f4'))}")
    brains = rng.integers(0, 0x7F80, size=64).astype("<u2")
    values = quants.dequantize(brains.view(np.uint8), GGMLQuantizationType.BF16)
    lines.append(f"decode BF16 {hexed(brains)} {hexed(values.astype('<f4'))}")
    for name in ENCODED:
        inputs = encode_inputs(rng_of("encode", name))
        blocks = quants.quantize(inputs, GGMLQuantizationType[name])
        lines += [f"encode {name} {hexed(f.astype('<f4'))} {hexed(b)}" for f, b in zip(inputs, blocks)]
    floats = (rng.normal(size=64) * 10.0 ** rng.integers(-9, 6, size=64)).astype("<f4")
    with np.errstate(over="ignore"):
        lines.append(f"encode F16 {hexed(floats)} {hexed(floats.astype('<f2'))}")
    lines.append(f"encode BF16 {hexed(floats)} {hexed(quants.quantize(floats, GGMLQuantizationType.BF16))}")
    path = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden" / "quant" / "blocks.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    print(f"{path}: {len(lines)} lines")


if __name__ == "__main__":
    main()
