"""Weir's own policy: sinks, the newest, surprising spans, and what a probe attends to, with a penalty on age.

Keep-set per layer and KV head. Of n_keep slots, in this order: pinned ones, the first `sinks`, the newest
round(recent * n_keep); of what is left a share `alpha` by likelihood, the rest by the probe's attention. Likelihoods
(-log P) and attention are averaged over `kernel` neighbours. The penalty of a slot of n is b / n for every newer slot.

Choices: a pool runs over all slots, those already kept included; +inf of the first token spreads to its neighbours,
which keeps them. alpha = 0 needs no likelihoods.
"""

import numpy as np

from . import common


def scores(attention, n_kv_heads):
    """Mean over the probe's rows and over the query heads of a KV head, [n_kv_heads, n_slots]."""
    return common.reduce_heads(common.reduce_rows(attention, "mean"), n_kv_heads, "mean")


def keep(u, nll, n_keep, pinned=None, sinks=4, recent=0.5, alpha=0.5, kernel=5, b=0.0):
    out = []
    for row, surprise, pins in zip(u, nll, common.per_group(pinned, len(u))):
        row = np.asarray(row)
        n = len(row)
        first, last = common.oldest(n, sinks), common.newest(n, common.round_half_up(recent * n_keep))
        taken = set(common.pinned_slots(pins))
        for slot in first + last:
            if len(taken) < n_keep:
                taken.add(slot)
        n_novel = common.round_half_up(alpha * (n_keep - len(taken))) if alpha > 0 else 0
        order = common.ranked(common.pool(surprise, kernel, "avg"), surprise)
        novel = [slot for slot in order if slot not in taken][:n_novel]
        age = np.arange(n - 1, -1, -1).astype(row.dtype)
        biased = common.pool(row, kernel, "avg") - row.dtype.type(b) * age / row.dtype.type(n)
        out.append(common.fill(n, n_keep, pins, first, last, novel, common.ranked(biased, row)))
    return out
