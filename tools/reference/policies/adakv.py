# SPDX-License-Identifier: Apache-2.0
"""AdaKV: SnapKV's ranking with one budget for all heads of a layer, so that heads with spread attention keep more.

The heads of a layer share n_kv_heads * n_keep slots. Every head keeps its pinned slots and its window. Of the
rest of its n_keep, a share `floor` is guaranteed to the head's own best candidates; the rest of the
layer's slots goes to the best candidates of all heads.

Choices (the public wrappers disagree in detail):
- The guaranteed number is floor * (n_keep - kept already), rounded down, and never more than there are candidates.
- Ranking across heads: pooled score, score before pooling, newer token (by `seq`: slots of different heads are not
  comparable once they hold different tokens), lower head.
- A head whose pinned slots and window exceed n_keep is an error: its guarantee would be negative.
"""

import math

import numpy as np

from .. import common
from . import snapkv


def keep(scores, n_keep, pinned=None, seq=None, window=32, kernel=7, pooling="max", floor=0.2):
    """`scores`: one row per KV head, lengths may differ; `seq`: token numbers in the same shape, slots if None."""
    if n_keep <= window:
        raise common.BudgetError(f"a budget of {n_keep} slots leaves nothing beside a window of {window}")
    n_heads = len(scores)
    lengths = [len(row) for row in scores]
    total = n_heads * n_keep
    if sum(lengths) <= total:
        return [list(range(n)) for n in lengths]
    kept, pool = [], []
    for head, (row, pins) in enumerate(zip(scores, common.per_group(pinned, n_heads))):
        row = np.asarray(row)
        n = lengths[head]
        taken = set(common.pinned_slots(pins)) | set(common.newest(n, window))
        if len(taken) > n_keep:
            raise common.BudgetError(f"{len(taken)} fixed slots of head {head} exceed a budget of {n_keep}")
        order, pooled = snapkv.ranked_candidates(row, window, kernel, pooling)
        order = [slot for slot in order if slot not in taken]
        n_sure = min(len(order), math.floor(floor * (n_keep - len(taken))))
        taken.update(order[:n_sure])
        kept.append(taken)
        for slot in order[n_sure:]:
            number = slot if seq is None else seq[head][slot]
            pool.append((-pooled[slot], -row[slot], -number, head, slot))
    for *_, head, slot in sorted(pool)[: total - sum(len(taken) for taken in kept)]:
        kept[head].add(slot)
    return [sorted(taken) for taken in kept]


class Reference(snapkv.Reference):
    SHARES_HEADS = True

    def options(self, draw):
        return {**draw.pooled, "floor": draw.pick(0.0, 0.25, 0.5, 1.0)}

    def select(self, r, scores):
        o = r.options
        return keep(scores, r.n_keep, r.pinned, r.column("seq"), o["window"], o["kernel"], o["pooling"], o["floor"])
