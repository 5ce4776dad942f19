# SPDX-License-Identifier: Apache-2.0
"""InfiniPot (arXiv 2410.01518): surprising tokens (NuC) and tokens a catalyst prompt attends to (CaP).

Keep-set per layer and KV head, when the pot is full. The |C| = n_keep slots that stay are the T = round(alpha * |C|)
with the largest NLL, then the rest by u, the attention they receive from the rows of the catalyst prompt.

Choices:
- Rows of the catalyst are summed; heads of a group are reduced by their mean ("max" is an option of both).
- NLL is the value recorded when the token was read; later cycles keep it. It is ranked per KV head over the entries
  that this head still holds. The first token of the stream has +inf.
- Nothing predicts a visual token: it takes the median likelihood of the text that the head holds (of the finite ones;
  0 without text), and pooled u ranks visual tokens among each other.
- u is not pooled by default. When it is, pooling runs over all slots of the head, including those that NuC took.
- Pinned slots are taken first; alpha divides what is left: T = round(alpha * (|C| - number of pinned slots)).
- alpha = 1 needs no catalyst: u may be None.
"""

import numpy as np

from .. import common, contract


def scores(attention, n_kv_heads, rows="sum", reduce="mean"):
    """u [n_kv_heads, n_slots] from the catalyst's rows over the pot's slots (the catalyst's own columns left out)."""
    return common.reduce_heads(common.reduce_rows(attention, rows), n_kv_heads, reduce)


def cycles(n_tokens, pot, distilled, n_catalyst):
    """Distillations while a stream of n_tokens is read into a pot of `pot` slots that shrinks to `distilled`."""
    room = pot - n_catalyst
    if n_catalyst >= pot - distilled:
        raise common.BudgetError(f"{n_catalyst} catalyst tokens leave no room between {distilled} and {pot} slots")
    return 0 if n_tokens <= room else -(-(n_tokens - room) // (room - distilled))


def surprise_of(nll, visual, u):
    """(likelihoods with those of visual tokens filled in, what breaks their ties)."""
    nll, visual = np.asarray(nll), np.asarray(visual, bool)
    text = nll[~visual & np.isfinite(nll)]
    level = np.median(text) if len(text) else nll.dtype.type(0)
    return np.where(visual, level, nll), np.where(visual, u, 0)


def keep(u, nll, n_keep, pinned=None, alpha=0.5, kernel=1, pooling="avg", frames=None):
    """`nll` [n_kv_heads, n_slots]; `u` likewise, or None with alpha = 1; frames: likewise, below 0 for text."""
    out = []
    for head, (surprise, pins) in enumerate(zip(nll, common.per_group(pinned, len(nll)))):
        n = len(surprise)
        fixed = set(common.pinned_slots(pins))
        n_novel = common.round_half_up(alpha * max(0, n_keep - len(fixed)))
        row = np.zeros(n) if u is None else np.asarray(u[head])
        pooled, ties = common.pool(row, kernel, pooling), None
        if frames is not None:
            surprise, ties = surprise_of(surprise, np.asarray(frames[head]) >= 0, pooled)
        novel = [slot for slot in common.ranked(surprise, ties) if slot not in fixed][:n_novel]
        out.append(common.fill(n, n_keep, pins, novel, common.ranked(pooled, row)))
    return out


class Reference(contract.Policy):
    NLL, PROBE, FIXED, VISION = True, True, False, "too"

    def options(self, draw):
        return {
            "alpha": draw.pick(0.0, 0.25, 0.5, 0.5, 0.75, 1.0),
            "kernel": draw.pick(1, 1, 3, 5),
            "pooling": draw.pick("max", "avg"),
            "rows": draw.pick("sum", "sum", "max"),
            "reduce": draw.pick("mean", "mean", "max"),
        }

    def n_rows(self, options, n_new):
        return min(n_new, 4)

    def statistic(self, r, before):
        return scores(r.raw("attention"), r.n_kv_heads, r.options["rows"], r.options["reduce"])

    def select(self, r, scores):
        o = r.options
        u = None if o["alpha"] == 1 else scores  # no catalyst is read
        frames = r.column("frame") if "frame" in r.slots[0] else None
        return keep(u, r.nll(), r.n_keep, r.pinned, o["alpha"], o["kernel"], o["pooling"], frames)
