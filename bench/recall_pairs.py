#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What recall costs while nobody asks: the same tokens read with it and without, in turns.

    bench/recall_pairs.py -m MODEL.gguf [--pot 1024] [--policy weir] [--tokens 32768] [-t 2] [-r 9]

A round runs `weir bench --stream` twice, in alternating order. Rows are the medians of both, and the ratio of reading
rates (on / off) as the median of the ratios within a round, with the least and the largest: other load on the machine
then affects both alike. The first round warms up and is not counted. --json FILE appends the row.
"""

import argparse
import json
import statistics
import subprocess
import sys


def reads(args, recall):
    """(tokens per second, bytes written to the archive) of one run."""
    command = [args.weir, "bench", "-m", args.model, "--policy", args.policy, "--pot", str(args.pot)]
    command += ["--stream", str(args.tokens), "--every", str(args.tokens), "--stream-gen", "0", "-o", "jsonl"]
    command += ["-t", str(args.threads)] + (["--recall", args.recall] if recall else [])
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    row = json.loads(done.stdout.splitlines()[-1])
    return row["read_tokens_per_s"], row.get("archive_bytes", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/release/weir", help="the program (default: %(default)s)")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--policy", default="weir")
    parser.add_argument("--pot", type=int, default=1024)
    parser.add_argument("--recall", default="words")
    parser.add_argument("--tokens", type=int, default=32768, help="read in every run (default: %(default)s)")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=9)
    parser.add_argument("--json", help="append the row to this file")
    args = parser.parse_args()
    on, off, ratios, written = [], [], [], 0
    for i in range(args.rounds + 1):
        figures = {}
        for recall in (False, True) if i % 2 else (True, False):
            figures[recall], n_bytes = reads(args, recall)
            written = max(written, n_bytes)
        print(f"round {i}: off {figures[False]:.1f}, on {figures[True]:.1f} tokens/s", file=sys.stderr, flush=True)
        if i > 0:
            on.append(figures[True])
            off.append(figures[False])
            ratios.append(figures[True] / figures[False])
    row = {
        "bench": "recall_pairs",
        "model": args.model.rsplit("/", 1)[-1],
        "policy": args.policy,
        "pot": args.pot,
        "recall": args.recall,
        "tokens": args.tokens,
        "rounds": args.rounds,
        "off_tokens_per_s": statistics.median(off),
        "on_tokens_per_s": statistics.median(on),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "largest": max(ratios),
        "archive_bytes_per_token": written / args.tokens,
    }
    print("| off t/s | on t/s | on / off | least | largest | bytes written per token |\n|--:|--:|--:|--:|--:|--:|")
    print(
        f"| {row['off_tokens_per_s']:.1f} | {row['on_tokens_per_s']:.1f} | {row['ratio']:.4f} | {row['least']:.4f} | "
        f"{row['largest']:.4f} | {row['archive_bytes_per_token']:.2f} |"
    )
    if args.json:
        with open(args.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
