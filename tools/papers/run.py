#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a table or figure of the four papers, or lists them all with their state.

    scripts/paper --list                    every table and figure: made, partly, not made, drawing
    scripts/paper NAME [OPTIONS]            makes one, prints its table, leaves rows and pictures in --out
    scripts/paper NAME --dry-run            only prints the commands

--model, --mmproj and --data are the paper's, where you have them: sizes are then as published. Without them the models
of this tree and smaller sizes stand in. --text is a long text (scripts/fetch-book); --data is a file of LongBench's
samples, or a folder of questions about pictures (docs/evaluation.md). Rows that exist are not made again: remove them
to measure anew. docs/results/papers.md has our figures beside theirs.
"""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.papers import ENTRIES
from tools.papers.entry import ROOT, STATES, Setting

NEEDS = {
    "text": ("text", "a long text: --text FILE (scripts/fetch-book)"),
    "longbench": ("data", "LongBench's samples: --data FILE.jsonl (docs/evaluation.md)"),
}


def listing(entries):
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        print(f"{entry.name:{width}}  {entry.state:8}  {entry.what}")
        if entry.differs:
            print(f"{'':{width}}  {'':8}  ({entry.differs})")
    print(", ".join(f"{sum(entry.state == state for entry in entries)} {state}" for state in STATES), file=sys.stderr)


def make(entry, setting, dry_run):
    for step in entry.steps(setting):
        shown = " ".join([*(f"{key}={shlex.quote(value)}" for key, value in step.env.items()), shlex.join(step.argv)])
        print(f"$ {shown}{f' > {step.rows}' if step.rows else ''}", file=sys.stderr, flush=True)
        if dry_run or (step.rows and step.rows.exists()):
            continue
        target = step.rows.with_suffix(".part") if step.rows else None
        with target.open("w") if target else open(os.dup(1), "w") as output:
            status = subprocess.run(step.argv, cwd=ROOT, env={**os.environ, **step.env}, stdout=output, check=False)
        if status.returncode:
            raise SystemExit(f"{entry.name}: stopped with status {status.returncode}: {shown}")
        if target:
            target.rename(step.rows)


def main():
    parser = argparse.ArgumentParser(
        prog="scripts/paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="a name of --list")
    parser.add_argument("--list", action="store_true", help="name every table and figure")
    parser.add_argument("--dry-run", action="store_true", help="print the commands instead of running them")
    parser.add_argument("--model", default="", help="language model (GGUF)")
    parser.add_argument("--mmproj", default="", help="its vision encoder")
    parser.add_argument("--data", default="", help="file or folder of questions")
    parser.add_argument("--text", default="", help="a long text")
    parser.add_argument("--n", type=int, default=0, help="trials per cell (default: the entry's own)")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "build/papers", help="where rows go (default build/papers)")
    args = parser.parse_args()
    if args.list:
        return listing(ENTRIES)
    if not args.name:
        parser.error("name a table or figure, or --list")
    found = [entry for entry in ENTRIES if entry.name == args.name]
    if not found:
        raise SystemExit(f"no table or figure is called {args.name}; scripts/paper --list names them")
    entry = found[0]
    if entry.steps is None:
        raise SystemExit(f"{entry.name}: {entry.state}. {entry.differs or entry.what}")
    for need in entry.needs:
        option, what = NEEDS[need]
        if not getattr(args, option):
            raise SystemExit(f"{entry.name} needs {what}")
    # Paths are the caller's; commands run in the tree.
    path = lambda given: os.path.abspath(given) if given else ""
    cached = Path(os.path.expanduser("~/.cache/weir/models/SmolLM2-135M-Instruct.Q4_1.gguf"))
    default = ROOT / "models/weir-tiny-llava.gguf" if entry.vision else cached
    setting = Setting(
        weir=os.environ.get("WEIR") or str(ROOT / "build/release/weir"),
        out=args.out.absolute(),
        model=path(args.model) or str(default),
        mmproj=path(args.mmproj) or str(ROOT / "models/mmproj-weir-tiny-llava.gguf"),
        data=path(args.data),
        text=path(args.text),
        n=args.n,
        threads=args.threads,
        model_given=bool(args.model),
    )
    if not args.dry_run:
        if not Path(setting.model).exists():
            raise SystemExit(f"{setting.model} is not there; run scripts/fetch-model, or name another: --model")
        setting.out.mkdir(parents=True, exist_ok=True)
    return make(entry, setting, args.dry_run)


if __name__ == "__main__":
    main()
