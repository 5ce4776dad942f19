# SPDX-License-Identifier: Apache-2.0
"""PyramidKV: SnapKV with more slots in lower layers and fewer in higher ones.

The budget of a layer follows from the average budget C, the window w, the steepness beta, the depth and the length n
of the prompt. Integer division makes the steps between layers too small, never too large, so the layers together may
keep more than n_layers * C (by less than n_layers * (n_layers - 1) / 2 slots per KV head): a fixed pot must allow
for that.

A full pot is no prompt: n is what the fullest layer holds, and the exceptions for a short prompt do not apply.

Choices: a model of one layer gets C. At n = C nothing is evicted, as at n < C. A top layer may keep only its
window.
"""

from .. import common
from . import snapkv


def layer_budget(capacity, window, beta, layer, n_layers, n_slots, full_pot=False):
    """Slots that `layer` keeps, its window included."""
    selected = capacity - window
    if selected <= 0:
        raise common.BudgetError(f"a budget of {capacity} slots leaves nothing beside a window of {window}")
    if n_slots <= capacity and not full_pot:
        return n_slots
    if (n_slots < 2 * selected and not full_pot) or n_layers == 1:
        return capacity
    low = selected // beta
    high = 2 * selected - low
    if high >= n_slots - window:
        high = n_slots - window
        low = 2 * selected - high
    return high - layer * ((high - low) // (n_layers - 1)) + window


def keep(scores, capacity, layer, n_layers, pinned=None, window=8, kernel=7, pooling="max", beta=20, full_pot=False):
    n_keep = layer_budget(capacity, window, beta, layer, n_layers, len(scores[0]), full_pot)
    return snapkv.select(scores, n_keep, pinned, window, kernel, pooling)


class Reference(snapkv.Reference):
    LAYER_BUDGETS = True

    def options(self, draw):
        n_layers = draw.pick(1, 2, 4, 5)
        beta = draw.pick(2, 5, 20)
        return {**draw.pooled, "beta": beta, "layer": draw.pick(*range(n_layers)), "n_layers": n_layers}

    def layer_budget(self, options, n_slots):
        o = options
        return layer_budget(
            o["capacity"], o["window"], o["beta"], o["layer"], o["n_layers"], n_slots, o.get("full_pot", False)
        )

    def select(self, r, scores):
        o = r.options
        return keep(
            scores,
            o["capacity"],
            o["layer"],
            o["n_layers"],
            r.pinned,
            o["window"],
            o["kernel"],
            o["pooling"],
            o["beta"],
            o.get("full_pot", False),
        )
