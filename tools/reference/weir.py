"""Weir's own policy: the newest tokens, unless something stands out.

Keep-set per KV head. Of n_keep slots, in this order: pinned ones, the newest one, the first `sinks`; spans that
surprised the model (at most round(alpha * n_keep)); slots that the prompt's last rows attend to (at most
round(beta * n_keep)); the newest. What stands out:

    surprise   N_j = mean of -log P over the `kernel` neighbours of slot j;  N_j > m + z * 1.4826 * d,
               m = median of N, d = median of |N - m|
    saddles    A_j = mean attention of the last `rows` rows and of a KV head's query heads, over `kernel` neighbours
               B_j = A_j - b * (n - 1 - j) / n;  B_j > saddle / n, 1 / n being what an average slot gets

Choices:
- Medians are those of the whole pot, kept slots included; the upper one of an even count; what is not finite does not
  count.
- +inf of the first token spreads to its neighbours through the mean, so that they stand out like it.
- A slot that stands out and is kept for another reason takes nothing from its share.
- A share of zero does not look at its statistic.
- Fewer rows than `rows`: as many as there are.
"""

import numpy as np

from . import common


def scores(attention, n_kv_heads, rows=32):
    """[n_kv_heads, n_slots] from the newest rows of a prompt."""
    attention = np.asarray(attention)
    return common.reduce_heads(common.reduce_rows(attention[:, -rows:], "mean"), n_kv_heads, "mean")


def median(values):
    finite = np.sort(values[np.isfinite(values)])
    return finite[len(finite) // 2] if len(finite) else values.dtype.type(0)


def surprise_bar(pooled, z):
    middle = median(pooled)
    return pooled.dtype.type(float(middle) + z * 1.4826 * float(median(np.abs(pooled - middle))))


def standing_out(pooled, unpooled, bar, taken, share):
    """At most `share` slots above the bar that are not taken, best first."""
    return [slot for slot in common.ranked(pooled, unpooled) if pooled[slot] > bar and slot not in taken][:share]


def keep(u, nll, n_keep, pinned=None, sinks=4, alpha=0.35, z=4.0, beta=0.1, saddle=8.0, kernel=5, b=0.0):
    out = []
    for row, surprise, pins in zip(u, nll, common.per_group(pinned, len(u))):
        row, surprise = np.asarray(row), np.asarray(surprise)
        n = len(row)
        newest, first = common.newest(n, 1), common.oldest(n, sinks)
        taken = {*common.pinned_slots(pins), *newest, *first}
        novel, saddles = [], []
        if alpha > 0:
            pooled = common.pool(surprise, kernel, "avg")
            novel = standing_out(pooled, surprise, surprise_bar(pooled, z), taken, common.round_half_up(alpha * n_keep))
            taken |= set(novel)
        if beta > 0:
            real = row.dtype.type
            penalty = real(b) * np.arange(n - 1, -1, -1).astype(real) / real(n)
            saddles = standing_out(common.pool(row, kernel, "avg") - penalty, row, real(saddle) / real(n), taken,
                                   common.round_half_up(beta * n_keep))
        out.append(common.fill(n, n_keep, pins, newest, first, novel, saddles, common.newest(n, n)))
    return out
