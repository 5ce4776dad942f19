# SPDX-License-Identifier: Apache-2.0
"""Batches for training and testing, generated on demand: step n of a stage is the same on every machine.

A batch of frames has pictures with their labels; a batch of streams has token ids with a position for every picture row
and the positions where an answer is due. Arrays are torch tensors, pictures uint8 until the device has them.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from tools.train import draw, tokenizer, world

# Picture labels for training an encoder: name -> classes. -1 if a picture has no such thing.
LABELS = {
    "subject": world.SUBJECTS,
    "ground": world.GROUNDS,
    "colour": world.COLOURS,
    "shape": world.SHAPES,
    "count": world.COUNTS,
    "place": world.PLACES,
    "digit": world.DIGITS,
    "letter": world.LETTERS,
    "word": world.WORDS,
    "left shape": world.SHAPES,
    "left colour": world.COLOURS,
    "right shape": world.SHAPES,
    "right colour": world.COLOURS,
    "column": range(8),
    "row": range(8),
}  # centre of a single thing, in eighths; motion is read from it
END = len(world.KINDS)  # kind of the token that ends an answer


@dataclass(frozen=True)
class Stage:
    """One stage of training. Without a mix its batches are frames, with one they are streams."""

    name: str
    steps: int
    batch: int
    lr: float
    mix: world.Mix | None = None
    see_lr: float = 1.0  # the encoder's learning rate, relative to the others'; 0: frozen
    thin: float = 0.0  # share of the single pictures of which the decoder sees only some rows, as after a pruner


def _labels(scene):
    facts = dict(scene.facts, subject=scene.subject)
    if scene.subject == "pair":
        for side, (colour, shape, *_) in zip(world.SIDES, scene.objects):
            facts.update({f"{side} colour": colour, f"{side} shape": shape})
    elif len(scene.objects) == 1:
        _, _, x, y, _ = scene.objects[0]
        facts.update(column=int(x * 8) // draw.SIZE, row=int(y * 8) // draw.SIZE)
    return [LABELS[name].index(facts[name]) if name in facts else -1 for name in LABELS]


def frames_batch(split, seed, step, n, mix, digits):
    rng = world.rng_of(split, seed, step, 0)
    pixels, labels = np.empty((n, draw.SIZE, draw.SIZE, 3), dtype=np.uint8), np.empty((n, len(LABELS)), dtype=np.int64)
    for i in range(n):
        scene = world.make_scene(rng, mix, moves=False)
        pixels[i] = world.render(scene, 1, rng, split, digits)[0]
        labels[i] = _labels(scene)
    return dict(pixels=torch.from_numpy(pixels), labels=torch.from_numpy(labels))


def detail(r):
    """The subcategory under which a round's accuracy is reported: present rounds by attribute, memory rounds by
    distance."""
    if r.kind == "present":
        what, _, of = r.attribute.partition(" ")
        return f"present: {what} of one of two" if of else f"present: {what}"
    return f"{r.kind}: " + ("1-4" if r.distance < 5 else "5-16" if r.distance < 17 else "17-") + " back"


class _Row:
    """A sequence being built, with the positions where an answer's tokens are due."""

    def __init__(self):
        self.ids, self.frames, self.due, self.things, self.seen = [], [], [], [], []

    def answer(self, encode, r, due=True):
        """`due`: the answer can be known; if its picture is omitted, the answer is treated as ordinary
        text."""
        for token, kind, what in (
            (encode(f" {r.answer}"), world.KINDS.index(r.kind), detail(r)),
            ([encode.eos], END, None),
        ):
            if due:
                self.due.append((len(self.ids) - 1, token[0], kind, what))
            self.ids += token


def stream_row(clips, encode, n_rows, around=("", "")):
    """A conversation about a stream: `n_rows` image tokens per frame, one per square, in the chat format; `around`: the
    words before and after a frame."""
    row = _Row()
    row.ids.append(encode.bos)
    for clip in clips:
        for r in clip.rounds:
            before, after = tokenizer.turn(clip, r.question, r.leads)
            row.ids += encode(before if len(row.ids) == 1 else "\n" + before)
            if r.leads:
                row.frames.extend(clip.frames)
                row.things += [world.things_at(clip.scene, math.isqrt(n_rows))] * len(clip.frames)
                opened, closed = map(encode, around)
                row.ids += (opened + [encode.image] * n_rows + closed) * len(clip.frames) + encode(after)
            row.answer(encode, r, due=len(clip.frames) > 0 or r.kind != "present")
    return row


def picture_row(clip, encode, seen, image_first):
    """Questions about one picture, in BLIP-2's form. Its processor puts the picture before the first token, other
    programs after it: both orders are trained. `seen`: whether each row is present."""
    row = _Row()
    rows = [encode.image] * int(seen.sum())
    row.ids += rows + [encode.bos] if image_first else [encode.bos] + rows
    row.frames.append(clip.frames[-1])
    row.things.append(world.things_in_turn(clip.scene, len(seen))[seen])
    row.seen.append(seen)
    for i, r in enumerate(clip.rounds):
        row.ids += encode(("\n" if i else "") + tokenizer.QUESTION + r.question + tokenizer.ANSWER)
        row.answer(encode, r)
    return row


def pack(rows, pad):
    """Pads rows of different lengths to a rectangle; due tokens are indexed in the flattened one."""
    width = max(len(r.ids) for r in rows)
    ids = np.full((len(rows), width), pad, dtype=np.int64)
    for i, r in enumerate(rows):
        ids[i, : len(r.ids)] = r.ids
    due = [(i * width + at, token, kind) for i, r in enumerate(rows) for at, token, kind, _ in r.due]
    where, token, kind = (torch.tensor(column) for column in zip(*due))
    frames = [f for r in rows for f in r.frames]
    pixels = np.stack(frames) if frames else np.empty((0, draw.SIZE, draw.SIZE, 3), dtype=np.uint8)
    things = np.concatenate([np.empty((0, 3), dtype=np.int64), *(t for r in rows for t in r.things)])
    seen = [s for r in rows for s in r.seen]
    return dict(
        seen=torch.from_numpy(np.stack(seen)) if seen else None,
        ids=torch.from_numpy(ids),
        pixels=torch.from_numpy(pixels),
        things=torch.from_numpy(things),
        where=where,
        token=token,
        kind=kind,
        details=[what for r in rows for *_, what in r.due],
    )


class Steps(Dataset):
    """Batch `i` of a stage."""

    def __init__(self, stage, split, seed, n_rows, pictures=False, data=None, around=("", "")):
        self.stage, self.split, self.seed, self.n_rows, self.pictures, self.data, self.around = (
            stage,
            split,
            seed,
            n_rows,
            pictures,
            data,
            around,
        )
        self._made = None

    def __len__(self):
        return self.stage.steps

    def __getitem__(self, step):
        if self._made is None:  # once per worker
            self._made = tokenizer.Encoder(filter(None, self.around)), draw.Digits(self.data)
        encode, digits = self._made
        stage = self.stage
        if stage.mix is None:
            return frames_batch(self.split, self.seed, step, stage.batch, world.Mix(), digits)
        # One length per batch, to keep padding small.
        n_clips = int(world.rng_of(self.split, self.seed, step, 1).integers(stage.mix.clips[0], stage.mix.clips[1] + 1))
        mix, rows = replace(stage.mix, clips=(n_clips, n_clips)), []
        for i in range(step * stage.batch, (step + 1) * stage.batch):
            clips = world.make_stream(self.split, self.seed, i, mix, digits)
            rows.append(
                picture_row(clips[0], encode, self._seen(i), i % 2 == 0)
                if self.pictures
                else stream_row(clips, encode, self.n_rows, self.around)
            )
        return pack(rows, encode.eos)

    def _seen(self, i):
        """[n_rows] mask of the rows that the decoder sees: all, or at least an eighth."""
        rng, seen = world.rng_of(self.split, self.seed, i, 2), np.ones(self.n_rows, dtype=bool)
        if rng.random() < self.stage.thin:
            seen[:] = False
            seen[rng.permutation(self.n_rows)[: rng.integers(self.n_rows // 8, self.n_rows + 1)]] = True
        return seen


def load(steps, first, workers):
    """The batches, starting with number `first`."""
    more = dict(prefetch_factor=4, persistent_workers=False) if workers else {}
    return DataLoader(steps, batch_size=None, sampler=range(first, len(steps)), num_workers=workers, **more)
