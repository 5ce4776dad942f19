# SPDX-License-Identifier: Apache-2.0
"""H2O ("Heavy-Hitter Oracle"): the slots with the most accumulated attention, and the newest `recent`.

Keep-set per layer and KV head. State per entry and KV head: the sum of the attention of all queries since it entered,
rows as actually attended, without division. An evicted entry loses its sum.

Choices:
- Query heads of a group are reduced by their mean; sum and max are options.
- normalise "none" is the method; "count" divides by the number of queries that could see the entry (ObservedAttention).
- recent = 0 means no protected slot at all; a budget below `recent` clamps `recent`.
- A chunk is added to the sums before anything leaves, and eviction happens once per call of keep.
"""

import numpy as np

from .. import common, contract


def accumulate(sums, attention, n_kv_heads, reduce="mean"):
    """Sums after the rows of `attention` [n_heads, n_rows, n_slots].

    `sums` [n_kv_heads, n_slots - n_rows]: those of the slots from before, or None.

    Heads are reduced row by row, then rows are summed: for "max" the other order would give another number.
    """
    attention = np.asarray(attention)
    new = sum(common.reduce_heads(attention[:, row], n_kv_heads, reduce) for row in range(attention.shape[1]))
    if sums is not None:
        new[:, : np.shape(sums)[1]] += np.asarray(sums, dtype=new.dtype)
    return new


def count_queries(counts, n_rows):
    """Queries that could see each slot: `counts` of the old slots, then n_rows new ones, each seen by itself too."""
    old = [] if counts is None else [c + n_rows for c in counts]
    return old + list(range(n_rows, 0, -1))


def keep(scores, n_keep, pinned=None, recent=0, counts=None):
    """`scores`: the sums. `counts` [n_slots] or [n_groups, n_slots] switches normalise to "count"."""
    scores = np.asarray(scores)
    if counts is not None:
        scores = scores / np.asarray(counts, dtype=scores.dtype)
    n = scores.shape[1]
    out = []
    for row, pins in zip(scores, common.per_group(pinned, len(scores))):
        out.append(common.fill(n, n_keep, pins, common.newest(n, min(recent, n_keep)), common.ranked(row)))
    return out


class Reference(contract.Policy):
    def options(self, draw):
        return {
            "recent": draw.pick(0, 1, 4, 8),
            "reduce": draw.pick("mean", "mean", "max", "sum"),
            "normalise": "count" if draw.case % 6 == 5 else "none",
        }

    def counts_queries(self, options):
        return options["normalise"] == "count"

    def statistic(self, r, before):
        sums = None if before is None else [scores[keep] for scores, keep in zip(*before)]
        return accumulate(sums, r.raw("attention"), r.n_kv_heads, r.options["reduce"])

    def select(self, r, scores):
        counts = r.column("queries") if self.counts_queries(r.options) else None
        return keep(scores, r.n_keep, r.pinned, r.options["recent"], counts)

    def stable(self, r, scores, keep, select):
        if not self.counts_queries(r.options):
            return True
        # A division, or a product with the inverse: the same.
        inverse = [
            np.asarray(row, np.float32) * (np.float32(1) / np.asarray(queries, np.float32))
            for row, queries in zip(scores, r.column("queries"))
        ]
        return select(inverse, np.float32, normalise="none") == keep
