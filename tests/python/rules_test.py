# SPDX-License-Identifier: Apache-2.0
"""Rules of a session: when() calls back, before append() returns, and leaves no trace in the stream."""

import asyncio
import threading
import unittest

import numpy as np
import weir

from . import support

LINES = (" the sea", " the man came", " and a boat, the river", " of the man")
JUMPY = {"score": 1e-6, "odds": -30, "hold": 1, "learn": 9}
WHO, NEAR = "Who came? => the man", "What is near? => sea"


def say(session, begin, end):
    for i in range(begin, end):
        session.append(LINES[i * i % 7 % 4], t=i)


class RulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = weir.Model(support.MODEL, threads=1)

    def test_a_callback_gets_events_and_the_stream_none(self):
        with self.model.session(pot=96) as s, self.model.session(pot=96) as other:
            events = []
            self.assertEqual(s.when(WHO, events.append, **JUMPY), "r1")
            self.assertEqual(s.when(" " + NEAR, events.append, id="sea"), "sea")
            self.assertEqual([rule.state for rule in s.rules()], ["learns", "learns"])
            self.assertIsNone(s.rules()[0].score)
            n_bytes = s.counters().bytes
            say(s, 0, 30)
            say(other, 0, 30)
            self.assertGreaterEqual(len(events), 3)
            self.assertEqual([event.id for event in events], list(range(1, len(events) + 1)))
            self.assertEqual([event.state for event in events], (["began", "ended"] * len(events))[: len(events)])
            self.assertEqual(events[1].began_id, events[0].id)
            first = events[0]
            self.assertEqual((first.rule, first.when), ("r1", WHO))
            self.assertTrue(0 <= first.since <= first.t < 30)
            self.assertIn("the", first.evidence.text)
            self.assertLess(first.evidence.begin, first.evidence.end)
            self.assertGreater(s.rule_cost().n_tokens, 60)
            self.assertEqual(s.rule_cost().n_checks, 30)
            self.assertIsInstance(s.rules()[1].log_odds, float)
            self.assertEqual(s.counters().bytes, n_bytes)
            for rule in s.rules():
                s.remove_rule(rule.id)
            with self.assertRaises(weir.NotFoundError):
                s.remove_rule("r1")
            self.assertEqual(s.state(), other.state())

    def test_a_callback_may_use_its_session(self):
        with self.model.session(pot=96) as s:
            told = []

            def ask(event):
                told.append((event.state, s.ask("what?", max_tokens=3, temperature=0).read(), s.seen))
                s.append(" the boat")

            s.when(WHO, ask, **JUMPY)
            say(s, 0, 30)
            self.assertTrue(told)

    def test_what_a_callback_raises_is_raised_after_all_were_called(self):
        with self.model.session(pot=96) as s:
            told = []

            def fail(event):
                told.append(event.rule)
                raise RuntimeError(event.rule)

            s.when(WHO, fail, **JUMPY)
            s.when(WHO, fail, **JUMPY)
            with self.assertRaisesRegex(RuntimeError, "r1"):
                say(s, 0, 30)
            self.assertEqual(told, ["r1", "r2"])
            seen = s.seen
            s.append(" the sea")
            self.assertGreater(s.seen, seen)

    def test_forks_and_states_keep_rules(self):
        with self.model.session(pot=96) as s, self.model.session(pot=96) as other:
            events, again = [], []
            s.when(WHO, lambda event: events.append(event), **JUMPY)
            say(s, 0, 10)
            state, n = s.state(), len(events)
            twin = s.fork()
            say(s, 10, 30)
            first, events[:] = events[n:], []
            self.assertTrue(first)
            say(twin, 10, 30)
            self.assertEqual(events, first)
            other.restore(state)
            say(other, 10, 12)  # nobody is told
            other.restore(state)
            self.assertEqual(other.when(WHO, again.append), "r1")  # the rule of the state, with what it learned
            self.assertEqual(len(other.rules()), 1)
            say(other, 10, 30)
            self.assertEqual(again, first)
            s.restore(state)
            events.clear()
            say(s, 10, 30)
            self.assertEqual(events, first)
            s.reset()
            self.assertEqual(s.rules(), [])
            self.assertEqual(s.when(WHO, again.append), "r1")

    def test_what_is_refused(self):
        with self.model.session(pot=96, rule_tokens=0) as s:
            for call in (lambda: s.when(WHO, print), s.rules, s.rule_cost):
                with self.assertRaisesRegex(weir.InvalidArgumentError, "rule_tokens"):
                    call()
        with self.assertRaises(ValueError):
            self.model.session(pot=96, rule_tokens=-1)

        async def late(event):
            pass

        with self.model.session(pot=96) as s:
            with self.assertRaises(weir.UnsupportedError):  # the tiny vocabulary has no yes
                s.when("a parcel lies there", print)
            for bad in (late, None, 3):
                with self.assertRaises(TypeError):
                    s.when(WHO, bad)
            for options in (
                {"score": 0},
                {"score": float("nan")},
                {"odds": 31},
                {"hold": 0},
                {"learn": 65},
                {"cooldown": -1},
                {"id": "a b"},
                {"id": ""},
            ):
                with self.subTest(options), self.assertRaises(ValueError):
                    s.when(WHO, print, **options)
            with self.assertRaises(weir.InvalidArgumentError):
                s.when("the sea " * 100 + "=> sea", print)
            with self.assertRaises(TypeError):
                s.when(7, print)
            s.when(WHO, print, id="door")
            with self.assertRaises(weir.InvalidArgumentError):
                s.when(NEAR, print, id="door")
        with self.assertRaises(weir.ClosedError):
            s.when(WHO, print)

    def test_frames_and_threads_and_tasks(self):
        model = weir.Model(support.LLAVA, mmproj=support.CLIP, threads=1)
        with model.session(pot=128, picture_side=64, rule_tokens=128) as s:
            events, threads = [], set()

            def note(event):
                events.append(event)
                threads.add(threading.current_thread())

            s.when("What is it? => the sea", note, **JUMPY)

            async def see():
                for second in range(16):
                    grey = 250 if second % 5 == 0 else 10 * second
                    await s.append_async(np.full((48, 48, 3), grey, np.uint8), t=second)

            asyncio.run(see())
            self.assertTrue(events)
            self.assertEqual(events[0].evidence.frames[-1], events[0].t)
            self.assertNotIn(threading.current_thread(), threads)
            self.assertEqual(s.rule_cost().n_checks, 16)


if __name__ == "__main__":
    unittest.main()
