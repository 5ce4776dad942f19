# SPDX-License-Identifier: Apache-2.0
"""What tools/load/linear.py accepts and, more to the point, refuses."""

import random
import unittest

from tools.load.linear import Model, check, order_of

DELTAS = {("begin", "append"): 10, ("append", "append"): 5, ("ask", "append"): 7, ("begin", "ask"): 20}
DELTAS |= {("append", "ask"): 12, ("ask", "ask"): 14}
MODEL = Model(DELTAS)


def op(kind, call, back, seen=None, outcome=None, session="s", client=0):
    outcome = outcome or ("unknown" if back is None else "ok")
    return {
        "session": session, "client": client, "kind": kind, "call": call, "back": back, "outcome": outcome, "seen": seen
    }  # fmt: skip


class Linear(unittest.TestCase):
    def accepts(self, *ops):
        self.assertIsNotNone(order_of(list(ops), MODEL))

    def refuses(self, *ops):
        self.assertIsNone(order_of(list(ops), MODEL))

    def test_one_after_the_other(self):
        self.accepts(op("append", 0, 1, 10), op("append", 2, 3, 15), op("ask", 4, 5, 27), op("read", 6, 7, 27))
        self.accepts()

    def test_the_order_of_those_that_overlap_is_free(self):
        self.accepts(op("append", 0, 9, 15), op("append", 1, 8, 10), op("read", 2, 3, 10))
        self.accepts(op("read", 0, 9, 0), op("append", 1, 2, 10))
        self.refuses(op("append", 0, 1, 15), op("append", 2, 3, 10))

    def test_an_acknowledged_append_that_is_lost(self):
        self.refuses(op("append", 0, 1, 10), op("append", 2, 3, 15), op("read", 4, 5, 10))
        self.refuses(op("append", 0, 1, 10), op("read", 2, 3, 0))

    def test_two_owners_that_both_answer(self):
        self.refuses(op("append", 0, 1, 10), op("append", 2, 9, 15), op("append", 3, 8, 15))
        self.refuses(op("append", 0, 1, 10), op("append", 2, 9, 15), op("ask", 3, 8, 22))

    def test_a_stale_read(self):
        self.refuses(op("append", 0, 1, 10), op("append", 2, 3, 15), op("read", 4, 9, 10), op("read", 5, 6, 15))
        self.accepts(op("append", 0, 1, 10), op("append", 2, 7, 15), op("read", 4, 9, 10), op("read", 5, 6, 10))

    def test_a_read_of_what_was_not_asked_yet(self):
        self.refuses(op("read", 0, 1, 10), op("append", 2, 3, 10))

    def test_what_nobody_answered_happens_once_later_or_never(self):
        lost = op("append", 0, None)
        self.accepts(lost, op("read", 5, 6, 0), op("read", 7, 8, 0))
        self.accepts(lost, op("read", 5, 6, 0), op("read", 7, 8, 10))
        self.accepts(lost, op("append", 1, 2, 10), op("read", 3, 4, 10), op("read", 5, 6, 15))
        self.refuses(lost, op("read", 5, 6, 10), op("read", 7, 8, 0))
        self.refuses(lost, op("read", 5, 6, 10), op("read", 7, 8, 15))
        self.refuses(op("read", 1, 2, 10), op("append", 3, None))

    def test_what_failed_has_not_happened(self):
        self.refuses(op("append", 0, 1, outcome="failed"), op("read", 2, 3, 10))
        self.accepts(op("append", 0, 1, outcome="failed"), op("read", 2, 3, 0))

    def test_an_answer_that_nobody_waited_for_may_be_cut(self):
        cut = op("ask", 0, None)
        for seen in (0, 3, 20):
            self.accepts(cut, op("read", 5, 6, seen), op("read", 7, 8, seen))
        self.refuses(cut, op("read", 5, 6, 60))
        self.refuses(cut, op("read", 5, 6, 12), op("read", 7, 8, 3))

    def test_sessions_are_apart(self):
        found = check([op("append", 0, 1, 10, session="a"), op("append", 2, 3, 11, session="b")], MODEL)
        self.assertIsNotNone(found["a"])
        self.assertIsNone(found["b"])

    def test_histories_of_a_real_register_and_the_same_with_one_answer_changed(self):
        """Made by a simulated server: accepted; with one acknowledged length changed: refused."""
        rng = random.Random(5)
        refused = 0
        for _ in range(60):
            ops, seen, before, now = [], 0, "begin", 0
            open_ops = []
            for _ in range(60):
                now += rng.random()
                if len(open_ops) < 3 and rng.random() < 0.6:
                    open_ops.append(op(rng.choice(["append", "ask", "read"]), now, None))
                elif open_ops:
                    one = open_ops.pop(rng.randrange(len(open_ops)))
                    if one["kind"] == "append" and rng.random() < 0.1:  # its answer is lost
                        if rng.random() < 0.5:
                            seen, before = seen + DELTAS[before, "append"], "append"
                        ops.append(one)
                        continue
                    if one["kind"] != "read":
                        seen, before = seen + DELTAS[before, one["kind"]], one["kind"]
                    now += rng.random()
                    ops.append(one | {"back": now, "outcome": "ok", "seen": seen})
            self.assertIsNotNone(order_of(ops, MODEL))
            done = [i for i, one in enumerate(ops) if one["outcome"] == "ok"]
            wrong = [dict(one) for one in ops]
            wrong[rng.choice(done)]["seen"] += rng.choice([-1, 1])
            refused += order_of(wrong, MODEL) is None
        # A length one off fits no sum of these deltas, unless nothing depends on it.
        self.assertGreaterEqual(refused, 58)


if __name__ == "__main__":
    unittest.main()
