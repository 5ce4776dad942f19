# SPDX-License-Identifier: Apache-2.0
"""Shared by all reference policies: order, ties, pooling, head reduction, and filling a budget.

The engine's policies must produce the same keep-sets as the reference, so the reference shares no code with them. One
file is one policy. Terms: a *slot* is a place in the cache of one group, 0 = oldest; a *group* shares one keep-set (the
whole cache, a layer, or a KV head of a layer). Shapes are outermost first:

    attention  [n_heads, n_rows, n_slots]  softmax probabilities of query rows; rows are the newest, in order
    scores     [n_groups, n_slots]         attention after the reduction over rows and heads
    pinned     [n_slots] or [n_groups, n_slots] of bool, or None

A keep-set is an ascending list of slots. Arithmetic uses the dtype of the input arrays: the golden cases run in
float32 and float64 and are discarded when the two disagree.

Choices that hold for every policy here, where the papers are silent:
- Order: keep-sets are ascending, always. Slot order is an input of the next round.
- Ties: higher score first, then the higher score before pooling, then the newer slot.
- A budget of n_keep for n <= n_keep slots keeps everything.
- Pinned slots are always kept and count in the budget; exactly n_keep slots stay. Pins take room first from
  the selected slots, then from the sinks, then from the older part of the recent window, whose newest slot goes last.
  More pins than budget is an error (BudgetError), and so is a budget smaller than the policy's own fixed parts.
- Rounding of a share of a budget: half up. A share is a decimal number: 0.29 of 50 is 14.5 and rounds to 15, though
  the product of two floats is less than that.
"""

import math

import numpy as np


class BudgetError(ValueError):
    """A budget that cannot be met."""


def round_half_up(x):
    return int(math.floor(x * (1 + 1e-14) + 0.5))


def ranked(scores, unpooled=None):
    """Slots, best first, by the tie rule."""
    scores = np.asarray(scores)
    unpooled = scores if unpooled is None else np.asarray(unpooled)
    # lexsort: the last key is the primary one.
    return np.lexsort((-np.arange(len(scores)), -unpooled, -scores)).tolist()


def newest(n, count):
    """The newest `count` of n slots, newest first."""
    return list(range(n - 1, max(n - count, 0) - 1, -1))


def oldest(n, count):
    return list(range(min(n, count)))


def pinned_slots(pinned):
    return [] if pinned is None else np.flatnonzero(np.asarray(pinned, dtype=bool)).tolist()


def fill(n, n_keep, pinned, *tiers):
    """Takes the pinned slots, then the slots of each tier in the tier's order, until n_keep are taken. Ascending.

    A slot that an earlier tier took costs nothing in a later one, so overlaps never waste budget.
    """
    if n_keep < 0:
        raise BudgetError(f"a budget of {n_keep} slots")
    if n <= n_keep:
        return list(range(n))
    taken = take(n_keep, pinned, *tiers)
    if len(taken) != n_keep:
        raise BudgetError(f"only {len(taken)} of {n_keep} slots could be chosen")
    return sorted(taken)


def take(n_keep, pinned, *tiers):
    """The slots that fill() takes until the tiers or the budget are exhausted, in that order."""
    taken = dict.fromkeys(pinned_slots(pinned))
    if len(taken) > n_keep:
        raise BudgetError(f"{len(taken)} pinned slots exceed a budget of {n_keep}")
    for tier in tiers:
        for slot in tier:
            if len(taken) == n_keep:
                return list(taken)
            taken[slot] = None
    return list(taken)


def per_group(pinned, n_groups):
    """`pinned` broadcast to every group."""
    if pinned is None or np.ndim(pinned[0]) == 0:
        return [pinned] * n_groups
    return list(pinned)


def reduce_rows(attention, how):
    """[n_heads, n_rows, n_slots] -> [n_heads, n_slots]."""
    attention = np.asarray(attention)
    if how == "sum":
        return attention.sum(axis=1)
    if how == "mean":
        return attention.sum(axis=1) / attention.dtype.type(attention.shape[1])
    if how == "max":
        return attention.max(axis=1)
    if how == "last":
        return attention[:, -1]
    raise ValueError(f"row reduction {how!r}")


def reduce_heads(per_head, n_kv_heads, how="mean"):
    """[n_heads, n_slots] -> [n_kv_heads, n_slots]. Query head h belongs to KV head h // (n_heads // n_kv_heads)."""
    per_head = np.asarray(per_head)
    n_heads = len(per_head)
    if n_kv_heads <= 0 or n_heads % n_kv_heads:
        raise ValueError(f"{n_heads} query heads over {n_kv_heads} KV heads")
    grouped = per_head.reshape(n_kv_heads, n_heads // n_kv_heads, -1)
    if how == "mean":
        return grouped.sum(axis=1) / grouped.dtype.type(grouped.shape[1])
    if how == "sum":
        return grouped.sum(axis=1)
    if how == "max":
        return grouped.max(axis=1)
    raise ValueError(f"head reduction {how!r}")


def pool(scores, kernel, kind):
    """Pooling of a row of scores, stride 1, zeros beyond both ends; an average divides by `kernel` there too."""
    scores = np.asarray(scores)
    if kernel < 1 or kernel % 2 == 0:
        raise ValueError(f"a pooling kernel must be odd, not {kernel}")
    if kernel == 1 or len(scores) == 0:
        return scores.copy()
    half = kernel // 2
    padded = np.concatenate([np.zeros(half, scores.dtype), scores, np.zeros(half, scores.dtype)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel)
    if kind == "max":
        return windows.max(axis=1)
    if kind == "avg":
        return windows.sum(axis=1) / scores.dtype.type(kernel)
    raise ValueError(f"pooling {kind!r}")


def nll(logits, tokens, before=None):
    """-log P(tokens[i]) of a chunk, from logits [n_tokens, n_vocab], whose row i predicts tokens[i + 1].

    `before` is the last logits row of the chunk before. The first token of a stream has none, so its value is
    +inf, which keeps it.
    """
    logits = np.asarray(logits, dtype=np.float64)
    rows = logits[:-1] if before is None else np.vstack([np.asarray(before, dtype=np.float64)[None], logits[:-1]])
    peak = rows.max(axis=1, keepdims=True)
    log_sum = peak[:, 0] + np.log(np.exp(rows - peak).sum(axis=1))
    targets = np.asarray(tokens)[1:] if before is None else np.asarray(tokens)
    out = log_sum - rows[np.arange(len(rows)), targets]
    return np.concatenate([[np.inf], out]) if before is None else out
