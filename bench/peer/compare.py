#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second beside llama.cpp: the same file, the same threads, in turns.

    bench/peer/compare.py --peer PATH/llama-bench -m MODEL.gguf [-m ANOTHER] [-p 512] [-n 128] [-d 0,4096] [-t 2] [-r 5]
    bench/peer/compare.py --peer PATH/llama-bench -m MODEL.gguf -p 0 -n 64 -d 32768 --pot 2048 --policy streaming_llm

llama-bench is yours; nothing of llama.cpp is built or fetched here. A round runs weir and then llama-bench without and
with flash attention; each warms up and measures once, so that a slow minute of the machine meets all three. A row has
medians over the rounds and the ratio to the better of llama.cpp's two, as the median of the ratios within a round, with
the least and the largest. --pot and --policy are weir's: llama.cpp reads the whole context. Rows as JSON lines go to
--json FILE.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys


def numbers(text):
    return [int(word) for word in text.split(",")]


def run(command):
    """The rows a program prints as JSON lines."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(
            f"{' '.join(command)}: exit {done.returncode}: {(done.stderr.strip() or 'no message').splitlines()[-1]}"
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Case:
    """One model, one test, one depth."""

    def __init__(self, args, model, n_prompt, n_gen, depth):
        self.args, self.model, self.n_prompt, self.n_gen, self.depth = args, model, n_prompt, n_gen, depth
        self.weir, self.peer = [], {0: [], 1: []}
        self.bytes_per_token = 0

    def name(self):
        test = f"pp{self.n_prompt}" if self.n_prompt else f"tg{self.n_gen}"
        return test if self.depth == 0 else f"{test} @ {self.depth}"

    def shape(self):
        return ["-p", str(self.n_prompt), "-n", str(self.n_gen), "-d", str(self.depth), "-t", str(self.args.threads)]

    def round(self):
        command = [self.args.weir, "bench", "-m", self.model, "-r", "1", "-o", "jsonl"] + self.shape()
        if self.args.pot:
            command += ["--pot", str(self.args.pot), "--policy", self.args.policy]
        else:
            command += ["-c", str(self.depth + self.n_prompt + self.n_gen)]
        command += self.args.weir_flag
        row = run(command)[0]
        self.weir.append(row["tokens_per_s"])
        self.bytes_per_token = row["bytes_per_token"]
        for flash in self.args.flash_attn:
            command = [self.args.peer, "-m", self.model, "-r", "1", "-fa", str(flash), "-o", "jsonl"] + self.shape()
            self.peer[flash].append(run(command)[0]["avg_ts"])

    def row(self):
        peers = {flash: statistics.median(speeds) for flash, speeds in self.peer.items() if speeds}
        best = max(peers, key=peers.get)
        ratios = [mine / theirs for mine, theirs in zip(self.weir, self.peer[best])]
        return {
            "model": os.path.basename(self.model),
            "test": self.name(),
            "threads": self.args.threads,
            "policy": self.args.policy if self.args.pot else "full",
            "pot": self.args.pot,
            "rounds": len(ratios),
            "weir": statistics.median(self.weir),
            "peer_flash_off": peers.get(0),
            "peer_flash_on": peers.get(1),
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "largest": max(ratios),
            "gb_per_s": self.bytes_per_token * statistics.median(self.weir) / 1e9,
        }


def table_row(row):
    def speed(value):
        return "-" if value is None else f"{value:,.1f}"

    return (
        f"| {row['model']} | {row['test']} | {row['policy']} | {speed(row['weir'])} | {speed(row['peer_flash_off'])} | "
        f"{speed(row['peer_flash_on'])} | {row['ratio']:.2f} ({row['least']:.2f}-{row['largest']:.2f}) |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="llama-bench")
    parser.add_argument("--weir", default="build/release/weir", help="this project's program (default: %(default)s)")
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("-p", type=numbers, default=[512], help="prompt lengths; 0: none")
    parser.add_argument("-n", type=numbers, default=[128], help="tokens to write; 0: none")
    parser.add_argument("-d", type=numbers, default=[0], help="tokens already read")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=5)
    parser.add_argument(
        "--flash-attn", type=numbers, default=[0, 1], help="which of llama.cpp's settings (default: 0,1)"
    )
    parser.add_argument("--pot", type=int, default=0, help="weir's tokens kept; 0: all of them")
    parser.add_argument("--policy", default="streaming_llm")
    parser.add_argument("--weir-flag", action="append", default=[], help="a further word for weir bench")
    parser.add_argument("--json", help="append the rows to this file")
    args = parser.parse_args()
    print(
        "| model | test | weir's policy | weir t/s | llama.cpp | with flash attention | ratio to the better |\n"
        "|---|---|---|--:|--:|--:|--:|",
        flush=True,
    )
    for model in args.model:
        tests = [(p, 0) for p in args.p if p] + [(0, n) for n in args.n if n]
        for depth in args.d:
            for n_prompt, n_gen in tests:
                case = Case(args, model, n_prompt, n_gen, depth)
                for _ in range(args.rounds):
                    case.round()
                row = case.row()
                print(table_row(row), flush=True)
                if args.json:
                    with open(args.json, "a", encoding="utf-8") as out:
                        out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
