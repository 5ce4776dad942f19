#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A week of a camera that mostly shows the same: memory of `weir watch` with many rules, and what they found.

    tools/watch/week.py --weir build/release/weir [--frames 604800] [--rules 20] [--seed 1] [--still 60s] > week.jsonl

Scenes of the generated world (tools/watch/events.py), all of one subject, stand for a minute to six, at one frame a
second; the frames of a scene are equal. Every rule waits for one answer to one of the subject's questions. The video
goes through a pipe, as fast as it is read, with --skip-still. The last line says how far resident memory moved after
the first hour, and how often rules rose when they should. Needs numpy.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.train import draw, world
from tools.watch import events as made

ROOT = Path(__file__).resolve().parents[2]
STAND = (60, 360)  # frames of a scene


def header():
    return b"YUV4MPEG2 W%d H%d F1:1 Ip A1:1 C444\n" % (draw.SIZE, draw.SIZE)


def as_y4m(frame):
    """One frame as made.write_y4m() writes it."""
    r, g, b = (frame[..., c].astype(np.float64) for c in range(3))
    y = 16 + (65.481 * r + 128.553 * g + 24.966 * b) / 255
    u = 128 + (-37.797 * r - 74.203 * g + 112.0 * b) / 255
    v = 128 + (112.0 * r - 93.786 * g - 18.214 * b) / 255
    return b"FRAME\n" + np.clip(np.rint(np.stack([y, u, v])), 0, 255).astype(np.uint8).tobytes()


def make_scenes(split, seed, n_frames):
    rng = world.rng_of(split, seed, 0, 17)
    out, at = [], 0
    while at < n_frames:
        n = min(int(rng.integers(*STAND)), n_frames - at)
        out.append((at, n, made._scene(rng, "shape", [])))
        at += n
    return out


def make_rules(scenes, n_rules):
    """The commonest answers, as many of each question as there are."""
    kinds = []
    questions = made.QUESTIONS["shape"]
    for kind, attribute in questions.items():
        counts = {}
        for _, _, scene in scenes:
            counts[scene.facts[attribute]] = counts.get(scene.facts[attribute], 0) + 1
        common = sorted((a for a in counts if a != "nothing"), key=lambda a: (-counts[a], a))
        question = world._ASK[attribute][0]
        kinds.append([made.Rule(kind, attribute, question, a) for a in common])
    turns = [kind[i] for i in range(max(map(len, kinds))) for kind in kinds if i < len(kind)]
    return turns[:n_rules]


def true_events(scenes, rule):
    """(first, last) of the frames in which the rule's answer is right, scene after scene."""
    out = []
    for at, n, scene in scenes:
        if scene.facts[rule.attribute] != rule.answer:
            continue
        if out and out[-1][1] == at - 1:
            out[-1][1] = at + n - 1
        else:
            out.append([at, at + n - 1])
    return out


def score(scenes, rules, alarms, late=2):
    n_events, n_hits, n_false = 0, 0, 0
    for i, rule in enumerate(rules):
        spans, found = true_events(scenes, rule), set()
        n_events += len(spans)
        for alarm in [frame for number, frame in alarms if number == i]:
            fits = [k for k, (first, last) in enumerate(spans) if first <= alarm <= last + late and k not in found]
            n_false += not fits
            found |= set(fits[-1:])
        n_hits += len(found)
    return n_events, n_hits, n_false


def main():
    parser = argparse.ArgumentParser(description="A week of a camera that mostly shows the same.")
    parser.add_argument("--weir", default=str(ROOT / "build/release/weir"))
    parser.add_argument("--model", default=str(ROOT / "models/weir-tiny-llava.gguf"))
    parser.add_argument("--mmproj", default=str(ROOT / "models/mmproj-weir-tiny-llava.gguf"))
    parser.add_argument("--data", type=Path, default=os.environ.get("WEIR_DATA"), help="folder with image_qa/mnist")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--frames", type=int, default=7 * 86400)
    parser.add_argument("--rules", type=int, default=20)
    parser.add_argument("--still", default="60s")
    parser.add_argument("--pot", type=int, default=64)
    args = parser.parse_args()
    digits = draw.Digits(args.data)
    scenes = make_scenes("held_out", args.seed, args.frames)
    rules = make_rules(scenes, args.rules)
    command = [
        args.weir, "watch", "-", "-m", args.model, "--mmproj", args.mmproj, "--fps", "1", "--fast", "-o", "json",
        "--pot", str(args.pot), "--policy", "window", "-t", "1", "--skip-still", args.still, "--report", "1h",
        "--media-timeout", "600",
    ]  # fmt: skip
    for rule in rules:
        command += ["--when", rule.text()]
    start = time.time()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def feed():
        pixels = world.rng_of("held_out", args.seed, 0, 18)
        with process.stdin as out:
            out.write(header())
            for _, n, scene in scenes:
                frame = as_y4m(next(iter(world.render(scene, 1, pixels, "held_out", digits))))
                for _ in range(n):
                    out.write(frame)

    threading.Thread(target=feed, daemon=True).start()
    ids = {f"r{i + 1}": i for i in range(len(rules))}
    seen, alarms, reports = 0, [], []
    for line in process.stdout:
        row = json.loads(line)
        if row["type"] == "event":
            seen += 1
            if row["id"] != seen:
                sys.exit(f"event {row['id']} where {seen} was to come")
            if row["state"] == "began":
                alarms.append((ids[row["rule"]], row["t_ms"] // 1000))
        elif row["type"] == "report":
            reports.append(row)
            print(json.dumps({k: row[k] for k in ("t_ms", "frames_arrived", "frames_looked_at", "frames_still",
                                                   "session_bytes", "resident_bytes")}), flush=True)  # fmt: skip
    if process.wait() != 0:
        sys.exit(f"weir ended with {process.returncode}")
    resident = [r["resident_bytes"] for r in reports[1:]]
    n_events, n_hits, n_false = score(scenes, rules, alarms)
    print(json.dumps({
        "frames": reports[-1]["frames_arrived"], "looked_at": reports[-1]["frames_looked_at"],
        "still": reports[-1]["frames_still"], "dropped": reports[-1]["frames_dropped"], "rules": len(rules),
        "scenes": len(scenes), "events_told": seen, "resident_least": min(resident), "resident_most": max(resident),
        "moved": max(resident) - min(resident), "session_bytes": reports[-1]["session_bytes"],
        "true_events": n_events, "found": n_hits, "false": n_false, "seconds": round(time.time() - start),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
