#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulates fleets of `weir serve`, event by event, with service times that tools/scale/measure.py measured.

    tools/scale/fleet.py MEASURED.json... [--nodes 4] [--sessions 500] [--think 30] [--kill-every 20] ...
    tools/scale/fleet.py MEASURED.json --table

Every session thinks for a while (exponential), then appends a text, asks a question and saves; the jobs on a node share
its engine, and answers go on together as measured. Nodes die. After a graceful end the others take the sessions over,
each on its next request; after a kill the client finds its session gone, restores what it saved last, and begins the
turn again. What a session that moves or is nowhere takes beside the engine is drawn from what was measured of such
requests, and what a turn takes from the turns. The store has so many bytes a second, and a time for each object.

Nodes are alike and share nothing but the store, so that of large fleets at most --most nodes are simulated, with their
share of the store. Nothing here knows of the network, of proxies' limits, or of machines that are unlike: docs/scale.md
says what that leaves out.
"""

import argparse
import heapq
import itertools
import json
import math
import random
from pathlib import Path
from statistics import fmean

TURN = ("append", "ask", "save")
LOST = ("missing", "gone", "restore")  # what a client sends after a kill


class Measured:
    """Demands on the engine in seconds of one processor; delays are the rest of a request's time, drawn as measured.

    Of several files the demands are means, and the times of all are drawn from. Files of one server measured directly
    know nothing of sessions that move; such requests then have no delay."""

    def __init__(self, *paths, delays=True):
        all_raw = [json.loads(Path(path).read_text()) for path in paths]
        raw = all_raw[0]
        self.demand = {kind: fmean(one[kind]["cpu"] for one in all_raw) for kind in (*TURN, "restore")}

        def together(*kinds):
            """The times of requests that were sent one after another."""
            known = [one for one in all_raw if delays and all(kind in one for kind in kinds)]
            return [times for one in known for times in zip(*(one[kind]["seconds"] for kind in kinds))]

        self.turns, self.lost, self.takeovers = together(*TURN), together(*LOST), together("takeover")
        self.nodes = raw["nodes"]
        # Seconds that an end takes for each session it leaves to others, and that a start takes of a processor.
        self.leave, self.start = (fmean(one.get(kind, 0.0) for one in all_raw) for kind in ("leave", "start"))
        self.joint = sorted((int(k), fmean(one["joint"][k] for one in all_raw)) for k in raw["joint"])
        self.snapshot_bytes, self.session_bytes = raw["snapshot_bytes"], raw["session_bytes"]
        self.tokens = {"append": raw["read_tokens"], "ask": raw["tokens"]}

    def delays_of(self, path):
        """Takes the times of turns from a rehearsal's --calls instead: of its clients, as many as they are."""
        rows = [line.split("\t") for line in Path(path).read_text().splitlines()]
        # All sessions are made, and saved, at once; that is over when the last one is there.
        begin = max(float(row[0]) + float(row[1]) for row in rows if row[2] == "create") + 1
        clients = {}
        for began, seconds, kind, status, _, client in rows:
            if kind != "turn" and float(began) > begin:
                clients.setdefault(client, []).append((kind, status, float(seconds)))
        self.turns = [
            tuple(seconds for _, _, seconds in calls[k : k + 3])
            for calls in clients.values()
            for k in range(len(calls) - 2)
            if [call[:2] for call in calls[k : k + 3]] == [(kind, "200") for kind in TURN]
        ]

    def turn(self, lot):
        """The delays of a turn's requests."""
        times = lot.choice(self.turns) if self.turns else (0.0,) * 3
        return [max(0.0, seconds - self.demand[kind]) for kind, seconds in zip(TURN, times)]

    def lost_session(self, lot, tries):
        """What a client waits after a kill, beside the engine; `tries` nodes are asked for what is nowhere."""
        if not self.lost:
            return 0.0
        missing, gone, restore = lot.choice(self.lost)
        return (missing + gone) * tries / self.nodes + max(0.0, restore - self.demand["restore"])

    def takeover(self, lot):
        """What an append takes longer where the session has moved, without what restoring it takes of the engine."""
        if not self.takeovers:
            return 0.0
        return max(0.0, lot.choice(self.takeovers)[0] - lot.choice(self.turns)[0] - self.demand["restore"])

    def gain(self, n):
        """How many times as fast n answers together are as one after another; constant above what was measured."""
        below = [(k, share) for k, share in self.joint if k <= n][-1]
        above = [(k, share) for k, share in self.joint if k >= n][:1] or [below]
        if above[0][0] == below[0]:
            return 1 / below[1]
        t = (n - below[0]) / (above[0][0] - below[0])
        return 1 / (below[1] + t * (above[0][1] - below[1]))


class Clock:
    """Events in the order of their times."""

    def __init__(self):
        self.now, self._heap, self._order = 0.0, [], itertools.count()

    def at(self, when, call, *args):
        heapq.heappush(self._heap, (when, next(self._order), call, args))

    def after(self, seconds, call, *args):
        self.at(self.now + seconds, call, *args)

    def run(self, end):
        while self._heap and self._heap[0][0] <= end:
            self.now, _, call, args = heapq.heappop(self._heap)
            call(*args)
        self.now = end


class Machine:
    """Engines of nodes, with one processor each, and work beside them. More of it than processors slows all of it.

    An engine's jobs take turns; answers go on in joint passes. A job is [node, kind, seconds left, call at its end],
    one without a node a thread of its own."""

    def __init__(self, clock, measured, processors):
        self.clock, self.measured, self.processors = clock, measured, processors
        self.jobs, self.rates, self.since, self.epoch = [], [], 0.0, 0

    def _rates(self):
        n_jobs, n_asks, n_threads = {}, {}, 0
        for node, kind, _, _ in self.jobs:
            if node is None:
                n_threads += 1
            else:
                n_jobs[node] = n_jobs.get(node, 0) + 1
                n_asks[node] = n_asks.get(node, 0) + (kind == "ask")
        share = min(1.0, self.processors / max(1, len(n_jobs) + n_threads))

        def rate(node, kind):
            if node is None:
                return share
            return share * (self.measured.gain(n_asks[node]) if kind == "ask" else 1) / n_jobs[node]

        return [rate(node, kind) for node, kind, _, _ in self.jobs]

    def _advance(self):
        passed = self.clock.now - self.since
        if self.jobs:
            for job, rate in zip(self.jobs, self.rates):
                job[2] -= passed * rate
            for node in {job[0] for job in self.jobs} - {None}:
                node.busy += passed
        self.since = self.clock.now

    def _plan(self):
        self.epoch += 1
        self.rates = self._rates()
        if self.jobs:
            left = min(max(0.0, job[2]) / rate for job, rate in zip(self.jobs, self.rates))
            self.clock.after(left, self._end, self.epoch)

    def add(self, node, kind, seconds, done):
        self._advance()
        self.jobs.append([node, kind, seconds, done])
        self._plan()

    def _end(self, epoch):
        if epoch != self.epoch:
            return
        self._advance()
        ended = [job for job in self.jobs if job[2] <= 1e-9]
        self.jobs = [job for job in self.jobs if job[2] > 1e-9]
        self._plan()
        for job in ended:
            job[3](True)

    def die(self, node):
        self._advance()
        lost = [job for job in self.jobs if job[0] is node]
        self.jobs = [job for job in self.jobs if job[0] is not node]
        self._plan()
        for job in lost:
            job[3](False)


class Store:
    """Bytes a second for all, one after another, and a time for each object."""

    def __init__(self, clock, bandwidth, seconds):
        self.clock, self.bandwidth, self.seconds, self.free = clock, bandwidth, seconds, 0.0
        self.bytes = self.n = self.worst = 0

    def move(self, n_bytes, done):
        begin = max(self.clock.now, self.free)
        self.free = begin + n_bytes / self.bandwidth
        self.worst = max(self.worst, self.free - self.clock.now)
        self.clock.at(self.free + self.seconds, self._moved, n_bytes, done)

    def _moved(self, n_bytes, done):
        self.bytes += n_bytes
        self.n += 1
        done()


class Node:
    def __init__(self, machine):
        self.machine, self.up, self.life, self.busy = machine, True, 0, 0.0
        self.kept = {}  # by life: whether it ended gracefully
        self.held = 0  # sessions in its budget

    def work(self, kind, done):
        """A job of the engine; done(False) if the node dies first."""
        self.machine.add(self, kind, self.machine.measured.demand[kind], done)

    def wait(self, seconds, then):
        """What a request takes beside the engine, on the node's machine."""
        self.machine.add(None, "", seconds, lambda _: then())


class Fleet:
    def __init__(self, measured, options):
        self.m, self.o = measured, options
        self.clock, self.lot = Clock(), random.Random(options.seed)
        self.store = Store(self.clock, options.bandwidth, options.store_seconds)
        machine = lambda processors: Machine(self.clock, measured, processors)
        shared = machine(options.processors) if options.processors else None
        self.nodes = [Node(shared or machine(math.inf)) for _ in range(options.nodes)]
        self.times, self.by_kind, self.restores, self.takeovers, self.refused = [], {}, 0, 0, 0
        for _ in range(options.sessions):
            Session(self)
        if options.kill_every:
            self.clock.after(options.kill_every, self._kill)
        if options.storm:
            self.clock.at(options.seconds / 3, self._storm)

    def any_node(self):
        up = [n for n in self.nodes if n.up and n.held < (self.o.room or math.inf)]
        return self.lot.choice(up) if up else None

    def _kill(self):
        up = [n for n in self.nodes if n.up]
        if up:
            node = self.lot.choice(up)
            self.die(node, kept=self.lot.random() >= self.o.kill_share)
        self.clock.after(self.o.kill_every, self._kill)

    def _storm(self):
        for node in self.lot.sample(self.nodes, max(1, round(self.o.storm * len(self.nodes)))):
            self.die(node, kept=False)

    def die(self, node, kept):
        """kept: a graceful end, after which sessions are in the store as they were; jobs are done before it."""
        if not kept:
            node.machine.die(node)
        node.kept[node.life] = kept
        n_left = node.held if kept else 0
        node.up, node.life, node.held = False, node.life + 1, 0
        threads = self.o.leaving

        def ended():
            nonlocal threads
            threads -= 1
            if threads <= 0:
                self.clock.after(self.o.down, node.wait, self.m.start, again)

        def again():
            node.up = True

        share = min(1.0, (self.o.processors or threads) / threads)
        for _ in range(threads):
            node.wait(n_left * self.m.leave * share, ended)

    def run(self):
        self.clock.run(self.o.seconds)
        return self


class Session:
    def __init__(self, fleet):
        self.f = fleet
        self.node, self.life = None, 0
        # Where each is in its thinking at the start.
        self.take(fleet.any_node())
        fleet.clock.after(fleet.lot.expovariate(1 / fleet.o.think), self.begin)

    def take(self, node):
        self.node, self.life = node, node.life
        node.held += 1

    def here(self):
        return self.node.up and self.node.life == self.life

    def begin(self):
        self.began = self.f.clock.now
        self.go(0)

    def go(self, k):
        """Request k of a turn: append, ask, save."""
        if k == 0:
            self.delays = self.f.m.turn(self.f.lot)
        if k == 3 or k == 2 and self.f.lot.random() >= self.f.o.saves:
            self.f.times.append((self.began, self.f.clock.now - self.began))
            return self.f.clock.after(self.f.lot.expovariate(1 / self.f.o.think), self.begin)
        if not self.here():
            return self.elsewhere(k)
        kind = TURN[k]
        asked = self.f.clock.now

        def done(whole):
            if not whole:
                return self.restore()
            delay = self.delays[k]
            if kind == "save":
                self.f.store.move(self.f.m.snapshot_bytes, lambda: self.node.wait(delay, told))
            else:
                self.node.wait(delay, told)

        def told():
            self.f.by_kind.setdefault(kind, []).append(self.f.clock.now - asked)
            self.go(k + 1)

        self.node.work(kind, done)

    def elsewhere(self, k):
        """The node that had the session has it no more; request k is sent."""
        if self.node.kept.get(self.life, False):
            self.f.takeovers += 1
            wait = self.f.m.takeover(self.f.lot)
            self.load(lambda: self.node.wait(wait, lambda: self.go(k)))
        else:
            self.restore()

    def restore(self):
        """The client's requests: one that finds nothing, a deletion that finds nothing, a restore; then the turn.
        What finds nothing is sent to server after server."""
        self.f.restores += 1
        wait = self.f.m.lost_session(self.f.lot, min(len(self.f.nodes), self.f.o.tries))
        self.load(lambda: self.node.wait(wait, lambda: self.go(0)))

    def load(self, then):
        """From the store into a node that is up."""
        node = self.f.any_node()
        if node is None:  # none is up, or has room: 429
            self.f.refused += 1
            return self.f.clock.after(1, self.load, then)
        self.take(node)

        def read():
            if not self.here():
                return self.load(then)
            self.node.work("restore", lambda whole: then() if whole else self.load(then))

        self.f.store.move(self.f.m.snapshot_bytes, read)


def quantile(values, q):
    """By nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else math.nan


def simulate(measured, options):
    fleet = Fleet(measured, options).run()
    times = [t for _, t in fleet.times]
    return {
        "turns": len(times),
        "turns_a_second": len(times) / options.seconds,
        "p50": quantile(times, 0.5),
        "p99": quantile(times, 0.99),
        "busy": sum(n.busy for n in fleet.nodes) / options.seconds / len(fleet.nodes),
        "restores": fleet.restores,
        "takeovers": fleet.takeovers,
        "by_kind": {k: (quantile(v, 0.5), quantile(v, 0.99)) for k, v in fleet.by_kind.items()},
        "store_bytes_a_second": fleet.store.bytes / options.seconds,
        "store_objects_a_second": fleet.store.n / options.seconds,
        "store_worst_wait": fleet.store.worst,
        "fleet": fleet,
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", nargs="+")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--sessions", type=int, default=500, help="of the whole fleet; with --table: of a node")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--think", type=float, default=30)
    parser.add_argument("--kill-every", type=float, default=0)
    parser.add_argument("--kill-share", type=float, default=0.5, help="of the deaths; the others are graceful ends")
    parser.add_argument("--room", type=int, default=0, help="sessions that a node's budget has room for; 0: any number")
    parser.add_argument("--tries", type=int, default=9, help="servers that a proxy asks for a session, at most")
    parser.add_argument("--down", type=float, default=2)
    parser.add_argument("--processors", type=int, default=0, help="all nodes, clients and proxies are on one machine")
    parser.add_argument("--leaving", type=int, default=8, help="threads with which a node hands its sessions over")
    parser.add_argument("--storm", type=float, default=0, help="share of the nodes that die at once, after a third")
    parser.add_argument("--saves", type=float, default=1, help="share of the turns that end with a save")
    parser.add_argument("--bandwidth", type=float, default=1e9, help="of the store, bytes a second")
    parser.add_argument("--store-seconds", type=float, default=0.0, help="of an object, beside its bytes")
    parser.add_argument("--delays", metavar="CALLS", help="take delays from a file that rehearse_fleet --calls wrote")
    parser.add_argument("--no-delays", action="store_true", help="leave out what requests took beside the processor")
    parser.add_argument("--price", type=float, default=0.1, help="of a node and hour; an assumption of yours")
    parser.add_argument("--most", type=int, default=16, help="nodes that are simulated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="fleets of 1 to 10,000 nodes")
    parser.add_argument("--json", help="file for the results")
    return parser.parse_args()


def table(measured, options):
    """Rows of fleets; each is simulated with at most --most nodes and their share of the store."""
    per_node, bandwidth, rows = options.sessions, options.bandwidth, []
    print(
        "| nodes | sessions | turns/s | busy | p50 ms | p99 ms | store objects/s | store MB/s | cost of 10^6 tokens |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for n in (1, 3, 10, 30, 100, 300, 1000, 3000, 10000):
        options.nodes = min(n, options.most)
        options.sessions = per_node * options.nodes
        options.bandwidth = bandwidth * options.nodes / n
        r = simulate(measured, options)
        scale = n / options.nodes
        tokens = r["turns_a_second"] * scale * sum(measured.tokens.values())
        cost = n * options.price / 3600 / tokens * 1e6
        moved, objects = r["store_bytes_a_second"] * scale, r["store_objects_a_second"] * scale
        print(
            f"| {n} | {per_node * n} | {r['turns_a_second'] * scale:.0f} | {r['busy']:.2f} | {1000 * r['p50']:.0f} | "
            f"{1000 * r['p99']:.0f} | {objects:.0f} | {moved / 1e6:.1f} | {cost:.3f} |"
        )
        rows.append({"nodes": n, "cost": cost, **{k: v for k, v in r.items() if k != "fleet"}})
    return rows


def main():
    options = arguments()
    measured = Measured(*options.measured, delays=not options.no_delays)
    if options.delays:
        measured.delays_of(options.delays)
    if options.table:
        rows = table(measured, options)
    else:
        r = simulate(measured, options)
        print(
            f"turns {r['turns']}, {r['turns_a_second']:.2f} a second; p50 {1000 * r['p50']:.1f} ms, "
            f"p99 {1000 * r['p99']:.1f} ms; engines busy {r['busy']:.3f}"
        )
        print(f"restored {r['restores']}, taken over {r['takeovers']}")
        for kind, (p50, p99) in r["by_kind"].items():
            print(f"  {kind:8} p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms")
        if options.storm:
            storm(r["fleet"], options)
        rows = [{k: v for k, v in r.items() if k != "fleet"}]
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


def storm(fleet, options):
    """Turns that began in each of the seconds after the nodes died."""
    at = options.seconds / 3
    for begin, end in ((-60, 0), (0, 10), (10, 30), (30, 60), (60, 120), (120, 300)):
        times = [t for began, t in fleet.times if begin <= began - at < end]
        print(
            f"  {begin} to {end} s after: {len(times)} turns, p50 {1000 * quantile(times, 0.5):.0f} ms, "
            f"p99 {1000 * quantile(times, 0.99):.0f} ms"
        )
    print(f"  the store's longest queue {fleet.store.worst:.1f} s, times that no node had room: {fleet.refused}")


if __name__ == "__main__":
    main()
