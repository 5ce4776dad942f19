#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rewrites a GGUF file with another weight type: metadata unchanged, matrices decoded and re-encoded.

    pip install gguf numpy
    tools/convert/requantize.py IN.gguf OUT.gguf --type f32|f16|bf16|q8_0|q4_0|q4_1|q5_0|q5_1

One-dimensional tensors (norms, biases) stay F32. Matrices whose row length is not a multiple of the type's block keep
their type. f32 is lossless: the exact values of the quantised file. Other types round already rounded values, so such
files are for comparing speed, not quality.
"""

import argparse

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, quants

TYPES = {
    name.lower(): GGMLQuantizationType[name] for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1")
}
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "bf16": 32}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("--type", choices=sorted(TYPES), required=True)
    args = parser.parse_args()
    reader = GGUFReader(args.input)
    writer = GGUFWriter(args.output, reader.fields["general.architecture"].contents())
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        if key == "general.file_type":
            writer.add_uint32(key, FILE_TYPES[args.type])
        elif field.types[0] == GGUFValueType.ARRAY:
            writer.add_key_value(key, field.contents(), GGUFValueType.ARRAY, sub_type=field.types[-1])
        else:
            writer.add_key_value(key, field.contents(), field.types[0])
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        values = quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(tensor.name, values)
            continue
        target = TYPES[args.type]
        try:
            data = quants.quantize(values, target)
        except quants.QuantError:
            target = tensor.tensor_type
            data = tensor.data
        writer.add_tensor(tensor.name, data, raw_dtype=target)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file(progress=True)
    writer.close()


if __name__ == "__main__":
    main()
