# SPDX-License-Identifier: Apache-2.0
"""Keyformer (arXiv 2403.09054): H2O's sums, of attention with Gumbel noise and a temperature.

Keep-set per layer and KV head. State per entry and KV head: the sum over all queries since it entered of

    softmax((x + g) / tau)       x the scores before the softmax, g = -ln(-ln u)

An evicted entry loses its sum. The newest `recent` are always kept.

Choices:
- tau is `tau` while a prompt is read; an answer's t-th token has tau + t (tau_end - tau) / length, at most tau_end. The
  paper knows the length of the answer beforehand.
- u is a counter's hash, keyed by (seed, layer, query head, number of the row in its stream, slot); see gumbel().
- Query heads of a group are reduced by their mean, row by row; sum is an option.
- Golden cases hold softmax(x) = p. softmax((x + g) / tau) is p^(1/tau) exp(g/tau), divided by its sum.
- recent = 0 means no protected slot at all; a budget below `recent` clamps `recent`.
- A chunk is added to the sums before anything leaves, and eviction happens once per call of keep.
"""

import numpy as np

from .. import common, contract

M32, M64 = 2**32 - 1, 2**64 - 1


def mix64(z):
    """One step of splitmix64, of a Python integer."""
    z = (z + 0x9E3779B97F4A7C15) & M64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & M64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & M64
    return z ^ (z >> 31)


def draw(seed, layer, head, row, slot):
    """23 random bits of one score."""
    key = mix64(mix64(mix64(mix64(seed) + layer) + head) + row)
    x = ((key & M32) + slot * 0x9E3779B9) & M32
    x = ((x ^ (x >> 16)) * 0x7FEB352D & M32) ^ (key >> 32)
    x = (x ^ (x >> 15)) * 0x846CA68B & M32
    return (x ^ (x >> 16)) >> 9


def gumbel(seed, layer, head, row, n_slots):
    """Standard Gumbel noise of a row's first n_slots scores."""
    u = np.array([(draw(seed, layer, head, row, slot) + 0.5) / 2**23 for slot in range(n_slots)])
    return -np.log(-np.log(u))


def temperature(tau, tau_end, length, t):
    """Of an answer's t-th token; t = 0: of a prompt."""
    return min(tau_end, tau + t * (tau_end - tau) / length)


def weights(p, tau, noise):
    """softmax((x + noise) / tau) of one row whose softmax(x) is `p`."""
    p = np.asarray(p, dtype=np.float64)
    w = p ** (1 / tau) * np.exp(noise / tau)
    return w / w.sum()


def accumulate(sums, attention, rows, n_kv_heads, seed=0, layer=0, taus=None, reduce="mean", noisy=True):
    """Sums after the rows of `attention` [n_heads, n_rows, n_slots], whose numbers in the stream are `rows`.

    `sums` [n_kv_heads, n_slots - n_rows]: those of the slots from before, or None. `taus`: of each row; default 1.
    """
    attention = np.asarray(attention)
    n_heads, n_rows, n_slots = attention.shape
    new = np.zeros((n_kv_heads, n_slots))
    for i, row in enumerate(rows):
        noise = [gumbel(seed, layer, head, row, n_slots) if noisy else np.zeros(n_slots) for head in range(n_heads)]
        tau = 1 if taus is None else taus[i]
        voted = np.stack([weights(attention[head, i], tau, noise[head]) for head in range(n_heads)])
        new += common.reduce_heads(voted, n_kv_heads, reduce)
    new = new.astype(attention.dtype)
    if sums is not None:
        new[:, : np.shape(sums)[1]] += np.asarray(sums, dtype=new.dtype)
    return new


def keep(scores, n_keep, pinned=None, recent=0):
    scores = np.asarray(scores)
    n = scores.shape[1]
    return [
        common.fill(n, n_keep, pins, common.newest(n, min(recent, n_keep)), common.ranked(row))
        for row, pins in zip(scores, common.per_group(pinned, len(scores)))
    ]


class Reference(contract.Policy):
    ROUNDED = True

    def options(self, draw):
        return {
            "recent": draw.pick(0, 1, 4, 8),
            "reduce": draw.pick("mean", "mean", "sum"),
            "seed": draw.pick(0, 1, 12345),
            "tau": draw.pick(0.5, 1.0, 1.5),
            "noise": "none" if draw.case % 6 == 5 else "gumbel",
        }

    def statistic(self, r, before):
        o, attention = r.options, r.raw("attention")
        sums = None if before is None else [scores[keep] for scores, keep in zip(*before)]
        rows = r.column("seq")[0][-attention.shape[1] :]
        taus = [o["tau"]] * len(rows)
        return accumulate(
            sums, attention, rows, r.n_kv_heads, o["seed"], 0, taus, o["reduce"], noisy=o["noise"] == "gumbel"
        )

    def select(self, r, scores):
        return keep(scores, r.n_keep, r.pinned, r.options["recent"])
