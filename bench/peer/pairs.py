#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reading and writing beside llama.cpp as the package llama-cpp-python has it, in turns, on the same file.

    bench/peer/pairs.py -m MODEL.gguf [-p 512] [-n 32] [-t 2] [-r 4] [--weir build/release/weir]

Run it with the Python that has the package. A round runs `weir bench`, then the package with flash attention off and
on; of those the better one counts. The first round warms up and is not counted. Rows: medians of the rounds, and the
ratio of each round's pair with the least and the largest. WEIR_SIMD=AVX2 limits Weir, not the package, which has to be
built for the same instructions.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

try:
    import llama_cpp
except ImportError:
    sys.exit("pairs: needs the package llama-cpp-python (pip install llama-cpp-python)")


def peer(model, args):
    """(tokens a second read, written)."""
    model.reset()
    model._ctx.kv_cache_clear() if hasattr(model._ctx, "kv_cache_clear") else model._ctx.memory_clear(True)
    ids = [(7 * i + 300) % 30000 + 300 for i in range(args.prompt)]
    began = time.perf_counter()
    model.eval(ids)
    read = args.prompt / (time.perf_counter() - began)
    began = time.perf_counter()
    for i in range(args.tokens):
        model.eval([1000 + i])
    return read, args.tokens / (time.perf_counter() - began)


def weir(args, prompt, tokens):
    command = [args.weir, "bench", "-m", args.model, "-r", "1", "-o", "jsonl", "-p", str(prompt), "-n", str(tokens)]
    command += ["-d", "0", "-t", str(args.threads), "-c", str(args.prompt + args.tokens)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"pairs: {' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/release/weir", help="the program (default: %(default)s)")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--tokens", type=int, default=32)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=4)
    args = parser.parse_args()
    size = {"n_ctx": args.prompt + args.tokens + 8, "n_batch": args.prompt, "n_ubatch": args.prompt}
    threads = {"n_threads": args.threads, "n_threads_batch": args.threads}
    models = [
        llama_cpp.Llama(args.model, flash_attn=flash, verbose=False, **size, **threads) for flash in (False, True)
    ]
    rounds = []
    for i in range(args.rounds + 1):
        ours = weir(args, args.prompt, 0), weir(args, 0, args.tokens)
        off, on = (peer(model, args) for model in models)
        if i > 0:
            rounds.append((ours, tuple(max(pair) for pair in zip(off, on, strict=True))))
        print(
            f"round {i}: weir {ours[0]:.1f}, {ours[1]:.2f}; off {off[0]:.1f}, {off[1]:.2f}; on {on[0]:.1f}, {on[1]:.2f}"
        )
    print("| test | weir t/s | llama.cpp t/s | ratio | least | largest |\n|---|--:|--:|--:|--:|--:|")
    for at, what in enumerate((f"reading {args.prompt}", f"writing {args.tokens}")):
        ratios = [ours[at] / theirs[at] for ours, theirs in rounds]
        mine, theirs = (statistics.median(pair[side][at] for pair in rounds) for side in (0, 1))
        spread = f"{statistics.median(ratios):.2f} | {min(ratios):.2f} | {max(ratios):.2f}"
        print(f"| {what} | {mine:.1f} | {theirs:.1f} | {spread} |")


if __name__ == "__main__":
    main()
