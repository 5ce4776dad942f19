# SPDX-License-Identifier: Apache-2.0
"""Tests of the world: the same seeds give the same streams, splits are disjoint, answers are true."""

import json
import os
import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
try:
    import numpy as np
except ImportError as e:
    raise unittest.SkipTest(f"needs numpy: {e}") from e

from tools.train import draw, make_streams, world

MIX = world.Mix(
    clips=(8, 8), frames=(2, 2), rounds=(1, 3), kinds=(1.0, 1.0, 1.0, 1.0), subjects=(0.4, 0.15, 0.1, 0.15, 0.2)
)


def painted(frame, colour):
    """Mask of a frame's pixels of the colour: nearer to it than to any other colour, and not grey."""
    pixels = frame.astype(np.float32)
    names = list(draw.COLOURS)
    distance = np.stack([np.square(pixels - np.array(draw.COLOURS[n])).sum(-1) for n in names])
    nearest = distance.argmin(0) == names.index(colour)
    return nearest & (distance.min(0) < 60**2)


def pieces(mask, smallest=20):
    """Number of connected regions with at least that many pixels."""
    left, n = mask.copy(), 0
    while left.any():
        seed = np.zeros_like(left)
        seed[tuple(np.argwhere(left)[0])] = True
        while True:
            grown = seed.copy()
            for axis in (0, 1):
                for step in (-1, 1):
                    grown |= np.roll(seed, step, axis)
            grown &= left
            if (grown == seed).all():
                break
            seed = grown
        n += seed.sum() >= smallest
        left &= ~seed
    return n


def direction(x, y, least, left, right, up, down, neither):
    if max(abs(x), abs(y)) < least:
        return neither
    return (right if x > 0 else left) if abs(x) > abs(y) else down if y > 0 else up


def streams(split, n, mix=MIX, seed=5):
    return [world.make_stream(split, seed, i, mix) for i in range(n)]


class World(unittest.TestCase):
    def test_the_same_numbers_make_the_same_stream(self):
        for a, b in zip(streams("train", 5), streams("train", 5)):
            for x, y in zip(a, b):
                self.assertEqual((x.number, x.scene.facts, x.rounds), (y.number, y.scene.facts, y.rounds))
                np.testing.assert_array_equal(x.frames, y.frames)

    def test_splits_never_meet(self):
        seen = {split: {c.frames.tobytes() for s in streams(split, 40) for c in s} for split in ("train", "held_out")}
        self.assertEqual([len(v) for v in seen.values()], [320, 320])
        self.assertFalse(seen["train"] & seen["held_out"])

    def test_colours_and_counts_are_in_the_picture(self):
        n = 0
        for clip in (c for s in streams("train", 25) for c in s if c.scene.subject == "shape"):
            mask = painted(clip.frames[-1], clip.scene.facts["colour"])
            self.assertGreater(mask.sum(), 60, clip.scene)
            self.assertEqual(pieces(mask), int(clip.scene.facts["count"]), clip.scene)
            n += 1
        self.assertGreater(n, 50)

    def test_things_stand_and_move_as_told(self):
        n = 0
        for clip in (c for s in streams("held_out", 40) for c in s if "motion" in c.scene.facts):
            facts = clip.scene.facts
            before, now = (np.argwhere(painted(f, facts["colour"])).mean(0)[::-1] for f in clip.frames)
            x, y = now - 31.5
            at = direction(x, y, 7.5, "left", "right", "top", "bottom", "middle")
            self.assertEqual(at, facts["place"], clip.scene)
            x, y = now - before
            way = direction(x, y, 2, "left", "right", "up", "down", "nowhere")
            self.assertEqual(way, facts["motion"], clip.scene)
            n += 1
        self.assertGreater(n, 60)

    def test_closing_rounds_reach_back_far(self):
        mix = replace(MIX, clips=(20, 20), rounds=(1, 1), numbered=1.0)
        plain, closing = streams("train", 4, mix), streams("train", 4, replace(mix, closing=(12, 12)))
        for a, b in zip(plain, closing):
            self.assertEqual([c.rounds for c in a[:-1]], [c.rounds for c in b[:-1]])
            more = b[-1].rounds[len(a[-1].rounds) :]
            self.assertEqual([r.kind for r in more], ["recall"] * 12)
            self.assertGreater(max(r.distance for r in more), 12)

    def test_told_rounds_ask_what_the_text_has_said(self):
        mix = replace(
            MIX,
            clips=(6, 6),
            frames=(0, 0),
            rounds=(1, 1),
            kinds=(1.0, 0.0, 0.0, 0.0),
            closing=(4, 4),
            told=True,
            numbered=1.0,
        )
        n = 0
        for clips in streams("train", 8, mix):
            said = {(i, c.rounds[0].attribute): c.rounds[0].answer for i, c in enumerate(clips)}
            asked = clips[-1].rounds[1:]
            n += len(asked)
            for r in asked:
                self.assertEqual(said.pop((len(clips) - 1 - r.distance, r.attribute)), r.answer)  # once each
        self.assertGreater(n, 16)

    def test_answers_are_facts_of_the_clip_they_are_about(self):
        kinds = set()
        for stream in streams("held_out", 60):
            for i, clip in enumerate(stream):
                self.assertTrue(clip.rounds[0].leads)
                for r in clip.rounds:
                    kinds.add(r.kind)
                    about = stream[i - r.distance]
                    self.assertEqual(r.answer, about.scene.facts[r.attribute])
                    if r.kind in ("present", "back"):
                        self.assertEqual(r.distance, r.kind == "back")
                    elif r.kind == "recall":
                        self.assertIn(f"In clip {about.number},", r.question)
                        self.assertEqual([c.number for c in stream].count(about.number), 1)
                    else:
                        word, phrase = r.question.removesuffix("?").split(" came ")[1].split(" the ", 1)
                        named = [j for j, c in enumerate(stream[: i + 1]) if c.scene.phrase() == phrase]
                        self.assertEqual(len(named), 1)
                        self.assertEqual(i - r.distance, named[0] + (1 if word == "after" else -1))
        self.assertEqual(kinds, set(world.KINDS))

    def test_memory_is_never_in_the_text(self):
        """The answer never appeared before: neither in a round about that clip nor in a phrase that names what it
        showed."""
        for stream in streams("train", 60):
            said = set()
            for i, clip in enumerate(stream):
                for r in clip.rounds:
                    about = i - r.distance
                    if r.kind != "present":
                        self.assertNotIn((about, r.attribute), said)
                        self.assertLess(about, i)
                    said.add((about, r.attribute))
                    facts, (what, _, of) = stream[about].scene.facts, r.attribute.partition(" of ")
                    if of:
                        said.add((about, f"{'shape' if what == 'colour' else 'colour'} of {facts[r.attribute]}"))
                    if r.kind == "order":
                        phrase = r.question.removesuffix("?").split(" the ", 1)[1]
                        named = next(j for j in range(i + 1) if stream[j].scene.phrase() == phrase)
                        subject = stream[named].scene.subject
                        said.update((named, a) for a in (("colour", "shape") if subject == "shape" else (subject,)))

    def test_colours_answer_evenly(self):
        """No answer is frequent enough for guessing to look like seeing."""
        answers = [r.answer for s in streams("train", 120) for c in s for r in c.rounds if r.attribute == "colour"]
        share = max(answers.count(a) for a in set(answers)) / len(answers)
        self.assertGreater(len(answers), 400)
        self.assertLess(share, 0.2)

    def test_numbers_begin_anew(self):
        mix = world.Mix(clips=(4, 4), numbered=1.0, first=world.N_NUMBERS - 2)
        self.assertEqual([c.number for c in world.make_stream("train", 1, 0, mix)], [318, 319, 0, 1])

    def test_streams_are_written_as_they_are(self):
        with tempfile.TemporaryDirectory() as folder:
            make_streams.main([folder, "--streams", "2", "--clips", "3", "--rounds", "2", "--seed", "9"])
            lines = [json.loads(line) for line in (Path(folder) / "streams.jsonl").read_text().splitlines()]
            mix = world.Mix(clips=(3, 3), frames=(2, 2), rounds=(2, 2), kinds=(1, 1, 1, 1), numbered=1.0, first=1)
            for stream in range(2):
                clips = world.make_stream("held_out", 9, stream, mix, draw.Digits(os.environ.get("WEIR_DATA")))
                told = [(i, r.question, r.answer) for i, c in enumerate(clips) for r in c.rounds]
                mine = [line for line in lines if line["stream"] == stream]
                self.assertEqual([(n["clip"], n["question"], n["answer"]) for n in mine], told)
                files = [f for line in mine for f in line["frames"]]
                pixels = [(Path(folder) / f).read_bytes()[-64 * 64 * 3 :] for f in files]
                self.assertEqual(pixels, [f.tobytes() for c in clips for f in c.frames])

    def test_asides_look_back_at_what_was_never_said(self):
        with tempfile.TemporaryDirectory() as folder:
            arguments = [
                "--clips",
                "24",
                "--kinds",
                "1,0,0,0",
                "--frames",
                "1",
                "--asides",
                "3",
                "--every",
                "5",
                "--first",
                "6",
            ]
            make_streams.main([folder, "--seed", "9"] + arguments)
            lines = [json.loads(line) for line in (Path(folder) / "streams.jsonl").read_text().splitlines()]
            mix = world.Mix(clips=(24, 24), frames=(1, 1), rounds=(1, 1), numbered=1.0, first=1)
            clips = world.make_stream("held_out", 9, 0, mix, draw.Digits(os.environ.get("WEIR_DATA")))
        told = [(i, r.question) for i, c in enumerate(clips) for r in c.rounds]
        self.assertEqual([(n["clip"], n["question"]) for n in lines if "aside" not in n], told)
        asides = [n for n in lines if n.get("aside")]
        self.assertEqual(sorted({n["clip"] for n in asides}), [10, 15, 20])
        self.assertGreater(len(asides), 6)
        said = {(i, r.attribute) for i, c in enumerate(clips) for r in c.rounds}
        for n in asides:
            about = n["clip"] - n["distance"]
            self.assertLess(about, 6)
            self.assertEqual(n["answer"], clips[about].scene.facts[n["attribute"]])
            self.assertIn(f"In clip {clips[about].number},", n["question"])
            self.assertNotIn((about, n["attribute"]), said)
            self.assertEqual(n["frames"], [])


class Tokens(unittest.TestCase):
    def setUp(self):
        try:
            import tokenizer
        except ImportError as e:
            self.skipTest(f"needs the package tokenizers: {e}")
        self.tokenizer, self.encode = tokenizer, tokenizer.Encoder()

    def test_answers_and_numbers_are_single_tokens(self):
        _, answers, numbers = world.vocabulary()
        self.assertEqual([t for t in answers + numbers if len(self.encode(t)) != 1], [])
        self.assertLessEqual(self.encode.tokenizer.get_vocab_size(), self.tokenizer.VOCAB)

    def test_any_text_survives(self):
        for text in ("naïve — 日本語\t\n\n  x", "In clip 12, what colour was it?"):
            self.assertEqual(self.encode.tokenizer.decode(self.encode(text)), text)

    def test_special_tokens_are_the_first(self):
        self.assertEqual((self.encode.bos, self.encode.eos, self.encode.image), (0, 1, 2))


if __name__ == "__main__":
    unittest.main()
