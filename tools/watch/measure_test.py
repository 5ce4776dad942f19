# SPDX-License-Identifier: Apache-2.0
"""The streams with events, and how alarms are scored."""

import unittest

from tools.watch import events, logs, measure, measure_text


class StreamTest(unittest.TestCase):
    def test_events_are_where_the_facts_are(self):
        for number in range(5):
            stream = events.make_stream("train", 3, number, 40)
            frames = list(stream.frames)
            self.assertEqual(len(frames), stream.n_frames)
            self.assertTrue(stream.events)
            last = {}
            for event in stream.events:
                self.assertLess(event.rule, len(stream.rules))
                self.assertTrue(4 <= event.last - event.first + 1 <= 10)
                self.assertGreater(event.first, last.get(event.rule, -2) + 1)
                last[event.rule] = event.last
            self.assertNotIn("nothing", [rule.answer for rule in stream.rules])

    def test_a_stream_is_a_function_of_its_numbers(self):
        one, two = (events.make_stream("held_out", 3, 1, 8) for _ in range(2))
        self.assertEqual((one.rules, one.events), (two.rules, two.events))
        self.assertTrue(all((a == b).all() for a, b in zip(one.frames, two.frames, strict=True)))
        other = events.make_stream("train", 3, 1, 8)
        self.assertNotEqual(one.events, other.events)


class ScoreTest(unittest.TestCase):
    def test_hits_misses_and_false_alarms(self):
        rules = [
            events.Rule("colour", "colour", "What colour is it?", "red"),
            events.Rule("shape", "shape", "What shape is it?", "star"),
        ]
        happened = [events.Event(0, 10, 14), events.Event(0, 30, 34), events.Event(1, 40, 44)]
        stream = events.Stream("shape", rules, happened, 60, iter(()))
        # Early, in time, again within the event, too late; in time; the other rule's, late but not too late.
        alarms = [(0, 9), (0, 11), (0, 14), (0, 17), (0, 30), (1, 46)]
        kinds = measure.score(stream, alarms, late=2)
        self.assertEqual(kinds["colour"], dict(events=2, hits=2, false=3, delays=[1, 0]))
        self.assertEqual(kinds["shape"], dict(events=1, hits=1, false=0, delays=[6]))
        self.assertEqual(measure.score(stream, [], late=2)["shape"]["hits"], 0)


class LogTest(unittest.TestCase):
    def test_incidents_are_where_their_lines_are(self):
        lines, incidents = [], []
        for line in logs.make_log(3, 20000):
            lines.append(line.text)
            incidents += [line.begins] if line.begins else []
        self.assertGreater(len(incidents), 20)
        self.assertEqual(lines, [line.text for line in logs.make_log(3, 20000)])
        self.assertNotEqual(lines[:50], [line.text for line in logs.make_log(4, 50)])
        inside = set()
        for i in incidents:
            self.assertTrue(logs.LINES[0] <= i.last - i.first + 1 <= logs.LINES[1])
            inside.update(range(i.first, i.last + 1))
        # The words of an incident's lines occur in incidents only.
        for number, line in enumerate(lines, 1):
            if any(word in line for word in ("oom", "unreadable", "Failed password", "Connection refused")):
                self.assertIn(number, inside, line)

    def test_hits_and_false_alarms(self):
        happened = [logs.Incident("disk", 100, 120), logs.Incident("login", 300, 320)]
        alarms = [("disk", 99), ("disk", 105), ("disk", 110), ("login", 328), ("memory", 301)]
        kinds, delays = measure_text.score(happened, alarms, late=10)
        self.assertEqual(kinds["disk"], measure_text.Kind(1, 1, 2))
        self.assertEqual(kinds["login"], measure_text.Kind(1, 1, 0))
        self.assertEqual(kinds["memory"], measure_text.Kind(0, 0, 1))
        self.assertEqual(delays, [5, 28])


if __name__ == "__main__":
    unittest.main()
