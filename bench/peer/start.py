#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time from a program's start to its first token and its end, beside llama.cpp: the same file, the same threads, in
turns.

    bench/peer/start.py --peer 'PATH/llama-simple -m {model} -n 1 {prompt}' -m MODEL.gguf [-m ANOTHER] [-t 2] [-r 9]
        [--packed FOLDER]

--peer is a command of yours that reads {prompt} and writes one token; nothing of llama.cpp is built or fetched here. A
round runs weir and then the peer, each from nothing to its end, with the file in the page cache: what is measured is
opening the file, preparing the weights, reading the prompt and one token. A row has medians over the rounds, the ratio
as the median of the ratios within a round, with the least and the largest, and the largest resident memory of each
program. With --packed, weir maps weights that it packed in the warm-up. Rows as JSON lines go to --json FILE.
"""

import argparse
import json
import os
import shlex
import statistics
import sys
import time

PROMPT = "The history of the river begins"


def run(command):
    """(seconds, largest resident bytes) of a program that ends well."""
    began = time.monotonic()
    pid = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
    )
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    if status != 0:
        sys.exit(f"{shlex.join(command)}: exit {os.waitstatus_to_exitcode(status)}; run it by hand to see why")
    return seconds, usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="command with {model} and {prompt}")
    parser.add_argument("--weir", default="build/release/weir", help="this project's program (default: %(default)s)")
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=9)
    parser.add_argument("--packed", help="folder for weights that a later start maps")
    parser.add_argument("--json", help="append the rows to this file")
    args = parser.parse_args()
    print("| model | weir s | peer s | peer / weir | weir MiB | peer MiB |\n|---|--:|--:|--:|--:|--:|", flush=True)
    for model in args.model:
        mine = [
            args.weir,
            "run",
            "-m",
            model,
            "-t",
            str(args.threads),
            "-c",
            "512",
            "-n",
            "1",
            "--temp",
            "0",
            "-p",
            PROMPT,
        ]
        if args.packed:
            mine += ["--packed", args.packed]
        theirs = [word.format(model=model, prompt=PROMPT) for word in shlex.split(args.peer)]
        run(mine), run(theirs)
        rounds = [(run(mine), run(theirs)) for _ in range(args.rounds)]
        seconds = [statistics.median(r[side][0] for r in rounds) for side in (0, 1)]
        resident = [max(r[side][1] for r in rounds) for side in (0, 1)]
        ratios = [theirs[0] / mine[0] for mine, theirs in rounds]
        row = {
            "model": os.path.basename(model),
            "threads": args.threads,
            "rounds": args.rounds,
            "weir_s": seconds[0],
            "peer_s": seconds[1],
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "largest": max(ratios),
            "weir_resident_bytes": resident[0],
            "peer_resident_bytes": resident[1],
        }
        print(
            f"| {row['model']} | {row['weir_s']:.3f} | {row['peer_s']:.3f} | {row['ratio']:.2f} "
            f"({row['least']:.2f}-{row['largest']:.2f}) | "
            f"{resident[0] / 2**20:.0f} | {resident[1] / 2**20:.0f} |",
            flush=True,
        )
        if args.json:
            with open(args.json, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
