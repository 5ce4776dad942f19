# SPDX-License-Identifier: Apache-2.0
"""Weir's own policy: the newest tokens, unless something stands out.

Keep-set per KV head. Of n_keep slots, in this order: pinned ones, the newest one, the first `sinks`; spans that
surprised the model (at most round(alpha * n_keep)); once the stream has held a picture, or with saddles=always, slots
that the prompt's last rows attend to (at most round(beta * n_keep)); once it has, the newest round(recent * n_keep),
one slot of each of the oldest scenes, round(first * n_keep) in all, and equally many of every scene, as many as there
is room for but at least `frame_rows`, newest scenes first, best by keydiff.scores; the newest. Definitions:

    surprise   N_j = mean of -log P over the `kernel` neighbours of slot j;  N_j > m + z * 1.4826 * d,
               m = median of N, d = median of |N - m|
    saddles    A_j = mean attention of the last `rows` rows and of a KV head's query heads, over `kernel` neighbours
               B_j = A_j - b * (n - 1 - j) / n;  B_j > saddle / n, 1 / n being what an average slot gets

Choices:
- Medians are over the whole pot, kept slots included; the upper one for an even count; non-finite values are
  ignored.
- +inf of the first token spreads to its neighbours through the mean, so they stand out too.
- A slot that stands out but is kept for another reason does not count against its share.
- A share of zero ignores its statistic.
- If there are fewer than `rows` rows, all are used.
- Visual slots are never surprising and are excluded from medians.
- Slots that are kept for another reason are no longer their scene's. What a scene's first frame showed is not taken.
"""

import numpy as np

from .. import common, contract


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
    """At most `share` slots above the bar and not yet taken, best first."""
    return [slot for slot in common.ranked(pooled, unpooled) if pooled[slot] > bar and slot not in taken][:share]


def of_every_scene(visual, scenes, taken, room, n_first, least):
    """Slots of scenes in the order in which they are taken."""
    left = {}
    for slot in common.ranked(np.asarray(visual)):
        if scenes[slot] > 0 and slot not in taken:
            left.setdefault(scenes[slot], []).append(slot)
    first = [left[number].pop(0) for number in sorted(left)[:n_first]][:room]
    most = max(map(len, left.values()), default=0)
    fits = [n for n in range(least + 1, most + 1) if sum(min(n, len(of)) for of in left.values()) <= room - len(first)]
    each = max(fits, default=least)
    return first + [slot for number in sorted(left, reverse=True) for slot in left[number][:each]]


def keep(
    u,
    nll,
    n_keep,
    pinned=None,
    sinks=4,
    alpha=0.35,
    z=6.0,
    beta=0.1,
    saddle=8.0,
    kernel=5,
    b=0.0,
    recent=0.3,
    frame_rows=6,
    first=0.1,
    saddles="pictures",
    frames=None,
    visual=None,
    scenes=None,
):
    """frames: [n_groups][n_slots], -1 for text; visual: keydiff.scores of all slots, scenes: their numbers as in
    src/ops/scenes.h; None: a stream without pictures."""
    out = []
    for group, (row, surprise, pins) in enumerate(zip(u, nll, common.per_group(pinned, len(u)))):
        row, surprise = np.asarray(row), np.asarray(surprise)
        n = len(row)
        newest, oldest = common.newest(n, 1), common.oldest(n, sinks)
        taken = {*common.pinned_slots(pins), *newest, *oldest}
        novel, attended = [], []
        if alpha > 0:
            pooled = common.pool(surprise, kernel, "avg")
            if frames is not None:
                pooled[np.asarray(frames[group]) >= 0] = -np.inf
            novel = standing_out(pooled, surprise, surprise_bar(pooled, z), taken, common.round_half_up(alpha * n_keep))
            taken |= set(novel)
        if beta > 0 and (saddles == "always" or visual is not None):
            real = row.dtype.type
            penalty = real(b) * np.arange(n - 1, -1, -1).astype(real) / real(n)
            attended = standing_out(
                common.pool(row, kernel, "avg") - penalty,
                row,
                real(saddle) / real(n),
                taken,
                common.round_half_up(beta * n_keep),
            )
        tiers = [newest, oldest, novel, attended]
        if visual is not None and frame_rows > 0:
            tiers.append(common.newest(n, common.round_half_up(recent * n_keep)))
            before = common.take(n_keep, pins, *tiers)
            n_first = common.round_half_up(first * n_keep)
            room = n_keep - len(before)
            tiers.append(of_every_scene(visual[group], scenes[group], before, room, n_first, frame_rows))
        out.append(common.fill(n, n_keep, pins, *tiers, common.newest(n, n)))
    return out


class Reference(contract.Policy):
    NLL, VISION, SECOND, SCENES, SPANS = True, "too", "visual", True, True

    def options(self, draw):
        return {
            "sinks": draw.pick(0, 1, 4),
            "alpha": draw.pick(0.0, 0.2, 0.35, 0.5, 1.0),
            "z": draw.pick(-1.0, 0.0, 1.0, 2.0, 4.0),
            "beta": draw.pick(0.0, 0.1, 0.25, 0.5, 1.0),
            "saddle": draw.pick(0.0, 0.5, 1.0, 2.0, 4.0, 8.0),
            "kernel": draw.pick(1, 3, 5),
            "b": draw.pick(0.0, 0.0, 0.125, 0.01),
            "rows": draw.pick(1, 2, 4, 32),
            "recent": draw.pick(0.0, 0.3, 0.3, 0.5),
            "frame_rows": draw.pick(0, 1, 2, 2, 3, 4),
            "first": draw.pick(0.0, 0.1, 0.25, 0.5),
            "saddles": draw.pick("always", "always", "pictures"),
        }

    def fixed(self, options):
        return options["sinks"] + 1, options["sinks"], 0  # `recent` is a share

    def n_rows(self, options, n_new):
        return min(n_new, 4)

    def statistic(self, r, before):
        return scores(r.raw("attention"), r.n_kv_heads, r.options["rows"])

    def select(self, r, scores):
        o, seen = r.options, r.has("visual")
        return keep(
            scores,
            r.nll(),
            r.n_keep,
            r.pinned,
            *(o[name] for name in ("sinks", "alpha", "z", "beta", "saddle", "kernel", "b", "recent", "frame_rows")),
            first=o["first"],
            saddles=o["saddles"],
            frames=r.column("frame") if seen else None,
            visual=r.rows("visual") if seen else None,
            scenes=r.rows("scenes") if seen else None,
        )

    def stable(self, r, scores, keep, select):
        # Neither bar may be within rounding of a slot's value, unless the two are equal.
        return all(
            select(scores, np.float64, **{name: r.options[name] * nudge}) == keep
            for nudge in (1 - 1e-5, 1 + 1e-5)
            for name in ("z", "saddle", "b")
        )
