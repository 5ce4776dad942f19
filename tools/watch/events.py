# SPDX-License-Identifier: Apache-2.0
"""Streams of the generated world (tools/train/world.py) with timed events: what `weir watch --when` is measured on.

A stream shows scene after scene for a few seconds each, at one frame a second. All scenes of a stream are of one
subject, so that every question about it has an answer, and the stream has a rule for each question: "What colour is
it? => red"; none waits for "nothing". In most scenes no rule holds; in some, one does. Those are the events: (rule,
first frame, last frame).

A stream is a function of (split, seed, number). Needs only numpy.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.train import draw, world

# The questions of each subject: kind -> the attribute of a scene.
QUESTIONS = {
    "shape": {"colour": "colour", "shape": "shape", "count": "count", "ground": "ground"},
    "digit": {"digit": "digit", "colour": "colour", "place": "place", "ground": "ground"},
    "letter": {"letter": "letter", "colour": "colour", "place": "place", "ground": "ground"},
    "word": {"word": "word", "colour": "colour", "ground": "ground"},
    "pair": {"left": "side left", "right": "side right", "ground": "ground"},
}
WORDS = {"left": "What is on the left?", "right": "What is on the right?"}
FRAMES = (4, 10)  # of a scene
EVENT_SHARE = 0.3  # of the scenes


@dataclass
class Rule:
    kind: str
    attribute: str
    question: str
    answer: str

    def text(self):
        return f"{self.question} => {self.answer}"


@dataclass
class Event:
    rule: int
    first: int  # frames, from 0
    last: int


@dataclass
class Stream:
    subject: str
    rules: list
    events: list
    n_frames: int
    frames: object  # a generator of [64, 64, 3] uint8


def _scene(rng, subject, wanted):
    """A scene of the subject in which exactly the rules of `wanted` hold."""
    mix = world.Mix(subjects=tuple(1.0 if s == subject else 0.0 for s in world.SUBJECTS))
    for _ in range(100000):
        scene = world.make_scene(rng, mix, moves=False)
        if all((scene.facts.get(rule.attribute) == rule.answer) == held for rule, held in wanted):
            return scene
    raise ValueError("no such scene")


def make_stream(split, seed, number, n_scenes, digits=None):
    """The plan of a stream, and a generator of its frames."""
    rng = world.rng_of(split, seed, number, 7)
    subject = world.SUBJECTS[number % len(world.SUBJECTS)]
    example = {}
    while not all(a in example for a in QUESTIONS[subject].values()):
        example.update((a, f) for a, f in _scene(rng, subject, []).facts.items() if f != "nothing")
    rules = [
        Rule(kind, attribute, WORDS.get(kind) or world._ASK[attribute][0], example[attribute])
        for kind, attribute in QUESTIONS[subject].items()
    ]
    scenes, events, at, before = [], [], 0, None
    for _ in range(n_scenes):
        which = None
        if rng.random() < EVENT_SHARE:
            which = int(rng.integers(len(rules)))
            which = None if which == before else which  # two in a row would be one
        n = int(rng.integers(FRAMES[0], FRAMES[1] + 1))
        scenes.append((_scene(rng, subject, [(rule, i == which) for i, rule in enumerate(rules)]), n))
        if which is not None:
            events.append(Event(which, at, at + n - 1))
        at, before = at + n, which

    def frames():
        pixels = world.rng_of(split, seed, number, 8)
        for scene, n in scenes:
            yield from world.render(scene, n, pixels, split, digits)

    return Stream(subject, rules, events, at, frames())


def write_y4m(path, frames):
    """A video of one frame a second, colours not subsampled: BT.601, studio range."""
    side = draw.SIZE
    with open(path, "wb") as out:
        out.write(b"YUV4MPEG2 W%d H%d F1:1 Ip A1:1 C444\n" % (side, side))
        for frame in frames:
            r, g, b = (frame[..., c].astype(np.float64) for c in range(3))
            y = 16 + (65.481 * r + 128.553 * g + 24.966 * b) / 255
            u = 128 + (-37.797 * r - 74.203 * g + 112.0 * b) / 255
            v = 128 + (112.0 * r - 93.786 * g - 18.214 * b) / 255
            planes = np.stack([y, u, v])
            out.write(b"FRAME\n" + np.clip(np.rint(planes), 0, 255).astype(np.uint8).tobytes())
