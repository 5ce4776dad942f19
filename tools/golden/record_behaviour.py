#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the program's output, to show that a refactoring leaves every byte unchanged.

    tools/golden/record_behaviour.py record --weir PROGRAM --out FOLDER [--threads 2] [--jobs 1] [--only SECTION]
    tools/golden/record_behaviour.py compare FOLDER FOLDER

`record` runs the program about two thousand times (sections: text, pictures, policies, plans, capi, http) and writes
its output to FOLDER/SECTION, one file per case: answers, traces, rows of evaluations, plans, bodies of
HTTP. Only times, rates, ids and process memory are removed, by the names in behaviour_run.py. Standard error, help and
progress are not recorded. `compare` lists the cases that differ, each with its first differing lines, and exits with 1
if there are any.

Models and texts are collected once in --inputs (default: `inputs` beside FOLDER). Recordings to be compared must
share them and the number of threads. Needs the model of scripts/fetch-model and ffmpeg; making the inputs also needs
numpy under /usr/bin/python3. On two idle cores a recording takes about eight minutes; on a busy
machine more --jobs help.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.golden import behaviour_cases, behaviour_http
from tools.golden.behaviour_inputs import make_inputs
from tools.golden.behaviour_run import Recorder

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = (*behaviour_cases.SECTIONS, "http")
N_LINES_SHOWN = 3
LONGEST_LINE_SHOWN = 240


def real_model(root: Path) -> Path:
    fetched = subprocess.run([str(root / "scripts" / "fetch-model")], check=True, stdout=subprocess.PIPE, text=True)
    return Path(fetched.stdout.splitlines()[-1])


def record_section(recorder: Recorder, section: str, jobs: int) -> int:
    """Runs a section's cases; returns how many files they left."""
    folder = recorder.out / section
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if section == "http":
        behaviour_http.record(recorder, folder)
    else:
        cases = list(behaviour_cases.SECTIONS[section](recorder))
        names = [case.name for case in cases]
        if len(set(names)) != len(names):
            raise SystemExit(
                f"two cases of {section} have one name: {sorted({n for n in names if names.count(n) > 1})}"
            )
        with ThreadPoolExecutor(jobs) as pool:
            for _ in pool.map(lambda case: recorder.run_case(case, folder), cases):
                pass
    return sum(file.is_file() for file in folder.rglob("*"))


def record(args: argparse.Namespace) -> int:
    out = args.out.resolve()
    inputs = (args.inputs or out.parent / "inputs").resolve()
    make_inputs(ROOT, inputs, real_model(ROOT))
    with tempfile.TemporaryDirectory(prefix="weir-record-") as work:
        recorder = Recorder(args.weir.resolve(), out, inputs, Path(work), args.threads)
        for section in args.only or SECTIONS:
            start = time.monotonic()
            n_files = record_section(recorder, section, args.jobs)
            print(f"{section}: {n_files} files, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{len(recorder.failures)} calls ended in an error; their exit codes are kept")
    for line in recorder.failures if args.errors else ():
        print(f"  exit {line}")
    return 0


def files_of(folder: Path) -> dict[str, Path]:
    return {str(file.relative_to(folder)): file for file in sorted(folder.rglob("*")) if file.is_file()}


def shown(line: bytes | None, at: int) -> str:
    """An excerpt around the first byte that differs."""
    if line is None:
        return "(the end)"
    begin = max(0, at - LONGEST_LINE_SHOWN // 3)
    part = line[begin : begin + LONGEST_LINE_SHOWN].decode(errors="backslashreplace")
    return ("..." if begin else "") + part


def first_difference(a: bytes, b: bytes) -> list[str]:
    lines = a.splitlines(), b.splitlines()
    out: list[str] = []
    for i in range(max(map(len, lines))):
        one, other = (of[i] if i < len(of) else None for of in lines)
        if one == other:
            continue
        at = next((k for k, (x, y) in enumerate(zip(one or b"", other or b"")) if x != y), 0)
        out += [f"    line {i + 1}", f"    - {shown(one, at)}", f"    + {shown(other, at)}"]
        if len(out) >= 3 * N_LINES_SHOWN:
            break
    return out or ["    the ends of lines differ"]


def compare(args: argparse.Namespace) -> int:
    a, b = files_of(args.a), files_of(args.b)
    if not a:
        raise SystemExit(f"{args.a} holds no recording")
    n_bad = 0
    for name in sorted(a.keys() | b.keys()):
        if name not in a or name not in b:
            print(f"{name}: only in {args.a if name in a else args.b}")
        elif (one := a[name].read_bytes()) != (other := b[name].read_bytes()):
            print("\n".join([f"{name}: differs", *first_difference(one, other)]))
        else:
            continue
        n_bad += 1
    print(f"{len(a.keys() | b.keys())} files, {n_bad} differ or are missing")
    return 1 if n_bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="run the program and keep what comes out")
    recording.add_argument("--weir", type=Path, required=True, help="the program; examples are looked for beside it")
    recording.add_argument("--out", type=Path, required=True)
    recording.add_argument("--inputs", type=Path, help="folder of models and texts, made when it is not there")
    recording.add_argument("--threads", type=int, default=2)
    recording.add_argument("--jobs", type=int, default=1, help="cases that run at once")
    recording.add_argument("--errors", action="store_true", help="name the calls that ended in an error")
    recording.add_argument("--only", action="append", choices=SECTIONS)
    recording.set_defaults(run=record)
    comparing = commands.add_parser("compare", help="name the cases that differ")
    comparing.add_argument("a", type=Path)
    comparing.add_argument("b", type=Path)
    comparing.set_defaults(run=compare)
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
