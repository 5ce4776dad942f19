#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what tools/scale/fleet.py needs to know of a server on this machine.

    tools/scale/measure.py PROGRAM MODEL OUT.json [-n 300] [--tokens 100] [--sentences 4] [--pot 128] [--direct]

One session after another, through haproxy as a rehearsal's clients go (--direct: without): append, question, save, and
what a restore takes. For each kind the times of n requests and the processor time that the server used for it; then
questions of 2, 4 and 8 sessions at once, whose processor time says what joint passes save. Processor time stands for
the engine's time, so that other work on the machine does not count; the times of requests are told as they are there.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

from deploy.fleet import clients, proxies  # noqa: E402
from deploy.fleet.servers import KEY, Server, free_port, request  # noqa: E402


def cpu_of(server):
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Bench:
    def __init__(self, server, address, args):
        self.server, self.address, self.args = server, address, args

    def ok(self, method, path, body):
        status, text, _ = request(self.address, method, path, body)
        if status not in (200, 201):
            raise SystemExit(f"{path}: {status} {text}")
        return json.loads(text)

    def series(self, n, body):
        """Seconds of each of n calls, sorted, and the server's processor seconds for one."""
        cpu, times = cpu_of(self.server), []
        for k in range(n):
            began = time.monotonic()
            body(k)
            times.append(time.monotonic() - began)
        return {"seconds": sorted(round(t, 6) for t in times), "cpu": (cpu_of(self.server) - cpu) / n}

    def text(self, k):
        words = " ".join(clients.appended(k, j) for j in range((self.args.sentences + 3) // 4))
        return {"text": ". ".join(words.split(". ")[: self.args.sentences])}

    def question(self, k):
        return clients.question(k, 0, self.args.tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("-n", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--sentences", type=int, default=4)
    parser.add_argument("--pot", type=int, default=128)
    parser.add_argument("--policy", default="streaming_llm")
    parser.add_argument("--budget", default="1GiB")
    parser.add_argument("--direct", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weir-measure-") as folder, open(Path(folder) / "log", "w") as log:
        (Path(folder) / "snapshots").mkdir()
        port = free_port(["127.0.0.2"])
        flags = ["-t", "1", "--pot", str(args.pot), "--policy", args.policy, "--budget", args.budget, "--api-key", KEY]
        flags += ["--snapshots", f"{folder}/snapshots", "--hand-over"]
        began = time.monotonic()
        server = Server(args.program, args.model, "a", "127.0.0.2", port, flags, log)
        start = time.monotonic() - began
        address, front = server.address, None
        if not args.direct:
            address = ("127.0.0.1", free_port(["127.0.0.1"]))
            front = proxies.haproxy(folder, address[1], [server])
            time.sleep(1.5)
        try:
            out = measured(Bench(server, address, args), args)
        finally:
            if front:
                front.terminate()
                front.wait()
            server.end()
    out.update(start=start, model=Path(args.model).name, pot=args.pot, tokens=args.tokens)
    Path(args.out).write_text(json.dumps(out) + "\n")
    for kind in ("append", "ask", "save", "restore"):
        times = [1000 * s for s in out[kind]["seconds"]]
        p50, p99 = times[len(times) // 2], times[int(0.99 * len(times))]
        print(f"{kind:8} p50 {p50:.2f} ms, p99 {p99:.2f} ms, processor {1000 * out[kind]['cpu']:.2f} ms")
    print(f"read {out['read_tokens']:.0f} tokens, session {out['session_bytes']} B, snapshot {out['snapshot_bytes']} B")
    print("questions at once, each in processor time of one alone:", out["joint"])


def measured(bench, args):
    out = {}
    id = bench.ok("POST", "/v1/sessions", {})["id"]
    at = f"/v1/sessions/{id}"
    # The pot is full before anything counts.
    while True:
        state = bench.ok("POST", at + "/append", bench.text(0))
        if state["seen"] > 2 * args.pot:
            break
    bench.ok("POST", at + "/ask", bench.question(0))
    seen = bench.ok("GET", at, None)["seen"]
    out["append"] = bench.series(args.n, lambda k: bench.ok("POST", at + "/append", bench.text(k)))
    out["read_tokens"] = (bench.ok("GET", at, None)["seen"] - seen) / args.n
    out["ask"] = bench.series(args.n, lambda k: bench.ok("POST", at + "/ask", bench.question(k)))
    out["save"] = bench.series(args.n, lambda k: bench.ok("POST", at + "/save", {"name": "m"}))
    saved = bench.ok("POST", at + "/save", {"name": "m"})
    out["snapshot_bytes"] = saved["bytes"]
    out["session_bytes"] = saved["session"]["bytes"]

    def restore(_):
        again = bench.ok("POST", "/v1/sessions/restore", {"name": "m"})["id"]
        bench.ok("DELETE", f"/v1/sessions/{again}", None)

    out["restore"] = bench.series(max(20, args.n // 5), restore)
    joint, rounds = {"1": 1.0}, max(4, args.n // 20)
    for k in (2, 4, 8):
        ids = [bench.ok("POST", "/v1/sessions/restore", {"name": "m"})["id"] for _ in range(k)]
        with ThreadPoolExecutor(k) as pool:
            cpu = cpu_of(bench.server)
            for r in range(rounds):
                ask = lambda s, r=r: bench.ok("POST", f"/v1/sessions/{s}/ask", bench.question(r))
                list(pool.map(ask, ids))
            joint[str(k)] = round((cpu_of(bench.server) - cpu) / (rounds * k) / out["ask"]["cpu"], 3)
        for s in ids:
            bench.ok("DELETE", f"/v1/sessions/{s}", None)
    out["joint"] = joint
    return out


if __name__ == "__main__":
    main()
