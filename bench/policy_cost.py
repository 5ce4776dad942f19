#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every policy costs in reading: processor time beside `streaming_llm`, with a pot that is full nearly always.

    bench/policy_cost.py -m MODEL.gguf [--pots 512,2048] [-n 6144] [-r 3] [--policies 'weir;h2o'] [-t 1] [--json FILE]

For each pot and round, every policy reads n random tokens in a process of its own (`weir bench --stream`), in an order
that turns. Its time is the user's and the system's time of that process, less that of one that reads a single token.
A row has the least time over the rounds, the ratio of the least times (1.05: 5 % more time than `streaming_llm`), and
the range of the ratios within a round. Processor time says the same on a machine that others use, but for caches and
memory that they take.
"""

import argparse
import json
import os
import re
import subprocess
import sys


def seconds(command):
    pid = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)],
    )
    _, status, usage = os.wait4(pid, 0)
    return usage.ru_utime + usage.ru_stime if status == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/release/weir", help="the program (default: %(default)s)")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--pots", default="512,2048")
    parser.add_argument("-n", "--tokens", type=int, default=6144)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--policies", help="separated by semicolons; default: all but `full`")
    parser.add_argument("--json", help="append the rows to this file")
    args = parser.parse_args()
    listed = subprocess.run([args.weir, "policies"], check=True, capture_output=True, text=True).stdout
    policies = args.policies.split(";") if args.policies else re.findall(r"^(\w+)$", listed, re.M)
    policies = ["streaming_llm", *(p for p in policies if p not in ("full", "streaming_llm"))]
    print("| pot | policy | processor s | / `streaming_llm` | least | largest |\n|--:|---|--:|--:|--:|--:|", flush=True)
    for pot in args.pots.split(","):

        def read(policy, n, pot=pot):
            run = [args.weir, "bench", "-m", args.model, "-t", str(args.threads), "--policy", policy, "--pot", pot]
            return seconds([*run, "--stream", str(n), "--every", str(n), "--stream-gen", "0"])

        taken = {policy: [] for policy in policies}
        for i in range(args.rounds):
            at = i * 7 % len(policies)
            for policy in policies[at:] + policies[:at]:
                whole, start = read(policy, args.tokens), read(policy, 1)
                if whole is None or start is None:
                    sys.exit(f"{policy}, pot {pot}: weir bench fails; run it by hand to see why")
                taken[policy].append(whole - start)
        base = taken["streaming_llm"]
        for policy in policies:
            ratios = [mine / its for mine, its in zip(taken[policy], base)]
            row = {
                "bench": "policy_cost",
                "model": os.path.basename(args.model),
                "pot": int(pot),
                "policy": policy,
                "tokens": args.tokens,
                "rounds": args.rounds,
                "threads": args.threads,
                "processor_s": min(taken[policy]),
                "ratio": min(taken[policy]) / min(base),
                "least": min(ratios),
                "largest": max(ratios),
            }
            print(
                f"| {pot} | `{policy}` | {row['processor_s']:.2f} | {row['ratio']:.3f} | {row['least']:.3f} "
                f"| {row['largest']:.3f} |",
                flush=True,
            )
            if args.json:
                with open(args.json, "a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
