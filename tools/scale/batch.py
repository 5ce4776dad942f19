#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A batch job over novels on Ray with one worker and with several, and how the work divides.

    tools/scale/batch.py MODEL TEXTS.txt.zst TEXTS.tsv [-n 36] [--workers 2] [--pot 1024]

TEXTS.tsv names the novels, with the offset and the bytes of each. On a machine with other work on it the time by the
clock says little, so that the job's processor time is told as well: of all files, and of the worker with the most. With
W workers that have processors of their own, the job takes as long as that worker. Needs ray and zstd.
"""

import argparse
import csv
import os
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import ray
import weir.ray


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("texts")
    parser.add_argument("list")
    parser.add_argument("-n", type=int, default=36)
    parser.add_argument("--bytes", type=int, default=1 << 40, help="of each novel, at most")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--pot", type=int, default=1024)
    args = parser.parse_args()
    text = subprocess.run(["zstd", "-dc", args.texts], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        with open(args.list) as rows:
            for row in list(csv.DictReader(rows, delimiter="\t"))[: args.n]:
                begin = int(row["offset"])
                (Path(folder) / f"{row['name']}.txt").write_bytes(
                    text[begin : begin + min(args.bytes, int(row["bytes"]))]
                )
        ray.init(num_cpus=args.workers, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
        answers, alone = {}, 0.0
        for workers in (1, args.workers):
            began = time.monotonic()
            rows = weir.ray.ask_files(
                folder,
                "Who tells this story?",
                model=os.path.abspath(args.model),
                workers=workers,
                pot=args.pot,
                ask={"max_tokens": 30, "temperature": 0, "ignore_end": True},
            ).take_all()
            by_worker = Counter()
            for row in rows:
                by_worker[row["pid"]] += row["cpu_seconds"]
                if row["error"] or answers.setdefault(row["path"], row["answer"]) != row["answer"]:
                    raise SystemExit(f"WRONG {row['path']}: {row['error'] or 'another answer'}")
            total, most = sum(by_worker.values()), max(by_worker.values())
            alone = alone or total
            print(
                f"{workers} worker{'s' * (workers > 1)}: {len(rows)} files, {sum(r['seen'] for r in rows)} tokens; "
                f"processor {total:.1f} s, of the worker with the most {most:.1f} s: {alone / most:.2f} times as fast; "
                f"by the clock {time.monotonic() - began:.1f} s, start of the workers included",
                flush=True,
            )


if __name__ == "__main__":
    main()
