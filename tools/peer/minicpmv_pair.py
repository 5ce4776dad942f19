#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tests' tiny MiniCPM-V pair in shapes that llama.cpp takes, for tools/peer/vision.py.

    tools/peer/minicpmv_pair.py MODEL.gguf MMPROJ.gguf

llama.cpp wants of Qwen2 as many values in all heads as in a row, of the encoder a table of 70 x 70 positions, whatever
the file says, and the resampler's queries in F32. What changes its shape is random; all else is the tests' files. Needs
the Python packages gguf and numpy.
"""

import sys
from pathlib import Path

import gguf
import numpy as np

VISION = Path(__file__).resolve().parents[2] / "tests/golden/vision"
MADE_BY_WRITER = ("general.architecture", "GGUF.version", "GGUF.tensor_count", "GGUF.kv_count")


def copy(name, path, left_out, change):
    """name without the keys `left_out`; change(tensor's name, values) gives a tensor's new values."""
    source = gguf.GGUFReader(VISION / name)
    out = gguf.GGUFWriter(path, source.fields["general.architecture"].contents())
    for key, field in source.fields.items():
        if key not in MADE_BY_WRITER and key not in left_out:
            of_items = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            out.add_key_value(key, field.contents(), field.types[0], sub_type=of_items)
    for tensor in source.tensors:
        out.add_tensor(tensor.name, np.ascontiguousarray(change(tensor.name, tensor.data)))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    lot = np.random.default_rng(5)

    def text(name, values):
        n_kv, n = 128, 256  # 2 and 4 heads of 64
        rows = {"attn_q": n, "attn_k": n_kv, "attn_v": n_kv, "attn_output": n}.get(name.split(".")[-2])
        if rows is None:
            return values
        if values.ndim == 1:
            return lot.standard_normal(rows, dtype=np.float32) * 0.1
        return (lot.standard_normal((rows, n), dtype=np.float32) * 0.08).astype(np.float16)

    def eye(name, values):
        if name == "v.position_embd.weight":
            return lot.standard_normal((70 * 70, values.shape[1]), dtype=np.float32).astype(values.dtype)
        return values.astype(np.float32) if name in ("resampler.query", "resampler.pos_embed_k") else values

    heads = [f"qwen2.{key}" for key in ("attention.key_length", "attention.value_length", "rope.dimension_count")]
    copy("minicpmv_text.gguf", sys.argv[1], heads, text)
    copy("minicpmv.gguf", sys.argv[2], (), eye)


if __name__ == "__main__":
    main()
