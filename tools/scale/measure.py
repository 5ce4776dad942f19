#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what tools/scale/fleet.py needs to know of servers on this machine.

    tools/scale/measure.py PROGRAM MODEL OUT.json [-n 300] [--nodes 4] [--tokens 100] [--sentences 4] [--pot 128] ...

One request after another, as a rehearsal's clients send them: half through haproxy and half through nginx in front of
--nodes servers (--direct: one server, and nothing in front). For each kind of request the times of n and the processor
time that the servers used for one:

    append, ask, save        turns; the k-th times of the three belong to one turn
    missing, gone, restore   what a client sends after a kill: an append and a deletion that find the session nowhere,
                             and a restore
    takeover                 an append to a session whose server has ended, and has handed it over

Before each turn, lost session and takeover is a pause, because clients think: what runs right after another request is
faster. Then the seconds that an end takes for each session left to others, the processor time of a start, and that of
questions of 2, 4 and 8 sessions at once, which says what joint passes save. Processor time stands for the engine's
time, so that other work on the machine does not count; the times of requests are told as they are.
"""

import argparse
import json
import signal
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

NODES = "abcd"


class Bench:
    """Requests, each sent once and through `address`, and what they took."""

    def __init__(self, servers, addresses, args):
        self.servers, self.addresses, self.args, self.address = servers, addresses, args, addresses[0]
        self.found = {}  # by kind: [(seconds, processor seconds)]

    def times(self, n):
        """0 to n - 1, each through the next of the addresses."""
        for k in range(n):
            self.address = self.addresses[k % len(self.addresses)]
            yield k

    def ok(self, method, path, body=None, want=(200, 201)):
        status, text, _ = request(self.address, method, path, body)
        if status not in want:
            raise SystemExit(f"{path}: {status} {text}")
        return json.loads(text)

    def cpu(self):
        return sum(cpu_of(server) for server in self.servers)

    def timed(self, kind, method, path, body=None, want=(200, 201), pause=True):
        """After a pause: caches and processors are as cold as between the requests of clients that think."""
        time.sleep(self.args.pause * pause)
        cpu, began = self.cpu(), time.monotonic()
        out = self.ok(method, path, body, want)
        seconds = time.monotonic() - began
        self.found.setdefault(kind, []).append((seconds, self.cpu() - cpu))
        return out

    def text(self, i, turn):
        words = " ".join(clients.appended(i + j, turn) for j in range((self.args.sentences + 3) // 4))
        return {"text": ". ".join(words.split(". ")[: self.args.sentences])}

    def question(self, i, turn):
        return clients.question(i, turn, self.args.tokens)

    def full(self):
        """The path of a session whose pot is full."""
        at = f"/v1/sessions/{self.ok('POST', '/v1/sessions', {})['id']}"
        while self.ok("POST", at + "/append", self.text(0, 0))["seen"] <= 2 * self.args.pot:
            pass
        self.ok("POST", at + "/ask", self.question(0, 0))
        return at


def cpu_of(server):
    """Processor seconds of a process, to the nanosecond: Linux' clock for its number."""
    return time.clock_gettime((~server.process.pid << 3) | 2)


def turns(bench, n):
    """n turns, 15 of each session; returns what the sessions and their snapshots are like."""
    sessions = [bench.full() for _ in bench.times(-(-n // 15))]
    seen = [bench.ok("GET", at)["seen"] for at in sessions]
    read = 0
    for k in bench.times(n):
        who = k % len(sessions)
        at = sessions[who]
        appended = bench.timed("append", "POST", at + "/append", bench.text(who, k))
        asked = bench.timed("ask", "POST", at + "/ask", bench.question(who, k), pause=False)
        saved = bench.timed("save", "POST", at + "/save", {"name": f"m{who}"}, pause=False)
        read, seen[who] = read + appended["seen"] - seen[who], asked["weir"]["seen"]
    for at in sessions:
        bench.ok("DELETE", at)
    return {"read_tokens": read / n, "snapshot_bytes": saved["bytes"], "session_bytes": saved["session"]["bytes"]}


def lost(bench, n):
    """What a client sends after a kill: an append and a deletion that find nothing, and a restore."""
    for k in bench.times(n):
        at = f"/v1/sessions/s-{bench.servers[k % len(bench.servers)].node}-{k:032x}"
        if not bench.args.direct:
            bench.timed("missing", "POST", at + "/append", bench.text(0, k), want=(404,))
            bench.timed("gone", "DELETE", at, want=(404,), pause=False)
        again = bench.timed("restore", "POST", "/v1/sessions/restore", {"name": "m0"}, pause=False)
        bench.ok("DELETE", f"/v1/sessions/{again['id']}")


def takeovers(bench, n):
    """Sessions of one server after the other, which ends gracefully and comes again.

    Returns the seconds that an end took for each session that was left to others, and the processor seconds of a start.
    Most of an end is the disk's and the kernel's, which no process is charged for."""
    leave, start, n_left = 0.0, [], 0
    for server in bench.servers:
        ids = []
        while len(ids) < n // len(bench.servers):
            id = bench.ok("POST", "/v1/sessions/restore", {"name": "m0"})["id"]
            if id.startswith(f"s-{server.node}-"):
                ids.append(id)
            else:
                bench.ok("DELETE", f"/v1/sessions/{id}")
        server.restart(signal.SIGTERM)
        leave, n_left = leave + server.restarts[-1][1], n_left + len(ids)
        start.append(cpu_of(server))
        time.sleep(1.5)  # until haproxy asks it again
        for k in bench.times(len(ids)):
            bench.timed("takeover", "POST", f"/v1/sessions/{ids[k]}/append", bench.text(0, k))
            bench.ok("DELETE", f"/v1/sessions/{ids[k]}")
    return {"leave": leave / n_left, "start": mean(start)}


def joint(bench, rounds):
    """Processor time of a question among k at once, in units of one alone; all of them on one server."""
    alone = mean(cpu for _, cpu in bench.found["ask"])
    out = {"1": 1.0}
    bench.address = bench.servers[0].address
    for k in (2, 4, 8):
        ids = [bench.ok("POST", "/v1/sessions/restore", {"name": "m0"})["id"] for _ in range(k)]
        with ThreadPoolExecutor(k) as pool:
            cpu = bench.cpu()
            for r in range(rounds):
                ask = lambda s, r=r: bench.ok("POST", f"/v1/sessions/{s}/ask", bench.question(0, r))
                list(pool.map(ask, ids))
            out[str(k)] = round((bench.cpu() - cpu) / (rounds * k) / alone, 3)
        for s in ids:
            bench.ok("DELETE", f"/v1/sessions/{s}")
    return out


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def measured(bench, args):
    out = turns(bench, args.n)
    few = max(20, args.n // 3)
    lost(bench, few)
    if not args.direct:
        out.update(takeovers(bench, args.n))
    out["joint"] = joint(bench, max(4, args.n // 20))
    for kind, pairs in bench.found.items():
        seconds = [round(s, 6) for s, _ in pairs]
        out[kind] = {"seconds": seconds, "cpu": mean(cpu for _, cpu in pairs)}
        ordered = sorted(1000 * s for s in seconds)
        p50, p99 = ordered[len(ordered) // 2], ordered[int(0.99 * len(ordered))]
        print(f"{kind:8} p50 {p50:.2f} ms, p99 {p99:.2f} ms, processor {1000 * out[kind]['cpu']:.2f} ms")
    print(f"read {out['read_tokens']:.0f} tokens, session {out['session_bytes']} B, snapshot {out['snapshot_bytes']} B")
    print("questions at once, each in processor time of one alone:", out["joint"])
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("-n", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=4, help="at most four")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each turn, or request of other kinds")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--sentences", type=int, default=4)
    parser.add_argument("--pot", type=int, default=128)
    parser.add_argument("--policy", default="streaming_llm")
    parser.add_argument("--budget", default="1GiB")
    parser.add_argument("--direct", action="store_true")
    args = parser.parse_args()
    nodes = "a" if args.direct else NODES[: args.nodes]
    hosts = [f"127.0.0.{2 + k}" for k in range(len(nodes))]
    with tempfile.TemporaryDirectory(prefix="weir-measure-") as folder, open(Path(folder) / "log", "w") as log:
        (Path(folder) / "snapshots").mkdir()
        flags = ["-t", "1", "--pot", str(args.pot), "--policy", args.policy, "--budget", args.budget, "--api-key", KEY]
        flags += ["--snapshots", f"{folder}/snapshots", "--connections", "256", "--hand-over", "--drain", "10"]
        port, servers, fronts = free_port(hosts), [], []
        try:
            for node, host in zip(nodes, hosts):
                servers.append(Server(args.program, args.model, node, host, port, flags, log))
            addresses = [servers[0].address] if args.direct else []
            for kind in () if args.direct else ("haproxy", "nginx"):
                (Path(folder) / kind).mkdir()
                addresses.append(("127.0.0.1", free_port(["127.0.0.1"])))
                fronts.append(getattr(proxies, kind)(Path(folder) / kind, addresses[-1][1], servers))
            time.sleep(1.5 * bool(fronts))
            out = measured(Bench(servers, addresses, args), args)
        finally:
            for front in fronts:
                front.terminate()
                front.wait()
            for server in servers:
                server.end()
    out.update(nodes=len(nodes), model=Path(args.model).name, pot=args.pot, tokens=args.tokens)
    Path(args.out).write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
