#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures rules over a log with planted incidents (tools/watch/logs.py): recall, false alarms, delay in lines.

    tools/watch/measure_text.py --model MODEL.gguf [--lines 10000] [--seed 1] [--between 400] [--strays 0] [--pot 1024]
                                [--rules JSON] [-- more flags of weir watch]

One stream with a rule for each kind of incident. An alarm is right within an incident and --late lines after it; of an
incident only the first counts, and any other is false. An hour is one of the log's own clock, 7,200 lines on average.
The row of JSON has the lines that were left out (--skip-same), lines a second of clock and of processor time, and the
process's resident memory at the first and last report and at most. Needs only Python.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.watch import logs

ROOT = Path(__file__).resolve().parents[2]
LINES_AN_HOUR = 7200  # of tools/watch/logs.py


@dataclass
class Kind:
    events: int = 0
    hits: int = 0
    false: int = 0


def score(incidents, alarms, late):
    """Hits and false alarms of (kind, line) pairs by kind, and the delays of the hits in lines."""
    kinds = {kind: Kind() for kind in logs.INCIDENTS}
    for incident in incidents:
        kinds[incident.kind].events += 1
    found, delays = set(), []
    for kind, line in sorted(alarms, key=lambda alarm: alarm[1]):
        fits = [
            i
            for i, incident in enumerate(incidents)
            if incident.kind == kind and incident.first <= line <= incident.last + late and i not in found
        ]
        if not fits:
            kinds[kind].false += 1
            continue
        found.add(fits[-1])
        kinds[kind].hits += 1
        delays.append(line - incidents[fits[-1]].first)
    return kinds, sorted(delays)


def table(kinds, delays, n_lines):
    print("| kind | incidents | found | recall | false alarms | an hour |")
    print("|---|---|---|---|---|---|")

    def row(name, kind):
        recall = kind.hits / kind.events if kind.events else float("nan")
        error = (recall * (1 - recall) / kind.events) ** 0.5 if kind.events else float("nan")
        hourly = LINES_AN_HOUR * kind.false / n_lines
        print(f"| {name} | {kind.events} | {kind.hits} | {recall:.3f} ± {error:.3f} | {kind.false} | {hourly:.2f} |")

    total = Kind()
    for name, kind in kinds.items():
        row(name, kind)
        total = Kind(total.events + kind.events, total.hits + kind.hits, total.false + kind.false)
    row("all", total)
    if delays:
        print(f"\ndelay: median {delays[len(delays) // 2]} lines, 90 % {delays[int(0.9 * (len(delays) - 1))]}")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Measures rules over a log with planted incidents.")
    parser.add_argument("--weir", default=str(ROOT / "build/release/weir"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--between", type=int, default=logs.BETWEEN)
    parser.add_argument("--strays", type=float, default=0)
    parser.add_argument("--pot", type=int, default=1024)
    parser.add_argument("--rules", default="", help="other words for the rules: an object of kinds and --when texts")
    parser.add_argument("--policy", default="window")
    parser.add_argument("--late", type=int, default=10, help="lines after an incident in which an alarm is still its")
    parser.add_argument("--limit", type=float, default=0, help="stop after so many seconds, and measure what was read")
    parser.add_argument("--threads", type=int, default=1)
    argv = sys.argv[1:] if argv is None else argv
    more = argv[argv.index("--") + 1 :] if "--" in argv else []
    args = parser.parse_args(argv[: argv.index("--")] if "--" in argv else argv)
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        incidents = []
        for line in logs.make_log(args.seed, args.lines, args.between, args.strays):
            log.write(line.text + "\n")
            incidents += [line.begins] if line.begins else []
        log.flush()
        command = [
            args.weir, "watch", "--follow", log.name, "--fast", "-o", "json", "--report", "10s", "-m", args.model,
            "--pot", str(args.pot), "--policy", args.policy, "-t", str(args.threads),
        ]  # fmt: skip
        rules = logs.rules() | json.loads(args.rules or "{}")
        for rule in rules.values():
            command += ["--when", rule]
        start = time.time()
        with tempfile.TemporaryFile("w+") as out:
            done = subprocess.Popen(command + more, stdout=out, stdin=subprocess.DEVNULL)
            stopped = False
            try:
                done.wait(args.limit or None)
            except subprocess.TimeoutExpired:
                stopped = True
                done.send_signal(signal.SIGINT)
                done.wait()
            if done.returncode != 0 and not stopped:
                sys.exit(" ".join(command))
            out.seek(0)
            rows = [json.loads(line) for line in out]
    n_lines = rows[-1]["line"]
    incidents = [incident for incident in incidents if incident.last <= n_lines]
    names = {f"r{i + 1}": kind for i, kind in enumerate(logs.INCIDENTS)}
    alarms = [(names[r["rule"]], r["line"]) for r in rows if r["type"] == "event" and r["state"] == "began"]
    kinds, delays = score(incidents, alarms, args.late)
    seconds, spent = time.time() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    reports = [r for r in rows if r["type"] == "report"]
    last, resident = reports[-1], [r["resident_bytes"] for r in reports]
    report = dict(
        lines=n_lines,
        seed=args.seed,
        between=args.between,
        strays=args.strays,
        pot=args.pot,
        tokens=last["tokens_seen"],
    )
    report.update(lines_same=last.get("lines_same", 0), checks=last["rules"]["checks"], seconds=round(seconds, 1))
    cpu = spent.ru_utime + spent.ru_stime
    report.update(cpu_seconds=round(cpu, 1), lines_per_s=round(n_lines / seconds))
    report.update(lines_per_cpu_s=round(n_lines / cpu), ms_per_rule=round(last["rules"]["ms_per_rule"], 2))
    report.update(reports=len(reports), resident_first=resident[0], resident_last=resident[-1])
    report.update(resident_most=max(resident), session_bytes=last["session_bytes"])
    print(json.dumps(report) + "\n")
    table(kinds, delays, n_lines)


if __name__ == "__main__":
    main()
