# SPDX-License-Identifier: Apache-2.0
"""Lets calls of the program fail, one at a time: memory, files, threads, sockets (call_faults.cc).

    python3 -m tests.faults.run LIBRARY PROGRAM [--most 40] [--only WORD] [--out build/faults.jsonl]

First every run and every request is made without a fault, and its calls are counted. Then it is made again for every
call of every kind that it made (or, with --most N, for N of them, spread evenly), which fails. A run must do what it
did before, or end with an error of one line; a request must be answered as before, or with an error as its API has
them. Never a crash, a hang, other bytes, a file that is neither the old nor the new one; and the next request is
answered right. Prints a table; exits with 1 if there was a fault.
"""

import argparse
import collections
import errno
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.control import ERRORS, KINDS, SHORT, Control, name_of
from tests.faults.programs import GOOD, Rehearsal, Verdict, make_old, scenarios
from tests.faults.routes import Beginning, Stage

ROOT = Path(__file__).resolve().parents[2]
SERVE = "weir serve, until it serves"
SHOWN = 2  # faults with the same trace


def spread(n: int, most: int) -> list[int]:
    """1 to n; at most so many of them, the first and the last among them."""
    if most <= 0 or n <= most:
        return list(range(1, n + 1))
    return sorted({1 + round(i * (n - 1) / max(1, most - 1)) for i in range(most)})


def places(trace: list[str], program: str) -> list[str]:
    """Names of our functions in a trace, the innermost first."""
    at = [found[1] for line in trace if (found := re.search(re.escape(program) + r"\(\+(0x[0-9a-f]+)\)", line))]
    if not at:
        return []
    found = subprocess.run(["addr2line", "-Cfe", program, *at], capture_output=True, text=True, check=False)
    names = [re.sub(r"\(.*|<.*", "", name) for name in found.stdout.splitlines()[::2]]
    return [name for name in names if name.startswith("weir::") or name == "main"]


class Tally:
    """Counts, and the faults."""

    def __init__(self, control: Control, program: str, out: Path | None):
        self.control, self.program = control, program
        self.out = out.open("w") if out else None
        self.counts = collections.Counter()
        self.shown = collections.Counter()
        self.n_calls = collections.Counter()

    def note(self, name: str, kind: str, nth: int, error: int, verdict: Verdict) -> None:
        self.counts[name, verdict.kind] += 1
        if not verdict.fault and self.out is None:
            return
        where = places(self.control.trace(), self.program)
        row = {"what": name, "call": kind, "nth": nth, "error": name_of(error), "verdict": verdict.kind}
        row |= {"detail": verdict.detail, "where": where}
        if self.out:
            self.out.write(json.dumps(row) + "\n")
            self.out.flush()
        if verdict.fault:
            key = (verdict.kind, tuple(where[:3]))
            self.shown[key] += 1
            if self.shown[key] <= SHOWN:
                print(
                    f"{verdict.kind}: {name}: {kind} {nth} {name_of(error)}: {verdict.detail}\n    "
                    + " < ".join(where[:8]),
                    file=sys.stderr,
                )

    def table(self) -> str:
        lines = [f"| what | calls | runs | {' | '.join(GOOD)} | faults |", "|---|" + "--:|" * (len(GOOD) + 3)]
        for name in [*dict.fromkeys(name for name, _ in self.counts)]:
            of = {kind: n for (what, kind), n in self.counts.items() if what == name}
            good = [of.get(kind, 0) for kind in GOOD]
            row = [self.n_calls[name], sum(of.values()), *good, sum(of.values()) - sum(good)]
            lines.append(f"| {name} | " + " | ".join(str(n) for n in row) + " |")
        return "\n".join(lines)

    @property
    def faults(self) -> int:
        return sum(n for (_, kind), n in self.counts.items() if Verdict(kind).fault)


def every_call(part: Rehearsal | Stage | Beginning, name: str, args: argparse.Namespace, tally: Tally) -> None:
    for kind in args.kinds.split(","):
        n = part.calls[kind]
        tally.n_calls[name] += n
        for nth in spread(n, args.most):
            for error in ERRORS[kind]:
                verdict = part.verdict(kind, nth, error, args.at_once)
                if error in (SHORT, errno.EINTR) and not verdict.fault and verdict.kind != "same":
                    verdict = Verdict("wrong", f"a call that comes short is no error: {verdict.kind}: {verdict.detail}")
                tally.note(name, kind, nth, error, verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("program")
    parser.add_argument("--model", default=str(ROOT / "tests/golden/models/llama.gguf"))
    parser.add_argument("--most", type=int, default=0, help="calls of each kind that fail, of every run and request")
    parser.add_argument("--only", default="", help="runs and requests whose name has this word")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--at-once", type=int, default=1, help="calls that fail, one after the other")
    parser.add_argument("--out", type=Path, help="a line of JSON for every run")
    args = parser.parse_args()
    program = str(Path(args.program).resolve())

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old, scratch = folder / "old", folder / "scratch"
        old.mkdir()
        make_old(program, args.model, old)
        control = Control(folder, str(Path(args.library).resolve()))
        tally = Tally(control, program, args.out)
        for scenario in scenarios(program, args.model, old):
            if args.only in scenario.name:
                every_call(Rehearsal(scenario, control, scratch), scenario.name, args, tally)
        with Stage(program, args.model, control, folder) as stage:
            if args.only in SERVE:
                every_call(Beginning(stage), SERVE, args, tally)
                stage.restart()
            for request in stage.requests:
                if args.only in request.name:
                    stage.rehearse(request)
                    every_call(stage, request.name, args, tally)
    print(tally.table())
    sys.exit(1 if tally.faults else 0)


if __name__ == "__main__":
    main()
