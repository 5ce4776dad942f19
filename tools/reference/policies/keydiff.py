# SPDX-License-Identifier: Apache-2.0
"""KeyDiff (arXiv 2504.15364): the slots whose keys point away from the mean direction of all keys.

Keep-set per layer and KV head; needs no attention. Score = -cos(key, anchor), anchor = mean of the keys scaled to
length one, over all slots of the head, pinned and recent ones included. Highest scores stay.

Choices: a key or an anchor of length zero has cosine 0. The caller chooses the keys (before or after rotation).
`recent` newest slots can be protected; none by default.
"""

import numpy as np

from .. import common, contract
from . import value_norm


def _unit(vectors):
    length = np.sqrt((vectors * vectors).sum(axis=-1, keepdims=True))
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)


def scores(keys):
    """[n_kv_heads, n_slots, head_dim] -> [n_kv_heads, n_slots]."""
    unit = _unit(np.asarray(keys))
    anchor = _unit(unit.sum(axis=1, keepdims=True) / unit.dtype.type(unit.shape[1]))
    return -(unit * anchor).sum(axis=2)


def keep(scores, n_keep, pinned=None, recent=0):
    return value_norm.keep(scores, n_keep, pinned, recent)


class Reference(value_norm.Reference):
    RAW, NEGATIVE = ("keys",), True

    def statistic(self, r, before):
        return scores(r.raw("keys"))

    def stable(self, r, scores, keep, select):
        if not r.has("keys"):
            return True
        for row, kept, pins in zip(scores, keep, r.pinned):  # no sum is exact: require a gap at the cut
            free = set(kept) - set(common.pinned_slots(pins)) - set(common.newest(len(row), r.options["recent"]))
            lost = set(range(len(row))) - set(kept)
            if free and lost and min(row[slot] for slot in free) - max(row[slot] for slot in lost) < 4 * contract.UNIT:
                return False
        return True
