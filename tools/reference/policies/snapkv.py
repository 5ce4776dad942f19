# SPDX-License-Identifier: Apache-2.0
"""SnapKV: the slots the last `window` queries of a prompt attend to, pooled over neighbours, and the window itself.

Keep-set per layer and KV head, once at the end of prefill. The window's own slots are always kept and never pooled:
only the slots before them are candidates, and pooling sees zeros beyond the candidates on both sides.

Choices:
- Query heads of a group are reduced (mean by default) before pooling.
- Ties of pooled scores go to the higher score before pooling, then to the newer slot.
- A budget of n_keep <= window is rejected.
- Pinned candidates are pooled like any other, so they raise their neighbours' scores.
"""

import numpy as np

from .. import common, contract


def scores(attention, n_kv_heads, window, reduce="mean"):
    """Sum of the last `window` rows, per KV head; the window's own columns are included but not used."""
    attention = np.asarray(attention)
    return common.reduce_heads(common.reduce_rows(attention[:, -window:], "sum"), n_kv_heads, reduce)


def ranked_candidates(row, window, kernel, pooling):
    """Candidates of one group, best first, with their ranking values: (slots, pooled scores)."""
    row = np.asarray(row)
    candidates = row[: max(len(row) - window, 0)]
    pooled = common.pool(candidates, kernel, pooling)
    return common.ranked(pooled, candidates), pooled


def select(scores, n_keep, pinned=None, window=32, kernel=5, pooling="avg"):
    """Like keep, for any budget: one that does not exceed the window keeps the newest slots."""
    n = np.shape(scores)[1]
    out = []
    for row, pins in zip(scores, common.per_group(pinned, len(scores))):
        order, _ = ranked_candidates(row, window, kernel, pooling)
        out.append(common.fill(n, n_keep, pins, common.newest(n, window), order))
    return out


def keep(scores, n_keep, pinned=None, window=32, kernel=5, pooling="avg"):
    if n_keep <= window:
        raise common.BudgetError(f"a budget of {n_keep} slots leaves nothing beside a window of {window}")
    return select(scores, n_keep, pinned, window, kernel, pooling)


class Reference(contract.Policy):
    def options(self, draw):
        return dict(draw.pooled)

    def raw_options(self, options):
        return {**options, "window": min(options["window"], 4)}

    def fixed(self, options):
        return options["window"] + 1, 0, options["window"]

    def n_rows(self, options, n_new):
        return min(n_new, options["window"] + 2)

    def statistic(self, r, before):
        return scores(r.raw("attention"), r.n_kv_heads, r.options["window"], r.options["reduce"])

    def select(self, r, scores):
        o = r.options
        return keep(scores, r.n_keep, r.pinned, o["window"], o["kernel"], o["pooling"])
