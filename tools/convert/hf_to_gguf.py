#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts a Hugging Face model folder to GGUF.

    tools/convert/hf_to_gguf.py FOLDER [-o OUT.gguf] [--outtype f16] [--mmproj]

FOLDER holds config.json, *.safetensors and the tokenizer's files. Tensor and key names, and the row order of q and k,
are those of llama.cpp's files, so the result loads there too. Needs the Python packages numpy and gguf (and
sentencepiece for a tokenizer.model). One file per architecture family: tools/convert/families/.
"""

import argparse
import os
import sys
from pathlib import Path

try:
    import gguf
    import numpy as np
except ImportError as e:
    sys.exit(f"hf_to_gguf: {e}; install it with: python3 -m pip install numpy gguf sentencepiece")

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import experts, families, vocab
from tools.convert.source import ConvertError, Source

Q = gguf.GGMLQuantizationType
F = gguf.LlamaFileType
OUTTYPES = {
    "f32": (Q.F32, F.ALL_F32),
    "f16": (Q.F16, F.MOSTLY_F16),
    "bf16": (Q.BF16, F.MOSTLY_BF16),
    "q8_0": (Q.Q8_0, F.MOSTLY_Q8_0),
    "q5_1": (Q.Q5_1, F.MOSTLY_Q5_1),
    "q5_0": (Q.Q5_0, F.MOSTLY_Q5_0),
    "q4_1": (Q.Q4_1, F.MOSTLY_Q4_1),
    "q4_0": (Q.Q4_0, F.MOSTLY_Q4_0),
}


def say(text):
    print(f"hf_to_gguf: {text}", file=sys.stderr)


def store_type(name, array, wanted):
    """Vectors (norms, biases, RoPE factors) and the routers of experts stay F32; convolution kernels and rows that do
    not divide into blocks become F16."""
    if array.ndim < 2 or ".ffn_gate_inp" in name or name.endswith(".bias"):
        return Q.F32
    stacked = "_exps." in name or name.endswith(("attn_k_b.weight", "attn_v_b.weight"))
    if array.ndim > 2 and not stacked:
        return wanted if wanted in (Q.F32, Q.F16) else Q.F16
    block = gguf.GGML_QUANT_SIZES[wanted][0]
    if array.shape[-1] % block:
        say(f"{name}: rows of {array.shape[-1]} do not divide into blocks of {block}; stored as f16")
        return Q.F16
    return wanted


def add(writer, name, array, wanted):
    if isinstance(array, experts.Mxfp4):
        return writer.add_tensor(name, np.ascontiguousarray(array.bytes), raw_dtype=Q.MXFP4)
    if not np.isfinite(array).all():
        raise ConvertError(f"{name}: has values that are not finite")
    kind = store_type(name, array, wanted)
    if kind == Q.F32:
        writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float32))
    elif kind == Q.F16:
        if np.abs(array).max(initial=0.0) > 65504.0:
            raise ConvertError(f"{name}: has values beyond f16; use --outtype bf16 or f32")
        writer.add_tensor(name, np.ascontiguousarray(array, dtype=np.float16))
    else:
        writer.add_tensor(
            name, gguf.quants.quantize(np.ascontiguousarray(array, dtype=np.float32), kind), raw_dtype=kind
        )


def convert_folder(folder, out, outtype="f16", pre=None, with_vocab=True, name=None, mmproj=False):
    """Writes `out`; raises ConvertError. The file gets its final name only when it is complete."""
    source = Source(folder)
    family = families.by_hf_name().get(source.hf_name)
    if family is None:
        raise ConvertError(
            f"architecture {source.hf_name} is not converted; known: " + ", ".join(sorted(families.by_hf_name()))
        )
    if mmproj and not hasattr(family, "MMPROJ_ARCH"):
        raise ConvertError(f"architecture {source.hf_name} has no vision encoder that is converted")
    if hasattr(family, "prepare"):
        family.prepare(source, mmproj)
    arch = family.MMPROJ_ARCH if mmproj else getattr(family, "gguf_arch", lambda _: family.GGUF_ARCH)(source)
    wanted, file_type = OUTTYPES[outtype]
    partial = Path(f"{out}.partial")
    writer = gguf.GGUFWriter(partial, arch, use_temp_file=True)
    try:
        writer.add_name(name or source.get("_name_or_path") or source.folder.resolve().name)
        writer.add_file_type(file_type)
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        (family.mmproj_metadata if mmproj else family.metadata)(source, writer, say)
        if with_vocab and not mmproj:
            vocab.write(source, writer, pre)
        for tensor, array in (family.mmproj_tensors if mmproj else family.tensors)(source):
            add(writer, tensor, array, wanted)
        if left := source.unused():
            raise ConvertError(f"{len(left)} tensors have no place in `{arch}`: " + ", ".join(left[:5]))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(description="Converts a Hugging Face model folder to GGUF.")
    parser.add_argument("folder", type=Path, help="folder with config.json, *.safetensors and tokenizer files")
    parser.add_argument("-o", "--outfile", type=Path, help="default: FOLDER/<folder name>-<outtype>.gguf")
    parser.add_argument("--outtype", choices=OUTTYPES, default="f16", help="type of the matrices (default f16)")
    parser.add_argument("--pre", help="name of the BPE pre-tokenizer when it cannot be recognised")
    parser.add_argument("--no-vocab", action="store_true", help="leave the tokenizer out")
    parser.add_argument(
        "--mmproj", action="store_true", help="convert the vision encoder and projector, not the language model"
    )
    parser.add_argument("--name", help="general.name of the file (default: the folder's name)")
    args = parser.parse_args()
    prefix = "mmproj-" if args.mmproj else ""
    out = args.outfile or args.folder / f"{prefix}{args.folder.resolve().name}-{args.outtype}.gguf"
    try:
        convert_folder(args.folder, out, args.outtype, args.pre, not args.no_vocab, args.name, args.mmproj)
    except (ConvertError, KeyError, OSError, ImportError) as e:
        sys.exit(f"hf_to_gguf: {e.args[0] if isinstance(e, ConvertError) else repr(e)}")
    print(out)


if __name__ == "__main__":
    main()
