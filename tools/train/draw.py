# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of the procedural world with numpy alone: shapes, glyphs, real digits, textured grounds."""

import gzip
from pathlib import Path

import numpy as np

SIZE = 64  # width and height in pixels

COLOURS = {
    "red": (215, 40, 40),
    "green": (40, 165, 60),
    "blue": (50, 80, 225),
    "yellow": (235, 215, 50),
    "purple": (145, 50, 185),
    "orange": (240, 135, 25),
    "white": (245, 245, 245),
    "pink": (245, 150, 200),
}
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring", "diamond", "heart")
GROUNDS = ("nothing", "stripes", "dots", "checks")

_AXIS = np.arange(SIZE, dtype=np.float32)
_Y, _X = _AXIS[:, None], _AXIS[None, :]
_STAR_ANGLE = np.float32(2 * np.pi / 5)


def _inside(shape, x, y):
    """Signed distance, roughly, in units of the shape's radius: positive inside."""
    ax, ay = np.abs(x), np.abs(y)
    if shape == "circle":
        return 1.0 - np.hypot(x, y)
    if shape == "ring":
        return 0.26 - np.abs(np.hypot(x, y) - 0.74)
    if shape == "square":
        return 0.86 - np.maximum(ax, ay)
    if shape == "diamond":
        return 0.72 - 0.72 * (ax * 1.25 + ay)
    if shape == "triangle":
        return np.minimum(0.8 - y, (y + 1.0) * 0.45 - ax * 0.9)
    if shape == "cross":
        return np.maximum(np.minimum(0.32 - ax, 0.98 - ay), np.minimum(0.32 - ay, 0.98 - ax))
    if shape == "star":
        angle = np.mod(np.arctan2(x, -y) + _STAR_ANGLE / 2, _STAR_ANGLE) - _STAR_ANGLE / 2
        return (1.05 - np.hypot(x, y) * (1.0 + 1.75 * np.abs(angle) / (_STAR_ANGLE / 2))) * 0.5
    if shape == "heart":
        hx, hy = ax, 0.25 - y * 1.05
        return 0.9 - np.hypot(hx, (hy - 0.62 * np.sqrt(np.minimum(hx, 1.0))) * 1.15)
    raise ValueError(f"no shape {shape}")


def paint_shape(image, shape, colour, x, y, radius):
    """Paints one shape around (x, y); image [SIZE, SIZE, 3] float32 is changed in place."""
    reach = int(np.ceil(radius * 1.15)) + 1
    x0, x1 = max(0, int(x) - reach), min(SIZE, int(x) + reach + 1)
    y0, y1 = max(0, int(y) - reach), min(SIZE, int(y) + reach + 1)
    distance = _inside(
        shape, (_X[:, x0:x1] - np.float32(x)) / np.float32(radius), (_Y[y0:y1] - np.float32(y)) / np.float32(radius)
    )
    _blend(image[y0:y1, x0:x1], np.clip(distance * radius + 0.5, 0.0, 1.0), colour)


def paint_mask(image, mask, colour, x, y):
    """Paints `mask` [h, w] centred at (x, y), shifted so that all of it is in the picture."""
    h, w = mask.shape
    x0, y0 = (int(np.clip(round(at - n / 2), 0, SIZE - n)) for at, n in ((x, w), (y, h)))
    _blend(image[y0 : y0 + h, x0 : x0 + w], mask, colour)


def _blend(region, alpha, colour):
    alpha = alpha[..., None].astype(np.float32)
    region += alpha * (np.asarray(colour, dtype=np.float32) - region)


def ground(kind, rng):
    """[SIZE, SIZE, 3] float32, grey, so that no ground has an object's colour."""
    low = rng.uniform(25, 70)
    image = np.full((SIZE, SIZE), low, dtype=np.float32)
    period, phase, high = rng.uniform(9, 14), rng.uniform(0, 14, 2), low + rng.uniform(40, 60)
    if kind == "stripes":
        along = (_X + _Y if rng.integers(2) else _X - _Y) + phase[0] + 2 * SIZE
        image[np.mod(along, period) < period / 2] = high
    elif kind == "dots":
        dx = np.mod(_X + phase[0], period) - period / 2
        dy = np.mod(_Y + phase[1], period) - period / 2
        image[dx * dx + dy * dy < (0.27 * period) ** 2] = high
    elif kind == "checks":
        image[(np.floor((_X + phase[0]) / period) + np.floor((_Y + phase[1]) / period)) % 2 > 0] = high
    elif kind != "nothing":
        raise ValueError(f"no ground {kind}")
    return np.repeat(image[..., None], 3, axis=2)


def finish(image, rng):
    """To uint8, with the noise of a cheap camera."""
    noise = rng.integers(-6, 7, image.shape, dtype=np.int8)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


class Digits:
    """Handwritten digits (MNIST, IDX files); every fifth one is held out. Empty if the folder has none."""

    def __init__(self, folder=None):
        self._of = {}
        images, labels = (
            sorted(Path(folder).glob(f"image_qa/mnist/*{kind}*ubyte.gz")) if folder else []
            for kind in ("images", "labels")
        )
        if not images or not labels:
            return
        pixels = np.frombuffer(gzip.decompress(images[0].read_bytes()), dtype=np.uint8, offset=16).reshape(-1, 28, 28)
        digits = np.frombuffer(gzip.decompress(labels[0].read_bytes()), dtype=np.uint8, offset=8)
        for split, rest in (("train", (1, 2, 3, 4)), ("held_out", (0,))):
            for digit in range(10):
                at = np.flatnonzero((digits == digit) & np.isin(np.arange(len(digits)) % 5, rest))
                self._of[split, digit] = pixels[at]

    def __bool__(self):
        return bool(self._of)

    def mask(self, split, digit, rng):
        """[28 * k, 28 * k], k 1 or 2, values 0 .. 1."""
        options = self._of[split, digit]
        mask = options[rng.integers(len(options))].astype(np.float32) / 255.0
        return np.kron(mask[2:26, 2:26], np.ones((2, 2), dtype=np.float32)) if rng.integers(2) else mask
