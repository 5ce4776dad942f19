#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures rules over streams with timed events: recall, false alarms an hour, delay; beside a poller on the model.

    tools/watch/measure.py rules  --weir build/release/weir [--streams 20] [--scenes 600] [--seed 1] [--split held_out]
                                  [--pot 96] [--policy window] [-- more flags of weir watch]
    tools/watch/measure.py poller --weir build/release/weir [--every 5] [--memory 10] ...
    tools/watch/measure.py table  ROWS.jsonl...

`rules` runs `weir watch --when` over every stream, with all its rules at once. `poller` shows the newest frame and asks
each question every few seconds, in a conversation of its own whose pot has room for the last exchanges: it raises an
alarm when the answer becomes the right one. Each stream gives a row on standard output; `table` sums them up.

An alarm within an event, or up to --late frames after it, is a hit; of an event only the first counts, further ones
and all others are false. The delay is the number of frames from an event's first one to the alarm. Needs numpy.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.train import draw
from tools.watch import events as made

ROOT = Path(__file__).resolve().parents[2]


def score(stream, alarms, late):
    """Hits, misses, false alarms and delays of (rule, frame) pairs, by kind."""
    kinds = {r.kind: dict(events=0, hits=0, false=0, delays=[]) for r in stream.rules}
    found = set()
    for event in stream.events:
        kinds[stream.rules[event.rule].kind]["events"] += 1
    for rule, frame in sorted(alarms, key=lambda a: a[1]):
        kind = kinds[stream.rules[rule].kind]
        fits = [i for i, e in enumerate(stream.events) if e.rule == rule and e.first <= frame <= e.last + late]
        fresh = [i for i in fits if i not in found]
        if not fresh:
            kind["false"] += 1
            continue
        found.add(fresh[-1])
        kind["hits"] += 1
        kind["delays"].append(frame - stream.events[fresh[-1]].first)
    return kinds


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_rules(args, stream, video, more):
    command = [
        args.weir, "watch", video, "-m", args.model, "--mmproj", args.mmproj, "--fps", "1", "--fast", "-o", "json",
        "--pot", str(args.pot), "--policy", args.policy, "-t", str(args.threads),
    ]  # fmt: skip
    for rule in stream.rules:
        command += ["--when", rule.text()]
    rows = run(command + more)
    ids = {f"r{i + 1}": i for i in range(len(stream.rules))}
    alarms = [(ids[r["rule"]], r["t_ms"] // 1000) for r in rows if r["type"] == "event" and r["state"] == "began"]
    return alarms, {"ms_per_rule": rows[-1]["rules"]["ms_per_rule"], "tokens_aside": rows[-1]["rules"]["tokens"]}


def run_poller(args, stream, video, more):
    """A conversation for each rule: the newest frame and the question, every few seconds, in a pot of ten exchanges."""
    alarms = []
    for i, rule in enumerate(stream.rules):
        command = [
            args.weir, "watch", video, "-m", args.model, "--mmproj", args.mmproj, "--fps", str(1 / args.every),
            "--fast", "-o", "json", "--pot", str(args.memory * args.exchange_tokens), "--policy", "window", "-t",
            str(args.threads), "--ask", rule.question, "--every", f"{args.every}s", "-n", "3", "--temp", "0",
        ]  # fmt: skip
        before = False
        for row in run(command + more):
            if row["type"] == "answer":
                true = row["text"].split()[:1] == [rule.answer]
                if true and not before:
                    alarms.append((i, row["t_ms"] // 1000))
                before = true
    return alarms, {"exchange_tokens": args.exchange_tokens}


def rate_error(n, trials):
    """Standard error of n of so many."""
    p = n / trials if trials else 0
    return math.sqrt(p * (1 - p) / trials) if trials else 0


def table(rows):
    total = dict(events=0, hits=0, false=0, delays=[], rule_hours=0.0, hours=0.0)
    kinds, cpu, frames, false_by_stream = {}, 0.0, 0, []
    for row in rows:
        hours = row["frames"] / 3600
        frames, cpu = frames + row["frames"], cpu + row["cpu_s"]
        total["hours"] += hours
        false_by_stream.append(sum(k["false"] for k in row["kinds"].values()) / hours)
        for name, kind in row["kinds"].items():
            into = kinds.setdefault(name, dict(events=0, hits=0, false=0, delays=[], hours=0.0))
            into["hours"] += hours
            for one in (into, total):
                for key in ("events", "hits", "false"):
                    one[key] += kind[key]
                one["delays"] += kind["delays"]
    print("| kind | events | recall | false alarms an hour | delay, frames: median, mean, 90 % |")
    print("|---|---|---|---|---|")
    for name, k in [*sorted(kinds.items()), ("all", total)]:
        delays = sorted(k["delays"]) or [0]
        mean = sum(delays) / len(delays)
        spread = math.sqrt(sum((d - mean) ** 2 for d in delays) / max(1, len(delays) - 1) / len(delays))
        false = f"{k['false'] / k['hours']:.2f} ± {math.sqrt(k['false']) / k['hours']:.2f}"
        if name == "all" and len(rows) > 1:
            mean_false = sum(false_by_stream) / len(rows)
            error = math.sqrt(sum((f - mean_false) ** 2 for f in false_by_stream) / (len(rows) - 1) / len(rows))
            false = f"{mean_false:.2f} ± {error:.2f}"
        recall = k["hits"] / max(1, k["events"])
        print(
            f"| {name} | {k['events']} | {recall:.3f} ± {rate_error(k['hits'], k['events']):.3f} | {false} | "
            f"{delays[len(delays) // 2]}, {mean:.2f} ± {spread:.2f}, {delays[int(0.9 * (len(delays) - 1))]} |"
        )
    print(f"\n{len(rows)} streams, {frames} frames, {1e3 * cpu / max(1, frames):.1f} ms of processor time a frame")


def main(argv=None):
    parser = argparse.ArgumentParser(description="Measures rules over streams with timed events.")
    parser.add_argument("what", choices=("rules", "poller", "table"))
    parser.add_argument("rows", nargs="*", type=Path, help="for the table")
    parser.add_argument("--weir", default=str(ROOT / "build/release/weir"))
    parser.add_argument("--model", default=str(ROOT / "models/weir-tiny-llava.gguf"))
    parser.add_argument("--mmproj", default=str(ROOT / "models/mmproj-weir-tiny-llava.gguf"))
    parser.add_argument("--data", type=Path, default=os.environ.get("WEIR_DATA"), help="folder with image_qa/mnist")
    parser.add_argument("--split", default="held_out", choices=("train", "held_out"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first stream")
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--scenes", type=int, default=600, help="of a stream")
    parser.add_argument("--late", type=int, default=2, help="frames after an event in which an alarm is still its")
    parser.add_argument("--pot", type=int, default=96)
    parser.add_argument("--policy", default="window")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=int, default=5, help="seconds from a poll to the next")
    parser.add_argument("--memory", type=int, default=10, help="exchanges that a poller remembers")
    parser.add_argument("--exchange-tokens", type=int, default=32, help="of a frame, a question and its answer")
    argv = sys.argv[1:] if argv is None else argv
    more = argv[argv.index("--") + 1 :] if "--" in argv else []
    args = parser.parse_args(argv[: argv.index("--")] if "--" in argv else argv)
    if args.what == "table":
        return table([json.loads(line) for path in args.rows for line in path.read_text().splitlines()])
    digits = draw.Digits(args.data)
    watch = run_rules if args.what == "rules" else run_poller
    for number in range(args.first, args.first + args.streams):
        stream, start = made.make_stream(args.split, args.seed, number, args.scenes, digits), time.time()
        with tempfile.TemporaryDirectory() as folder:
            video = folder + "/stream.y4m"
            made.write_y4m(video, stream.frames)
            before = cpu_seconds()
            alarms, extra = watch(args, stream, video, more)
        row = dict(what=args.what, split=args.split, seed=args.seed, stream=number, subject=stream.subject)
        row.update(frames=stream.n_frames, rules=[r.text() for r in stream.rules])
        row.update(cpu_s=round(cpu_seconds() - before, 3), seconds=round(time.time() - start, 1), flags=more, **extra)
        row.update(alarms=sorted(alarms), kinds=score(stream, alarms, args.late))
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
