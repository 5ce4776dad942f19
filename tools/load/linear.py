#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Is a recorded history of requests on sessions one that a single server could have given?

    tools/load/linear.py HISTORY        JSON lines of tools/load/split_brain.py

The check is linearizability (Herlihy and Wing 1990): every acknowledged operation must seem to have happened at one
moment between its request and its answer, all of a session's in one order. The search is that of Wing and Gong with
Lowe's memory of what was tried, as in Knossos and porcupine; sessions are searched one by one, because they share
nothing.

An operation is a dict: session, client, kind ("append2" of two words, "ask", "read"), call and back (moments; back
None: no answer came), outcome ("ok", "failed": it must not have happened, "unknown": it may have happened, at any
time from its call on, or never), and of an "ok" one `seen`, the length of the session's stream after it.

A session is modelled by that length, as an interval: what one operation adds follows from its kind and the one before
(`deltas`, measured on a server that nobody disturbs). An append is read as a whole or not at all. An answer that
nobody waited for may have been cut anywhere; until the next acknowledged operation the length is then known within
bounds only.
"""

import json
import math
import sys

# What a cut answer may have left open adds to the next operation.
SLACK = 8
DIGITS = "0123456789"


class Model:
    """deltas: {(before, kind): tokens}; before: "append", "ask", or "begin"."""

    def __init__(self, deltas):
        self.exact = deltas
        self.span = {}
        for kind in {kind for _, kind in deltas}:
            values = [n for (_, k), n in deltas.items() if k == kind]
            self.span[kind] = (min(values) - SLACK, max(values) + SLACK)

    def delta(self, before, kind):
        if before == "?":
            return self.span[kind]
        n = self.exact[before, kind]
        return n, n

    def step(self, state, op):
        """The state after op, or None where the answer it got cannot be."""
        low, high, before = state
        known = op["outcome"] == "ok"
        if op["kind"] == "read":
            if not known:
                return state
            return (op["seen"], op["seen"], before) if low <= op["seen"] <= high else None
        least, most = self.delta(before, op["kind"])
        if known:
            return (
                (op["seen"], op["seen"], op["kind"].rstrip(DIGITS))
                if low + least <= op["seen"] <= high + most
                else None
            )
        if op["kind"] == "ask":
            return low, high + most, "?"
        return low + least, high + most, op["kind"].rstrip(DIGITS)


def order_of(ops, model, begin=0):
    """An order in which one server could have done a session's operations, as indices; None: there is none.

    Operations that failed take no part: they must not have happened.
    """
    index = [i for i, op in enumerate(ops) if op["outcome"] != "failed"]
    index = [i for i in index if ops[i]["outcome"] == "ok" or ops[i]["kind"] != "read"]
    index.sort(key=lambda i: ops[i]["call"])
    n = len(index)
    calls = [ops[i]["call"] for i in index]
    backs = [ops[i]["back"] if ops[i]["outcome"] == "ok" else math.inf for i in index]
    wanted = sum(1 << k for k in range(n) if backs[k] != math.inf)

    def candidates(done):
        # Those that began before any that is left had ended.
        end = min((backs[k] for k in range(n) if not done >> k & 1), default=math.inf)
        left = [k for k in range(n) if not done >> k & 1 and calls[k] <= end]
        left.sort(key=lambda k: backs[k])  # what was acknowledged first
        return left

    start = (begin, begin, "begin")
    tried = {(0, start)}
    stack = [(0, start, iter(candidates(0)))]
    order = []
    while stack:
        done, state, left = stack[-1]
        if done & wanted == wanted:
            return order
        for k in left:
            after = model.step(state, ops[index[k]])
            key = (done | 1 << k, after)
            if after is None or key in tried:
                continue
            tried.add(key)
            order.append(index[k])
            stack.append((*key, iter(candidates(key[0]))))
            break
        else:
            stack.pop()
            if order:
                order.pop()
    return None


def check(history, model, begin=0):
    """{session: order or None}"""
    sessions = {}
    for op in history:
        sessions.setdefault(op["session"], []).append(op)
    return {session: order_of(ops, model, begin) for session, ops in sessions.items()}


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    with open(sys.argv[1], encoding="utf-8") as lines:
        first, *rest = [json.loads(line) for line in lines]
    model = Model({(before, kind): n for before, kind, n in first["deltas"]})
    found = check(rest, model, first["begin"])
    wrong = [session for session, order in found.items() if order is None]
    for session in wrong:
        print(f"{session}: no order of its operations gives these answers")
    print(f"{len(rest)} operations on {len(found)} sessions, {len(wrong)} of them not linearizable")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
