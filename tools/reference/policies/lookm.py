# SPDX-License-Identifier: Apache-2.0
"""LOOK-M's text prior: recent slots, then text by accumulated attention, then visual tokens (EMNLP 2024 Findings).

Keep-set per layer and KV head; the sums are H2O's. Nothing is merged.
"""

import numpy as np

from .. import common, contract
from . import h2o


def keep(scores, n_keep, pinned, frames, share):
    """frames: [n_groups][n_slots], first seq of each slot's frame, -1 for text."""
    out = []
    for row, pins, frame in zip(scores, common.per_group(pinned, len(scores)), frames):
        n = len(row)
        recent = common.newest(n, min(common.round_half_up(share * n_keep), n_keep))
        order = common.ranked(np.asarray(row))
        out.append(common.fill(n, n_keep, pins, recent, [s for s in order if frame[s] < 0], order))
    return out


class Reference(contract.Policy):
    VISION = "always"

    def options(self, draw):
        return {"share": draw.pick(0.0, 0.1, 0.25, 0.5, 1.0), "reduce": draw.pick("mean", "mean", "sum")}

    def statistic(self, r, before):
        return h2o.Reference().statistic(r, before)

    def select(self, r, scores):
        return keep(scores, r.n_keep, r.pinned, r.column("frame"), r.options["share"])
