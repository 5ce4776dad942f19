#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time from a program's start to its first token and to its end, beside llama.cpp: the same file, the same threads, in
turns.

    bench/peer/start.py --peer 'PATH/llama-simple -m {model} -n 1 {prompt}' -m MODEL.gguf [-m ANOTHER] [-t 2] [-r 9]
        [--kinds plain,keeps,mapped] [--packed FOLDER] [--cold] [--pause 0]

--peer is a command of yours that reads {prompt} and writes one token; nothing of llama.cpp is built or fetched here. A
round runs every kind of start and the peer once each, in an order that turns: `plain` packs the weights in memory,
`keeps` also leaves them in the folder (which is emptied before), `mapped` finds them there. The file is in the page
cache, or with --cold neither it nor packed weights are (the pages are dropped with posix_fadvise; needs no rights).

The first token: until the last bytes that the program writes to its standard output. A row has medians over the rounds,
the ratio as the median of peer / weir within a round, with the least and the largest, and the largest resident memory.
--pause: idle seconds before each run; some virtual machines give free memory back to their host after two, and a first
start then has to get it again. Rows as JSON lines go to --json FILE.
"""

import argparse
import json
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time

PROMPT = "The history of the river begins"


def run(command):
    """(seconds until the last output, until the end, largest resident bytes, processor seconds)."""
    ours, theirs = os.pipe()
    began = time.monotonic()
    pid = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, theirs, 1),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
    )
    os.close(theirs)
    last = began
    while os.read(ours, 1 << 16):
        last = time.monotonic()
    os.close(ours)
    _, status, usage = os.wait4(pid, 0)
    seconds = time.monotonic() - began
    if status != 0:
        sys.exit(f"{shlex.join(command)}: exit {os.waitstatus_to_exitcode(status)}; run it by hand to see why")
    return last - began, seconds, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def drop_pages(paths):
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="command with {model} and {prompt}")
    parser.add_argument("--weir", default="build/release/weir", help="this project's program (default: %(default)s)")
    parser.add_argument("-m", "--model", action="append", required=True)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=9)
    parser.add_argument("--kinds", default="plain,keeps,mapped", help="default: %(default)s")
    parser.add_argument("--packed", help="where to make the folder of packed weights (default: beside the model)")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--json", help="append the rows to this file")
    args = parser.parse_args()
    kinds = args.kinds.split(",")
    print(
        "| model | start | first token s | peer s | peer / weir | end s | peer s | processor s | peer s | MiB | peer |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for model in args.model:
        mine = [args.weir, "run", "-m", model, "-t", str(args.threads), "-c", "512", "-n", "1", "--temp", "0"]
        mine += ["-p", PROMPT]
        theirs = [word.format(model=model, prompt=PROMPT) for word in shlex.split(args.peer)]
        with tempfile.TemporaryDirectory(dir=args.packed or os.path.dirname(model) or ".") as folder:
            full, empty = os.path.join(folder, "full"), os.path.join(folder, "empty")
            commands = {
                "plain": mine,
                "keeps": [*mine, "--packed", empty],
                "mapped": [*mine, "--packed", full],
                "peer": theirs,
            }
            for kind in ("peer", "mapped"):
                run(commands[kind])
            taken = {kind: [] for kind in [*kinds, "peer"]}
            order = [*kinds, "peer"]
            for i in range(args.rounds):
                for kind in order[i % len(order) :] + order[: i % len(order)]:
                    shutil.rmtree(empty, ignore_errors=True)
                    if args.cold:
                        drop_pages([model, *(os.path.join(full, name) for name in os.listdir(full))])
                    time.sleep(args.pause)
                    taken[kind].append(run(commands[kind]))
                    if kind == "keeps" and not any(name.endswith(".packed") for name in os.listdir(empty)):
                        sys.exit(f"{shlex.join(commands[kind])} left no packed weights")
        peer = taken["peer"]
        for kind in kinds:
            ratios = [p[0] / w[0] for w, p in zip(taken[kind], peer)]
            row = {
                "model": os.path.basename(model),
                "start": kind,
                "cold": args.cold,
                "pause": args.pause,
                "threads": args.threads,
                "rounds": args.rounds,
                "ratio": statistics.median(ratios),
                "least": min(ratios),
                "largest": max(ratios),
            }
            for side, rows in (("weir", taken[kind]), ("peer", peer)):
                row[f"{side}_first_token_s"] = statistics.median(r[0] for r in rows)
                row[f"{side}_end_s"] = statistics.median(r[1] for r in rows)
                row[f"{side}_resident_bytes"] = max(r[2] for r in rows)
                row[f"{side}_processor_s"] = statistics.median(r[3] for r in rows)
            print(
                f"| {row['model']} | {kind} | {row['weir_first_token_s']:.3f} | {row['peer_first_token_s']:.3f} "
                f"| {row['ratio']:.2f} ({row['least']:.2f}-{row['largest']:.2f}) "
                f"| {row['weir_end_s']:.3f} | {row['peer_end_s']:.3f} "
                f"| {row['weir_processor_s']:.2f} | {row['peer_processor_s']:.2f} "
                f"| {row['weir_resident_bytes'] / 2**20:.0f} | {row['peer_resident_bytes'] / 2**20:.0f} |",
                flush=True,
            )
            if args.json:
                with open(args.json, "a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
