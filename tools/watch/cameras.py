#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Several cameras at once on one server: frames a second, drops, shares, and how many sessions the budget admits.

    tools/watch/cameras.py --weir build/release/weir [--cameras 1,2,4,8] [--rules 0,1,4,8] [--seconds 20] [--fps 100]

Every camera is a session with a WebSocket, to which 64 x 64 pixels of the generated world come at --fps a second, more
than the server reads: what it has no time for is dropped and counted. Frames are pixels, so that no decoder takes
part. Prints a row of JSON for each number of cameras and rules; `share` is the least and the most frames of a camera
over the mean. The clock's frames a second depend on what else the machine does; those a second of the server's
processor time do not. First the budget is tried: one that is exactly large enough for so many sessions admits them and
no more. Needs numpy and websockets.
"""

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from websockets.sync.client import connect

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.train import draw
from tools.watch import events as made

ROOT = Path(__file__).resolve().parents[2]
RULE_TOKENS = 64


class Server:
    def __init__(self, args, budget):
        self.process = subprocess.Popen(
            [args.weir, "serve", "-m", args.model, "--mmproj", args.mmproj, "--pot", "64", "--policy", "window",
             "--answer-pots", "1", "--port", "0", "--threads", str(args.threads), "--budget", str(budget),
             "--connections", "64", "--form-memory", "0"],
            stderr=subprocess.PIPE, text=True)  # fmt: skip
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(r"http://127.0.0.1:\d+", line):
                self.url = found[0]
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise SystemExit(said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def ask(self, path, body=None):
        request = urllib.request.Request(self.url + path, None if body is None else json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read()

    def create(self):
        return json.loads(self.ask("/v1/sessions", {"rule_tokens": RULE_TOKENS, "frames_waiting": 4}))

    def used(self):
        return int(re.search(rb"\nweir_used_bytes (\d+)", self.ask("/metrics"))[1])

    def cpu(self):
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def try_budget(args, n):
    """The least budget for n sessions admits n; one byte less admits n - 1."""
    with Server(args, "4GiB") as server:
        before = server.used()
        each = server.create()["bytes"]
        taken = server.used() - before
    admitted = []
    for budget in (before + n * taken, before + n * taken - 1):
        with Server(args, budget) as server:
            count = 0
            try:
                while count <= n:
                    server.create()
                    count += 1
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    raise
            admitted.append(count)
    return {"sessions": n, "bytes": each, "taken": taken, "shared": before, "admitted": admitted}


def camera(url, session, frames, fps, start, end):
    with connect(url.replace("http:", "ws:") + f"/v1/sessions/{session}/socket", max_size=None) as socket:
        socket.send(json.dumps({"type": "format", "format": "rgb", "width": draw.SIZE, "height": draw.SIZE}))
        reader = threading.Thread(target=lambda: [None for _ in socket], daemon=True)
        reader.start()
        k = 0
        while (now := time.time()) < end:
            due = start + k / fps
            if now < due:
                time.sleep(min(due - now, end - now))
                continue
            socket.send(struct.pack("<q", round(1000 * k / fps)) + frames[k // 20 % len(frames)])
            k += 1


def measure(args, frames, n_cameras, n_rules):
    with Server(args, "4GiB") as server:
        sessions = [server.create()["id"] for _ in range(n_cameras)]
        for session in sessions:
            for rule in range(n_rules):
                colour = ("red", "blue", "green", "pink", "black", "white", "yellow", "brown")[rule]
                server.ask(f"/v1/sessions/{session}/rules", {"when": f"What colour is it? => {colour}"})
        start = time.time() + 1
        threads = [
            threading.Thread(target=camera, args=(server.url, s, frames, args.fps, start, start + args.seconds))
            for s in sessions
        ]
        for thread in threads:
            thread.start()
        time.sleep(max(0, start - time.time()))
        before, begun = server.cpu(), time.time()
        for thread in threads:
            thread.join()
        counts = [json.loads(server.ask(f"/v1/sessions/{s}"))["frames"] for s in sessions]
        seconds, cpu = time.time() - begun, server.cpu() - before
        checks = [json.loads(server.ask(f"/v1/sessions/{s}/rules")).get("checks", 0) for s in sessions]
    read = [c["read"] for c in counts]
    total = sum(read)
    return {
        "cameras": n_cameras, "rules": n_rules, "read": read, "checks": sum(checks),
        "dropped": sum(c["dropped"] for c in counts), "arrived": sum(c["arrived"] for c in counts),
        "unaccounted": sum(c["arrived"] - c["read"] - c["dropped"] - c["waiting"] for c in counts),
        "share": [round(min(read) * n_cameras / max(total, 1), 3), round(max(read) * n_cameras / max(total, 1), 3)],
        "frames_per_s": round(total / seconds, 1), "cpu_s": round(cpu, 2),
        "frames_per_cpu_s": round(total / max(cpu, 1e-9), 1),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description="Several cameras at once on one server.")
    parser.add_argument("--weir", default=str(ROOT / "build/release/weir"))
    parser.add_argument("--model", default=str(ROOT / "models/weir-tiny-llava.gguf"))
    parser.add_argument("--mmproj", default=str(ROOT / "models/mmproj-weir-tiny-llava.gguf"))
    parser.add_argument("--data", type=Path, default=os.environ.get("WEIR_DATA"), help="folder with image_qa/mnist")
    parser.add_argument("--cameras", default="1,2,4,8")
    parser.add_argument("--rules", default="0,1,4,8")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--fps", type=float, default=100)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    print(json.dumps(try_budget(args, 8)), flush=True)
    stream = made.make_stream("held_out", 3, 0, 8, draw.Digits(args.data))
    frames = [frame.tobytes() for frame in stream.frames][:40]
    for n_rules in map(int, args.rules.split(",")):
        for n_cameras in map(int, args.cameras.split(",")):
            print(json.dumps(measure(args, frames, n_cameras, n_rules)), flush=True)


if __name__ == "__main__":
    main()
