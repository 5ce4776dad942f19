#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures rules over a log with planted incidents (tools/watch/logs.py): recall, false alarms, delay in lines.

    tools/watch/measure_text.py --model MODEL.gguf [--lines 10000] [--seed 1] [--pot 1024] [-- more flags of weir watch]

One stream with a rule for each kind of incident. An alarm is right within an incident and --late lines after it; of an
incident only the first counts, and any other is false. Prints a row of JSON and a table. Needs only Python.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.watch import logs

ROOT = Path(__file__).resolve().parents[2]


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
    print("| kind | incidents | found | false alarms in 10,000 lines |")
    print("|---|---|---|---|")
    total = Kind()
    for name, kind in kinds.items():
        print(f"| {name} | {kind.events} | {kind.hits} | {1e4 * kind.false / n_lines:.1f} |")
        total = Kind(total.events + kind.events, total.hits + kind.hits, total.false + kind.false)
    print(f"| all | {total.events} | {total.hits} | {1e4 * total.false / n_lines:.1f} |")
    if delays:
        print(f"\ndelay: median {delays[len(delays) // 2]} lines, 90 % {delays[int(0.9 * (len(delays) - 1))]}")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Measures rules over a log with planted incidents.")
    parser.add_argument("--weir", default=str(ROOT / "build/release/weir"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--lines", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pot", type=int, default=1024)
    parser.add_argument("--policy", default="window")
    parser.add_argument("--late", type=int, default=10, help="lines after an incident in which an alarm is still its")
    parser.add_argument("--threads", type=int, default=1)
    argv = sys.argv[1:] if argv is None else argv
    more = argv[argv.index("--") + 1 :] if "--" in argv else []
    args = parser.parse_args(argv[: argv.index("--")] if "--" in argv else argv)
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        incidents = []
        for line, begins in logs.make_log(args.seed, args.lines):
            log.write(line + "\n")
            incidents += [begins] if begins else []
        log.flush()
        command = [
            args.weir, "watch", "--follow", log.name, "--fast", "-o", "json", "-m", args.model, "--pot", str(args.pot),
            "--policy", args.policy, "-t", str(args.threads),
        ]  # fmt: skip
        for rule in logs.rules().values():
            command += ["--when", rule]
        start = time.time()
        done = subprocess.run(command + more, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names = {f"r{i + 1}": kind for i, kind in enumerate(logs.INCIDENTS)}
    alarms = [(names[r["rule"]], r["line"]) for r in rows if r["type"] == "event" and r["state"] == "began"]
    kinds, delays = score(incidents, alarms, args.late)
    report = dict(lines=args.lines, seed=args.seed, pot=args.pot, tokens=rows[-1]["tokens_seen"])
    report.update(seconds=round(time.time() - start, 1), ms_per_rule=rows[-1]["rules"]["ms_per_rule"])
    print(json.dumps(report) + "\n")
    table(kinds, delays, args.lines)


if __name__ == "__main__":
    main()
