#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds of a picture beside llama.cpp's encoder: the same mmproj file, the same threads, in turns.

    bench/peer/eyes.py --bench build/release/bench/encode_bench -m MODEL.gguf MMPROJ.gguf[:SIDE] ... [-t 2] [-r 5]

Needs the Python package llama-cpp-python (LLAMA_CPP_LIB_PATH says where its libraries are) and, for the peer, a
language model whose embeddings are as wide as the rows; its weights do not matter. A round runs encode_bench and then
llama.cpp without and with flash attention in processes of their own, each of which warms up and measures once, so that
a slow minute of the machine meets all. A row has medians over the rounds, and the ratio to the better of llama.cpp's
two as the median of the ratios within a round, with the least and the largest. SIDE is that of a square picture, for
encoders that take any size; both then see it unchanged if it is a multiple of the encoder's unit. Of a picture that
llama.cpp reads in several views the first is measured.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time


def peer(args):
    """One measurement of llama.cpp, in this process."""
    import llama_cpp
    import numpy as np
    from llama_cpp import mtmd_cpp as mtmd

    file, side = args.files[0].rsplit(":", 1)
    side = int(side)
    llama_cpp.llama_backend_init()
    options = llama_cpp.llama_model_default_params()
    options.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(args.model.encode(), options)
    params = mtmd.mtmd_context_params_default()
    params.use_gpu, params.n_threads, params.print_timings, params.warmup = False, args.threads, False, False
    params.flash_attn_type = 1 if args.peer == "flash" else 0
    context = mtmd.mtmd_init_from_file(file.encode(), model, params)
    if not context:
        sys.exit(f"llama.cpp refuses {file}")
    pixels = np.random.default_rng(1).integers(0, 256, (side, side, 3), np.uint8)
    data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    bitmap = mtmd.mtmd_bitmap_init(side, side, data)
    chunks = mtmd.mtmd_input_chunks_init()
    words = mtmd.mtmd_default_marker()
    text = mtmd.mtmd_input_text(words, len(words), True, True)
    if mtmd.mtmd_tokenize(context, chunks, ctypes.byref(text), (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap), 1) != 0:
        sys.exit("llama.cpp cannot read the picture")
    found = [mtmd.mtmd_input_chunks_get(chunks, i) for i in range(mtmd.mtmd_input_chunks_size(chunks))]
    found = [chunk for chunk in found if mtmd.mtmd_input_chunk_get_type(chunk) == 1]
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        if mtmd.mtmd_encode_chunk(context, found[0]) != 0:
            sys.exit("llama.cpp cannot encode the picture")
        seconds.append(time.monotonic() - began)
    print(json.dumps({"rows": mtmd.mtmd_input_chunk_get_n_tokens(found[0]), "seconds": seconds[-1]}))


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {last}")
    return json.loads(lines[-1])


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--bench", default="build/release/bench/encode_bench")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument("--peer", choices=("plain", "flash"), help=argparse.SUPPRESS)
    parser.add_argument("--json", help="file for the rows")
    args = parser.parse_args()
    if args.peer:
        return peer(args)
    rows = []
    print("| file | rows | weir, s | llama.cpp, s | with flash attention, s | ratio |\n|---|--:|--:|--:|--:|--:|")
    for file in args.files:
        path, _, side = file.partition(":")
        ours, theirs = [], {"plain": [], "flash": []}
        for _ in range(args.rounds):
            command = [args.bench, path, "-t", str(args.threads), "-r", "1"] + (["--side", side] if side else [])
            row = run(command)
            ours.append(row["seconds"])
            again = [sys.executable, os.path.abspath(__file__), f"{path}:{row['side']}", "-m", args.model]
            for kind, times in theirs.items():
                other = run([*again, "-t", str(args.threads), "--peer", kind])
                if other["rows"] != row["rows"]:
                    sys.exit(f"{path}: {row['rows']} rows, llama.cpp has {other['rows']}")
                times.append(other["seconds"])
        ratios = [min(a, b) / own for a, b, own in zip(theirs["plain"], theirs["flash"], ours)]
        medians = " | ".join(f"{statistics.median(times):.3f}" for times in (ours, theirs["plain"], theirs["flash"]))
        print(f"| {row['file']} | {row['rows']} | {medians} | {spread(ratios)} |", flush=True)
        rows.append({"file": row["file"], "side": row["side"], "rows": row["rows"], "weir": ours, **theirs})
    if args.json:
        with open(args.json, "w") as out:
            json.dump(rows, out)


if __name__ == "__main__":
    main()
