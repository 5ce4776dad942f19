# SPDX-License-Identifier: Apache-2.0
"""TOVA ("Transformers are Multi-State RNNs"): the slots the latest query attends to most.

Keep-set per layer: the latest row's attention, mean over all query heads, no accumulation. Nothing is protected: the
newest slot competes.

Choice: a prompt longer than the budget is trimmed once, by its last row (bulk). Stepwise operation is the same
function called after every row.
"""

import numpy as np

from .. import common, contract


def scores(attention):
    return common.reduce_heads(common.reduce_rows(attention, "last"), 1, "mean")


def keep(scores, n_keep, pinned=None):
    """`scores` [1, n_slots]."""
    return [common.fill(np.shape(scores)[1], n_keep, pinned, common.ranked(scores[0]))]


class Reference(contract.Policy):
    FIXED = False

    def per_head(self, options):
        return False

    def n_rows(self, options, n_new):
        return min(n_new, 3)

    def statistic(self, r, before):
        return scores(r.raw("attention"))

    def select(self, r, scores):
        return keep(scores, r.n_keep, r.pinned[0])
