# SPDX-License-Identifier: Apache-2.0
"""The procedural video world: clips of shapes, digits, letters and words on textured grounds, with questions about
them.

A stream is a list of clips, a clip a few frames and one or more rounds (question, answer). Questions come in four
kinds:

  present   about the clip just shown: colour, shape, count, place, motion, digit, letter, word, ground,
            and of a pair of objects the colour of a shape, the shape of a colour, the one on the left or right
  back      the same about the clip before it
  recall    the same about a clip identified by its number
  order     the colour of the clip before or after the one that showed a certain thing

The answer to a memory question never appears earlier in the stream's text: it is only in the earlier frames.
Everything is a function of (split, seed, index), so a stream can be regenerated at any time. The two splits are
disjoint: the split's name is part of every random seed, and real digits (draw.Digits) are divided between them.

Needs only numpy.
"""

from dataclasses import dataclass, field

import numpy as np

from tools.train import draw, font

COLOURS, SHAPES, GROUNDS = tuple(draw.COLOURS), draw.SHAPES, draw.GROUNDS
COUNTS = ("1", "2", "3", "4")
PLACES = ("left", "right", "top", "bottom", "middle")
MOTIONS = ("left", "right", "up", "down", "nowhere")
DIGITS = tuple("0123456789")
LETTERS = tuple("ABCDEFHKLMNPRTVXYZ")
WORDS = (
    "arm",
    "bag",
    "bee",
    "box",
    "cat",
    "cup",
    "dog",
    "egg",
    "fan",
    "fox",
    "hat",
    "ice",
    "jam",
    "key",
    "leg",
    "map",
    "nut",
    "owl",
    "pen",
    "sun",
    "toy",
    "van",
    "web",
    "zoo",
)
SUBJECTS = ("shape", "digit", "letter", "word", "pair")
SIDES = ("left", "right")  # of a pair's things, in this order
KINDS = ("present", "back", "recall", "order")
N_NUMBERS = 320  # clips are called 0 .. 319; longer streams start over

_SPLITS = {"train": 1, "held_out": 2}
_CENTRE = {"left": (17, 32), "right": (47, 32), "top": (32, 17), "bottom": (32, 47), "middle": (32, 32)}
_STEP = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1), "nowhere": (0, 0)}

# Wording of the question for each attribute: now, in an earlier clip.
_ASK = {
    "colour": ("What colour is it?", "what colour was it?"),
    "shape": ("What shape is it?", "what shape was it?"),
    "count": ("How many are there?", "how many were there?"),
    "place": ("Where is it?", "where was it?"),
    "motion": ("Which way does it move?", "which way did it move?"),
    "digit": ("What digit is it?", "what digit was it?"),
    "letter": ("What letter is it?", "what letter was it?"),
    "word": ("What does it say?", "what did it say?"),
    "ground": ("What is behind it?", "what was behind it?"),
}
# Asked about earlier clips too; the others are about the present one only.
_LASTING = ("colour", "shape", "count", "digit", "letter", "word")


@dataclass
class Scene:
    """What a clip shows. `facts`: attribute -> answer; of a pair `colour of circle`, `shape of red`, `side left`."""

    subject: str
    ground: str
    facts: dict
    objects: list = field(default_factory=list)  # (colour, shape or text, x, y, size) in the last frame
    real_digits: bool = False

    def phrase(self):
        """The phrase that identifies it, or None."""
        f = self.facts
        if self.subject == "shape":
            return f"{f['colour']} {f['shape']}"
        return None if self.subject == "pair" else f"{self.subject} {f[self.subject]}"


@dataclass
class Round:
    kind: str  # of KINDS
    attribute: str  # the attribute in question
    question: str
    answer: str
    distance: int  # clips between its subject and the present one
    leads: bool = False  # this round contains the clip's frames


@dataclass
class Clip:
    number: int
    scene: Scene
    frames: np.ndarray  # [n, 64, 64, 3] uint8
    rounds: list


@dataclass(frozen=True)
class Mix:
    """The composition of streams. Ranges are inclusive; `kinds` are weights of KINDS, `subjects` of SUBJECTS."""

    clips: tuple = (2, 4)
    frames: tuple = (1, 2)
    rounds: tuple = (1, 2)
    kinds: tuple = (1.0, 0.0, 0.0, 0.0)
    subjects: tuple = (0.4, 0.15, 0.1, 0.15, 0.2)
    numbered: float = 0.85  # streams whose clips are introduced by their number
    first: int = -1  # number of the first clip; -1: any
    horizon: int = 1 << 30  # how many clips back memory questions reach
    real: float = 0.5  # share of digits that are handwritten, if available
    closing: tuple = (
        0,
        0,
    )  # additional recall rounds at the end, about all clips: if questions come as often as facts, those
    # left to ask are about clips just past, and nothing is learned about the distant ones
    speed: tuple = (7.0, 10.0)  # pixels from frame to frame, of what moves
    size: float = 1.0  # of the things shown, as a multiple of what models are trained on
    told: bool = False  # recall rounds ask about facts in the text; with frames=(0, 0) there is only text


def rng_of(split, seed, *index):
    return np.random.default_rng([_SPLITS[split], seed, *index])


def _choose(rng, options, weights=None):
    if weights is None:
        return options[rng.integers(len(options))]
    edges = np.cumsum(weights)
    return options[int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))]


def _near(rng, place, spread=3.0):
    x, y = _CENTRE[place]
    return x + rng.uniform(-spread, spread), y + rng.uniform(-spread, spread)


def make_scene(rng, mix, moves):
    subject, background = _choose(rng, SUBJECTS, mix.subjects), _choose(rng, GROUNDS)
    colour = _choose(rng, COLOURS)
    scene = Scene(subject, background, {"ground": background})
    facts = scene.facts
    if subject == "pair":
        shapes, colours = rng.permutation(len(SHAPES))[:2], rng.permutation(len(COLOURS))[:2]
        for side, s, c in zip(SIDES, shapes, colours):
            shape, tint = SHAPES[s], COLOURS[c]
            facts.update({f"colour of {shape}": tint, f"shape of {tint}": shape, f"side {side}": shape})
            x, y = (16 if side == "left" else 48) + rng.uniform(-2.5, 2.5), 32 + rng.uniform(-12, 12)
            scene.objects.append((tint, shape, x, y, mix.size * rng.uniform(10.5, 13.5)))
        return scene
    facts["colour"] = colour
    if subject == "shape":
        n = int(rng.integers(1, 5)) if rng.random() < 0.6 else 1
        facts.update(shape=_choose(rng, SHAPES), count=str(n))
        if n > 1:
            corners = ((16, 16), (48, 16), (16, 48), (48, 48))
            for i in rng.permutation(4)[:n]:
                x, y = corners[i]
                x, y = x + rng.uniform(-4, 4), y + rng.uniform(-4, 4)
                scene.objects.append((colour, facts["shape"], x, y, mix.size * rng.uniform(9.5, 12.5)))
            return scene
        thing = facts["shape"]
    else:
        thing = facts[subject] = _choose(rng, {"digit": DIGITS, "letter": LETTERS, "word": WORDS}[subject])
        scene.real_digits = subject == "digit" and rng.random() < mix.real
    if subject == "word":
        x, y, size = 32.0, rng.uniform(16, 48), 3
    else:
        facts["place"] = _choose(rng, PLACES)
        x, y = _near(rng, facts["place"])
        size = mix.size * rng.uniform(11, 15) if subject == "shape" else int(rng.integers(3, 5))
        if moves:
            facts["motion"] = _choose(rng, MOTIONS)
    scene.objects.append((colour, thing, x, y, size))
    return scene


def _paint(scene, image, shift, tints, split, digits, rng_state):
    for (_, thing, x, y, size), tint in zip(scene.objects, tints):
        x, y = x + shift[0], y + shift[1]
        if thing in SHAPES:
            draw.paint_shape(image, thing, tint, x, y, size)
        elif scene.real_digits and digits:
            # The same digit in every frame of the clip.
            draw.paint_mask(image, digits.mask(split, int(thing), np.random.default_rng(rng_state)), tint, x, y)
        else:
            draw.paint_mask(image, font.text_mask(thing, size), tint, x, y)


def render(scene, n_frames, rng, split="train", digits=None, speed=Mix.speed):
    """[n_frames, 64, 64, 3] uint8. The last frame has everything at the positions of the facts; motion ends there."""
    background = draw.ground(scene.ground, rng)
    tints = [np.clip(np.asarray(draw.COLOURS[o[0]]) + rng.uniform(-9, 9, 3), 0, 255) for o in scene.objects]
    step = np.asarray(_STEP[scene.facts.get("motion", "nowhere")], dtype=np.float32)
    length, state = rng.uniform(*speed), int(rng.integers(1 << 31))
    frames = np.empty((n_frames, draw.SIZE, draw.SIZE, 3), dtype=np.uint8)
    for i in range(n_frames):
        image = background.copy()
        _paint(scene, image, -step * length * (n_frames - 1 - i), tints, split, digits, state)
        frames[i] = draw.finish(image, rng)
    return frames


def things_at(scene, n):
    """A pair's picture cut into n x n squares, [n * n, 3]: colour, shape and side, as places in COLOURS, SHAPES and
    SIDES, of the thing at the centre of a square; -1 for empty squares and other scenes. Pairs do not
    move, so it holds for every frame."""
    out = np.full((n * n, 3), -1, dtype=np.int64)
    if scene.subject != "pair":
        return out
    middle = (np.arange(n) + 0.5) * draw.SIZE / n
    for side, (colour, shape, x, y, radius) in enumerate(scene.objects):
        near = np.hypot(middle[None, :] - x, middle[:, None] - y) < radius
        out[near.flatten()] = COLOURS.index(colour), SHAPES.index(shape), side
    return out


def things_in_turn(scene, n):
    """The same for n rows without a position: [n, 3], the left thing in the first row, the right one in the
    second."""
    out = np.full((n, 3), -1, dtype=np.int64)
    if scene.subject == "pair":
        out[:2] = [
            (COLOURS.index(colour), SHAPES.index(shape), side) for side, (colour, shape, *_) in enumerate(scene.objects)
        ]
    return out


def _ask_now(attribute):
    if attribute in _ASK:
        return _ASK[attribute][0]
    what, _, of = attribute.partition(" ")
    if what == "colour":
        return f"What colour is the {of[3:]}?"
    return f"What shape is {of[3:]}?" if what == "shape" else f"What is on the {of}?"


def _ask_then(attribute):
    if attribute in _ASK:
        return _ASK[attribute][1]
    what, _, of = attribute.partition(" ")
    return f"what colour was the {of[3:]}?" if what == "colour" else f"what shape was {of[3:]}?"


def _asked_later(scene):
    return [a for a in scene.facts if a in _LASTING or a.startswith(("colour of", "shape of"))]


class Story:
    """What was shown and said so far."""

    def __init__(self, mix):
        self.mix, self.clips, self.said, self.told = mix, [], set(), []

    def _untold(self, i):
        return [a for a in _asked_later(self.clips[i].scene) if (i, a) not in self.said]

    def _told(self, i, attribute):
        """A pair's facts are linked: if the circle is red, the red one is a circle."""
        facts = self.clips[i].scene.facts
        self.said.add((i, attribute))
        if attribute.startswith("colour of"):
            self.said.add((i, f"shape of {facts[attribute]}"))
        elif attribute.startswith("shape of"):
            self.said.add((i, f"colour of {facts[attribute]}"))

    def ask(self, rng, kind):
        """A round of that kind about the present (the last) clip or an earlier one; None if no question is
        left."""
        now = len(self.clips) - 1
        if kind == "present":
            options = [a for a in self.clips[now].scene.facts if (now, a) not in self.said]
            return self._round(kind, _choose(rng, options), now, _ask_now) if options else None
        if kind == "order":
            return self._order(rng, now)
        if kind == "recall" and self.mix.told:
            options = [(i, a) for i, a in self.told if i < now]
            if not options:
                return None
            about, attribute = _choose(rng, options)
            self.told.remove((about, attribute))
            return self._recall(attribute, about)
        oldest = max(0, now - min(self.mix.horizon, N_NUMBERS - 1))
        which = [i for i in ([now - 1] if kind == "back" else range(oldest, now)) if i >= 0 and self._untold(i)]
        if not which:
            return None
        about = which[rng.integers(len(which))]
        attribute = _choose(rng, self._untold(about))
        if kind == "recall":
            return self._recall(attribute, about)
        return self._round(kind, attribute, about, lambda a: f"One clip back, {_ask_then(a)}")

    def look_back(self, rng, n_first):
        """A recall round about one of the first clips that leaves no trace in the story; None if no question is
        left."""
        now = len(self.clips) - 1
        oldest = max(0, now - (N_NUMBERS - 1))  # a reused number names the later clip
        which = [i for i in range(oldest, min(n_first, now)) if self.clips[i].number >= 0 and self._untold(i)]
        if not which:
            return None
        about = which[rng.integers(len(which))]
        attribute = _choose(rng, self._untold(about))
        return Round(
            "recall",
            attribute,
            f"In clip {self.clips[about].number}, {_ask_then(attribute)}",
            self.clips[about].scene.facts[attribute],
            now - about,
        )

    def _recall(self, attribute, about):
        return self._round("recall", attribute, about, lambda a: f"In clip {self.clips[about].number}, {_ask_then(a)}")

    def _round(self, kind, attribute, about, words):
        self._told(about, attribute)
        if kind == "present" and attribute in _asked_later(self.clips[about].scene):
            self.told.append((about, attribute))
        return Round(
            kind, attribute, words(attribute), self.clips[about].scene.facts[attribute], len(self.clips) - 1 - about
        )

    def _order(self, rng, now):
        oldest = max(0, now - min(self.mix.horizon, N_NUMBERS - 1))
        phrases = [c.scene.phrase() for c in self.clips]
        options = [
            (i, i + d)
            for i in range(oldest, now + 1)
            for d in (-1, 1)
            if oldest <= i + d < now
            and (i + d, "colour") not in self.said
            and "colour" in self.clips[i + d].scene.facts
            and phrases[i] is not None
            and phrases.count(phrases[i]) == 1
        ]
        if not options:
            return None
        named, about = options[rng.integers(len(options))]
        word = "before" if about < named else "after"
        # The phrase itself reveals what the named clip showed.
        for attribute in self.clips[named].scene.facts.keys() & {"colour", "shape", "digit", "letter", "word"}:
            if self.clips[named].scene.subject in ("shape", attribute):
                self.said.add((named, attribute))
        return self._round("order", "colour", about, lambda a: f"What colour came {word} the {phrases[named]}?")


def make_stream(split, seed, index, mix, digits=None):
    """The stream of that number, as a list of Clip."""
    return list(stream_clips(split, seed, index, mix, digits))


def stream_clips(split, seed, index, mix, digits=None, story=None):
    """The same as a generator, clip by clip: a stream of any length in the memory of its questions. `story`, a new
    Story(mix), lets the caller follow what was shown and said."""
    rng = rng_of(split, seed, index)
    n_clips = int(rng.integers(mix.clips[0], mix.clips[1] + 1))
    numbered = rng.random() < mix.numbered
    first = mix.first if mix.first >= 0 else int(rng.integers(N_NUMBERS))
    kinds = [w if numbered or k != "recall" else 0.0 for k, w in zip(KINDS, mix.kinds)]
    story = story or Story(mix)
    for i in range(n_clips):
        n_frames = int(rng.integers(mix.frames[0], mix.frames[1] + 1))
        scene = make_scene(rng, mix, moves=n_frames > 1)
        frames = render(scene, n_frames, rng, split, digits, mix.speed)
        clip = Clip((first + i) % N_NUMBERS if numbered else -1, scene, frames, [])
        story.clips.append(Clip(clip.number, scene, None, None))
        for _ in range(int(rng.integers(mix.rounds[0], mix.rounds[1] + 1))):
            asked = story.ask(rng, _choose(rng, KINDS, kinds)) or story.ask(rng, "present")
            if asked:
                asked.leads = not clip.rounds
                clip.rounds.append(asked)
        if i == n_clips - 1 and numbered and mix.closing[1] > 0:
            n = int(rng.integers(mix.closing[0], mix.closing[1] + 1))
            clip.rounds += [r for r in (story.ask(rng, "recall") for _ in range(n)) if r]
        yield clip


def vocabulary():
    """Every word of questions and answers, as it appears in text: with or without the preceding
    space."""
    texts = [text for pair in _ASK.values() for text in pair]
    texts += [_ask_now(f"{w} x") for w in ("colour of", "shape of", "side")]
    texts += [_ask_then(f"{w} x") for w in ("colour of", "shape of")]
    texts += ["One clip back, ", "In clip "] + [
        f"What colour came {w} the digit letter word " for w in ("before", "after")
    ]
    answers = [*COLOURS, *SHAPES, *GROUNDS, *COUNTS, *PLACES, *MOTIONS, *DIGITS, *LETTERS, *WORDS]
    return texts, [f" {a}" for a in answers], [f" {n}" for n in range(N_NUMBERS)]
