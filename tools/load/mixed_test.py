# SPDX-License-Identifier: Apache-2.0
"""The memory that tools/load/mixed.py gives a group, what it reads of one, and what it takes for a wrong answer."""

import collections
import random
import tempfile
import unittest
import zlib
from pathlib import Path

from tools.load import mixed


class Answers:
    """A server that says what it is told to say."""

    def __init__(self, *said: tuple[int, str]):
        self.said = list(said)

    def call(self, *_):
        return self.said.pop(0)


def asker(known: dict, *said: tuple[int, str]) -> mixed.Asker:
    return mixed.Asker(Answers(*said), known, collections.Counter(), "test")


class Mixed(unittest.TestCase):
    def test_the_limit_grows_by_what_is_planned_and_by_nothing_else(self):
        least = mixed.limit_of(0, 0)
        self.assertEqual(mixed.limit_of(5 << 20, 3 << 20), least + (8 << 20))
        self.assertLess(least, 130 << 20)

    def test_an_answer_that_is_another_one_or_an_error_is_wrong(self):
        chat = lambda text: (200, '{"choices": [{"message": {"content": "%s"}}]}' % text)  # noqa: UP031
        known = {}
        asker(known, chat("a")).chat(1)
        asker(known, chat("a")).chat(1)
        for said in (chat("b"), (500, "{}"), (404, "{}")):
            with self.assertRaises(mixed.Wrong):
                asker(known, said).chat(1)
        for status in (429, 503):
            with self.assertRaises(mixed.Refused):
                asker(known, (status, "{}")).chat(1)

    def test_a_stream_is_its_pieces(self):
        piece = 'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n'
        known = {"chat 1": "ab"}
        asker(known, (200, piece % "a" + piece % "b" + "data: [DONE]\n\n")).stream(1)
        with self.assertRaises(mixed.Wrong):
            asker(known, (200, piece % "a")).stream(1)

    def test_a_session_that_cannot_go_on_is_deleted(self):
        server = asker({}, (201, '{"id": "s"}'), (429, "{}"), (200, "{}"))
        with self.assertRaises(mixed.Refused):
            server.session(1)
        self.assertEqual(server.server.said, [])

    def test_hostile_bodies_fit_but_for_the_one_that_must_not(self):
        rng = random.Random(3)
        sizes = [len(mixed.hostile(rng)[1]) for _ in range(500)]
        self.assertGreater(max(sizes), mixed.MAX_BODY)
        self.assertGreater(sum(100_000 < size <= mixed.MAX_BODY for size in sizes), 20)
        self.assertTrue(all(isinstance(mixed.raw_hostile(rng), bytes) for _ in range(50)))

    def test_a_picture_holds_the_pixels_that_it_claims(self):
        picture = mixed.png(2, side=6)
        at = picture.index(b"IDAT")
        rows = zlib.decompress(picture[at + 4 : at + 4 + int.from_bytes(picture[at - 4 : at], "big")])
        self.assertEqual(len(rows), 6 * (3 * 6 + 1))

    def test_groups_of_both_versions(self):
        with tempfile.TemporaryDirectory() as folder:
            for new in (False, True):
                parent = Path(folder) / str(new)
                parent.mkdir()
                if new:
                    (parent / "cgroup.controllers").write_text("memory\n")
                group = mixed.Group(parent, 4096)
                files = {"memory.peak": "7\n", "memory.events": "low 0\nmax 3\noom 2\noom_kill 1\n"} if new else {
                    "memory.max_usage_in_bytes": "7\n", "memory.failcnt": "3\n", "memory.oom_control": "oom_kill 1\n",
                }  # fmt: skip
                for name, text in files.items():
                    (group.folder / name).write_text(text)
                told = group.told()
                self.assertEqual([told[key] for key in ("limit", "peak", "hits", "oom")], [4096, 7, 3, 1])
                self.assertEqual(told["anon"], -1)


if __name__ == "__main__":
    unittest.main()
