#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes an mmproj file with random weights in the shape of a real vision encoder.

Speed and memory do not depend on the values of weights, so an encoder can be measured without the real one:

    tools/shapes/eyes.py siglip-400m --type f16 siglip.gguf
    build/release/bench/encode_bench siglip.gguf

llama.cpp reads the files too. With --type q8_0 matrices whose rows are no multiple of 32 stay F16, as llama.cpp's
converter leaves them. Needs the Python packages gguf and numpy.
"""

import argparse
from typing import NamedTuple

import gguf
import numpy as np


class Shape(NamedTuple):
    projector: str
    n_layers: int
    n_embd: int
    n_heads: int
    n_ff: int
    patch: int
    side: int  # pixels: of a picture, or of the largest
    merge: int  # patches along each side of what becomes one row
    n_out: int


SHAPES = {
    # Idefics3-8B's and SmolVLM's encoder, rows for a language model of 2,048 columns.
    "siglip-400m": Shape("idefics3", 27, 1152, 16, 4304, 14, 364, 2, 2048),
    "qwen2.5-vl-3b": Shape("qwen2.5vl_merger", 32, 1280, 16, 3420, 14, 448, 2, 2048),
    "qwen3-vl-2b": Shape("qwen3vl_merger", 24, 1024, 16, 4096, 16, 448, 2, 2048),
}
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
         "q8_0": gguf.GGMLQuantizationType.Q8_0}  # fmt: skip


class File:
    def __init__(self, path, kind, seed):
        self.out, self.kind, self.rng = (
            gguf.GGUFWriter(path, "clip", use_temp_file=True),
            kind,
            np.random.default_rng(seed),
        )

    def key(self, name, value):
        add = {bool: self.out.add_bool, int: self.out.add_uint32, float: self.out.add_float32, str: self.out.add_string}
        add.get(type(value), self.out.add_array)("clip." + name, value)

    def matrix(self, name, *shape):
        """Rows of the last dimension, as the products read them."""
        values = self.rng.standard_normal(shape, dtype=np.float32) * np.float32(shape[-1] ** -0.5)
        kind = self.kind
        if kind == TYPES["q8_0"] and shape[-1] % 32:
            kind = TYPES["f16"]
        self.out.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    def vector(self, name, n, value=0.0):
        self.out.add_tensor(name, np.full(n, value, dtype=np.float32))

    def linear(self, name, n_out, n_in):
        self.matrix(name + ".weight", n_out, n_in)
        self.vector(name + ".bias", n_out)

    def patches(self, name, s):
        """Convolutions stay in half precision."""
        values = self.rng.standard_normal((s.n_embd, 3, s.patch, s.patch), dtype=np.float32) * np.float32(0.02)
        self.out.add_tensor(name, values.astype(np.float16 if self.kind != TYPES["f32"] else np.float32))


def keys(file, s, name):
    file.out.add_name(name + " (random weights)")
    file.key("has_vision_encoder", True)
    file.key("projector_type", s.projector)
    for key, value in (("projection_dim", s.n_out), ("image_size", s.side), ("patch_size", s.patch),
                       ("embedding_length", s.n_embd), ("feed_forward_length", s.n_ff), ("block_count", s.n_layers),
                       ("attention.head_count", s.n_heads), ("attention.layer_norm_epsilon", 1e-6),
                       ("image_mean", [0.5] * 3), ("image_std", [0.5] * 3)):  # fmt: skip
        file.key("vision." + key, value)


def block(file, s, blk, gated, norm_bias):
    for norm in ("ln1", "ln2"):
        file.vector(f"{blk}{norm}.weight", s.n_embd, 1.0)
        if norm_bias:
            file.vector(f"{blk}{norm}.bias", s.n_embd)
    for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
        file.linear(blk + part, s.n_embd, s.n_embd)
    for part in ("ffn_gate", "ffn_up") if gated else ("ffn_up",):
        file.linear(blk + part, s.n_ff, s.n_embd)
    file.linear(blk + "ffn_down", s.n_embd, s.n_ff)


def idefics3(file, s):
    file.key("use_gelu", True)
    file.key("vision.projector.scale_factor", s.merge)
    file.key("vision.preproc_image_size", s.side)
    file.patches("v.patch_embd.weight", s)
    file.vector("v.patch_embd.bias", s.n_embd)
    file.out.add_tensor("v.position_embd.weight", np.zeros(((s.side // s.patch) ** 2, s.n_embd), dtype=np.float32))
    for layer in range(s.n_layers):
        block(file, s, f"v.blk.{layer}.", gated=False, norm_bias=True)
    file.vector("v.post_ln.weight", s.n_embd, 1.0)
    file.vector("v.post_ln.bias", s.n_embd)
    file.matrix("mm.model.fc.weight", s.n_out, s.n_embd * s.merge**2)


def any_size(file, s):
    file.key("vision.image_min_pixels", 4 * (s.patch * s.merge) ** 2)
    file.key("vision.image_max_pixels", s.side * s.side)
    file.patches("v.patch_embd.weight", s)
    file.patches("v.patch_embd.weight.1", s)


def qwen3vl(file, s):
    any_size(file, s)
    file.key("use_gelu", True)
    file.key("vision.spatial_merge_size", s.merge)
    added = [layer in (5, 11, 17) for layer in range(s.n_layers)]
    file.key("vision.is_deepstack_layers", added)
    file.vector("v.patch_embd.bias", s.n_embd)
    file.out.add_tensor("v.position_embd.weight", np.zeros((48 * 48, s.n_embd), dtype=np.float32))
    wide = s.n_embd * s.merge**2
    for layer in range(s.n_layers):
        block(file, s, f"v.blk.{layer}.", gated=False, norm_bias=True)
        if added[layer]:
            blk = f"v.deepstack.{layer}."
            file.vector(blk + "norm.weight", wide, 1.0)
            file.vector(blk + "norm.bias", wide)
            file.linear(blk + "fc1", wide, wide)
            file.linear(blk + "fc2", s.n_out, wide)
    file.vector("v.post_ln.weight", s.n_embd, 1.0)
    file.vector("v.post_ln.bias", s.n_embd)
    file.linear("mm.0", wide, wide)
    file.linear("mm.2", s.n_out, wide)


def qwen25vl(file, s):
    any_size(file, s)
    file.key("use_silu", True)
    file.key("vision.n_wa_pattern", 8)
    file.key("vision.window_size", 8 * s.patch)
    for layer in range(s.n_layers):
        block(file, s, f"v.blk.{layer}.", gated=True, norm_bias=False)
    file.vector("v.post_ln.weight", s.n_embd, 1.0)
    wide = s.n_embd * s.merge**2
    file.linear("mm.0", wide, wide)
    file.linear("mm.2", s.n_out, wide)


WRITERS = {"idefics3": idefics3, "qwen2.5vl_merger": qwen25vl, "qwen3vl_merger": qwen3vl}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out")
    parser.add_argument("--type", choices=TYPES, default="f16")
    parser.add_argument("--layers", type=int, help="instead of all")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    if args.layers:
        shape = shape._replace(n_layers=args.layers)
    file = File(args.out, TYPES[args.type], args.seed)
    keys(file, shape, args.shape)
    WRITERS[shape.projector](file, shape)
    file.out.write_header_to_file()
    file.out.write_kv_data_to_file()
    file.out.write_tensors_to_file()
    file.out.close()


if __name__ == "__main__":
    main()
