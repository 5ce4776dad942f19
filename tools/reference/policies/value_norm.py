# SPDX-License-Identifier: Apache-2.0
"""Value norm: the slots whose value vectors are longest (the VaN half of InfiniPot-V, without its pooling).

Keep-set per layer and KV head; needs no attention. `recent` newest slots can be protected; none by default.
"""

import numpy as np

from .. import common, contract


def scores(values):
    """[n_kv_heads, n_slots, head_dim] -> [n_kv_heads, n_slots]: the L2 norm."""
    values = np.asarray(values)
    return np.sqrt((values * values).sum(axis=2))


def keep(scores, n_keep, pinned=None, recent=0):
    n = np.shape(scores)[1]
    return [
        common.fill(n, n_keep, pins, common.newest(n, min(recent, n_keep)), common.ranked(row))
        for row, pins in zip(scores, common.per_group(pinned, len(scores)))
    ]


class Reference(contract.Policy):
    RAW = ("values",)

    def options(self, draw):
        return {"recent": draw.pick(0, 0, 1, 4)}

    def statistic(self, r, before):
        return scores(r.raw("values"))

    def select(self, r, scores):
        return keep(scores, r.n_keep, r.pinned, r.options["recent"])
