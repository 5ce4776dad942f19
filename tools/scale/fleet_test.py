# SPDX-License-Identifier: Apache-2.0
"""The simulation against what is known of such systems in closed form."""

import json
import tempfile
import unittest
from argparse import Namespace
from pathlib import Path

from tools.scale.fleet import Measured, simulate

ASK = 0.5


def measured(joint=None, ask=ASK, snapshot=1000):
    kinds = {"append": 1e-8, "ask": ask, "save": 1e-8, "restore": 1e-8}
    raw = {kind: {"cpu": cpu, "seconds": [cpu]} for kind, cpu in kinds.items()}
    raw.update(nodes=4, joint=joint or {"1": 1.0}, snapshot_bytes=snapshot, session_bytes=1, read_tokens=10, tokens=20)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(raw, file)
        file.flush()
        return Measured(Path(file.name))


def options(**given):
    base = {
        "nodes": 1, "sessions": 1, "seconds": 20000, "think": 10.0, "kill_every": 0, "down": 2, "storm": 0, "room": 0,
        "tries": 9, "processors": 0, "leaving": 8, "kill_share": 0.5, "saves": 1, "bandwidth": 1e12,
        "store_seconds": 0.0, "seed": 1,
    }  # fmt: skip
    return Namespace(**{**base, **given})


def mean(result):
    times = [t for _, t in result["fleet"].times]
    return sum(times) / len(times)


class FleetTest(unittest.TestCase):
    def test_one_session_waits_for_nobody(self):
        r = simulate(measured(), options())
        self.assertAlmostEqual(mean(r), ASK, places=6)
        self.assertAlmostEqual(r["turns_a_second"], 1 / (10 + ASK), delta=0.003)

    def test_processor_sharing(self):
        """Many sessions that think long come like a Poisson stream. The mean time of a turn under processor sharing is
        s / (1 - load), whatever the distribution of s."""
        for load in (0.3, 0.6, 0.8):
            n = 3000
            r = simulate(measured(), options(sessions=n, think=n * ASK / load, seconds=15000))
            self.assertAlmostEqual(r["busy"], load, delta=0.02)
            self.assertAlmostEqual(mean(r), ASK / (1 - load), delta=0.07 * ASK / (1 - load))

    def test_nodes_on_one_machine_share_its_processors(self):
        """Two engines that are always busy have a processor each, or half of one."""
        for processors, turns in ((0, 2), (2, 2), (1, 1)):
            r = simulate(measured(), options(nodes=2, sessions=40, think=1e-6, seconds=1000, processors=processors))
            self.assertAlmostEqual(r["turns_a_second"], turns / ASK, delta=0.05)

    def test_sessions_that_leave_a_node_slow_the_others_of_its_machine(self):
        lasting = measured()
        lasting.leave = 1.0  # of ten sessions: ten seconds, with eight threads
        slow = options(nodes=4, sessions=40, seconds=2000, kill_every=100, kill_share=0.0)
        apart = simulate(lasting, slow)
        together = simulate(lasting, options(**{**vars(slow), "processors": 1}))
        self.assertGreater(apart["takeovers"], 100)
        self.assertGreater(mean(together), 1.2 * mean(apart))

    def test_joint_answers_raise_the_most_that_a_node_does(self):
        alone = simulate(measured(), options(sessions=8, think=1e-6, seconds=1000))
        together = simulate(measured({"1": 1.0, "8": 0.5}), options(sessions=8, think=1e-6, seconds=1000))
        self.assertAlmostEqual(alone["turns_a_second"], 1 / ASK, delta=0.02)
        self.assertAlmostEqual(together["turns_a_second"], 2 / ASK, delta=0.1)

    def test_the_store_can_be_what_breaks(self):
        r = simulate(measured(ask=0.001), options(sessions=100, think=0.1, seconds=1000, bandwidth=50_000))
        self.assertAlmostEqual(r["turns_a_second"], 50, delta=1)
        self.assertLessEqual(r["store_bytes_a_second"], 50_000 * 1.001)

    def test_nodes_that_die(self):
        quiet = simulate(measured(), options(nodes=4, sessions=40, seconds=2000))
        self.assertEqual((quiet["restores"], quiet["takeovers"]), (0, 0))
        r = simulate(measured(), options(nodes=4, sessions=40, seconds=2000, kill_every=20))
        self.assertGreater(r["restores"], 100)
        self.assertGreater(r["takeovers"], 100)
        self.assertGreater(r["turns"], 0.85 * quiet["turns"])
        again = simulate(measured(), options(nodes=4, sessions=40, seconds=2000, kill_every=20))
        self.assertEqual(r["turns"], again["turns"])

    def test_a_fleet_without_room_for_the_dead(self):
        full = simulate(measured(), options(nodes=10, sessions=100, room=10, seconds=900, storm=0.1, down=100))
        spare = simulate(measured(), options(nodes=10, sessions=100, room=12, seconds=900, storm=0.1, down=100))
        self.assertGreater(max(t for _, t in full["fleet"].times), 60)
        self.assertLess(max(t for _, t in spare["fleet"].times), 20)


if __name__ == "__main__":
    unittest.main()
