"""LOOK-M's text prior: recent slots, then text by accumulated attention, then visual tokens (EMNLP 2024 Findings).

Keep-set per layer and KV head; the sums are H2O's. Nothing is merged.
"""

import numpy as np

from .. import common


def keep(scores, n_keep, pinned, frames, share):
    """frames: [n_groups][n_slots], first seq of each slot's frame, -1 for text."""
    out = []
    for row, pins, frame in zip(scores, common.per_group(pinned, len(scores)), frames):
        n = len(row)
        recent = common.newest(n, min(common.round_half_up(share * n_keep), n_keep))
        order = common.ranked(np.asarray(row))
        out.append(common.fill(n, n_keep, pins, recent, [s for s in order if frame[s] < 0], order))
    return out
