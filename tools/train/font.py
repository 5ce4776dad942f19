# SPDX-License-Identifier: Apache-2.0
"""A small bitmap font: capital letters and digits, 5 pixels wide and 7 high."""

import numpy as np

WIDTH, HEIGHT = 5, 7

# Seven rows from the top, two hexadecimal digits each; the highest of the five bits is the left pixel.
_ROWS = {
    "A": "0E 11 11 1F 11 11 11",
    "B": "1E 11 11 1E 11 11 1E",
    "C": "0F 10 10 10 10 10 0F",
    "D": "1E 11 11 11 11 11 1E",
    "E": "1F 10 10 1E 10 10 1F",
    "F": "1F 10 10 1E 10 10 10",
    "G": "0F 10 10 13 11 11 0F",
    "H": "11 11 11 1F 11 11 11",
    "I": "0E 04 04 04 04 04 0E",
    "J": "07 02 02 02 02 12 0C",
    "K": "11 12 14 18 14 12 11",
    "L": "10 10 10 10 10 10 1F",
    "M": "11 1B 15 15 11 11 11",
    "N": "11 19 19 15 13 13 11",
    "O": "0E 11 11 11 11 11 0E",
    "P": "1E 11 11 1E 10 10 10",
    "Q": "0E 11 11 11 15 12 0D",
    "R": "1E 11 11 1E 14 12 11",
    "S": "0F 10 10 0E 01 01 1E",
    "T": "1F 04 04 04 04 04 04",
    "U": "11 11 11 11 11 11 0E",
    "V": "11 11 11 0A 0A 04 04",
    "W": "11 11 11 15 15 1B 11",
    "X": "11 11 0A 04 0A 11 11",
    "Y": "11 11 0A 04 04 04 04",
    "Z": "1F 01 02 04 08 10 1F",
    "0": "0E 11 13 15 19 11 0E",
    "1": "04 0C 14 04 04 04 1F",
    "2": "0E 11 01 06 08 10 1F",
    "3": "1E 01 01 0E 01 01 1E",
    "4": "02 06 0A 12 1F 02 02",
    "5": "1F 10 1E 01 01 11 0E",
    "6": "06 08 10 1E 11 11 0E",
    "7": "1F 01 02 02 04 04 04",
    "8": "0E 11 11 0E 11 11 0E",
    "9": "0E 11 11 0F 01 02 0C",
}


def _bitmap(rows):
    bits = [[int(row, 16) >> (WIDTH - 1 - x) & 1 for x in range(WIDTH)] for row in rows.split()]
    return np.array(bits, dtype=np.float32)


GLYPHS = {c: _bitmap(rows) for c, rows in _ROWS.items()}


def text_mask(text, scale):
    """[height, width] of zeros and ones: the letters side by side, one pixel apart, each pixel `scale`
    wide."""
    gap = np.zeros((HEIGHT, 1), dtype=np.float32)
    parts = [part for c in text.upper() for part in (GLYPHS[c], gap)][:-1]
    return np.kron(np.concatenate(parts, axis=1), np.ones((scale, scale), dtype=np.float32))
