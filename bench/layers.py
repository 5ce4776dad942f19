#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model file with another number of layers, to measure drafts where no second model of a family is at hand.

    bench/layers.py IN.gguf OUT.gguf -n 8               the first 8 layers with the model's head: a poor but real draft
    bench/layers.py IN.gguf OUT.gguf -n 270 --share 0   more layers, which add nothing: a large model that writes what
                                                        IN writes, so that IN is a draft that is always right
    bench/layers.py IN.gguf OUT.gguf -n 270 --share 0.01  the same with layers that add a hundredth of what those they
                                                        are copied from add, so that IN is wrong at times

Needs the package gguf. Output matrices of added layers must be Q4_0, Q4_1, Q8_0 or F16, whose numbers are scaled in
place.
"""

import argparse
import re

import gguf
import numpy as np

BLOCK_BYTES = {"Q4_0": (18, 1), "Q4_1": (20, 2), "Q8_0": (34, 1), "F16": (2, 1)}  # and its scales, F16 at its beginning


def scaled(tensor, share):
    name = tensor.tensor_type.name
    if name not in BLOCK_BYTES:
        raise SystemExit(f"{tensor.name} is {name}; expected one of {', '.join(BLOCK_BYTES)}")
    n_bytes, n_scales = BLOCK_BYTES[name]
    blocks = tensor.data.copy().view(np.uint8).reshape(-1, n_bytes)
    scales = blocks[:, : 2 * n_scales].copy().view(np.float16)
    blocks[:, : 2 * n_scales] = (scales.astype(np.float32) * share).astype(np.float16).view(np.uint8)
    return blocks.reshape(-1).view(tensor.data.dtype).reshape(tensor.data.shape)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("out")
    parser.add_argument("-n", "--layers", type=int, required=True)
    parser.add_argument("--share", type=float, default=0.0, help="of what an added layer adds (default: %(default)s)")
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.source)
    arch = reader.fields["general.architecture"].contents()
    n_had = int(reader.fields[f"{arch}.block_count"].contents())
    writer = gguf.GGUFWriter(args.out, arch)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value = args.layers if field.name == f"{arch}.block_count" else field.contents()
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub)
    layers = [[] for _ in range(n_had)]
    for tensor in reader.tensors:
        if match := re.match(r"blk\.(\d+)\.(.*)", tensor.name):
            layers[int(match[1])].append((match[2], tensor))
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for i in range(args.layers):
        for name, tensor in layers[i % n_had]:
            adds = name in ("attn_output.weight", "ffn_down.weight")
            data = scaled(tensor, args.share) if i >= n_had and adds else tensor.data
            writer.add_tensor(f"blk.{i}.{name}", data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
