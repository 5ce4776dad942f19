# SPDX-License-Identifier: Apache-2.0
"""Inf-MLLM (arXiv 2409.09086): slots that the new prompt attends to, with a linear penalty on age, and the newest ones.

Keep-set per layer, once per round, after the prompt's attention. With n slots, the last l = `recent` are always kept
and the N = n - l before them are candidates, of which r = n_keep - l stay:

    B_j = S_j - (b / N) * (N - 1 - j)     S_j = mean of A over the last min(l, m) rows and over all query heads

so b is the whole penalty of the oldest slot and 0 that of the newest candidate.

Choices (the paper's prose and its Alg. 1 contradict each other):
- The penalty is subtracted; its argument is the rank of a slot in the present cache, pinned slots included.
- Mean over rows and over query heads, not sum: a sum would change what a given b means. Option `per_kv_head`: mean over
  the group, a keep-set per KV head.
- l is a parameter (mode "fixed"); mode "prompt" has l = m, the length of the new prompt, and r = n_keep - m.
- The last l slots never compete; the older part of a prompt longer than l does.
- A prompt shorter than l has m rows and is divided by m; the last l slots are protected all the same.
- Nothing leaves while N <= r.
- A budget below l is an error.
- The paper leaves b open. found_bias() is the smallest one with which at most the share `old` of the r attended slots
  is older than recency alone would keep.
"""

import numpy as np

from .. import common, contract


def scores(attention, recent, n_kv_heads=1, per_kv_head=False):
    """[1, n_slots], or [n_kv_heads, n_slots] with per_kv_head. `attention` holds the m rows of the new prompt."""
    attention = np.asarray(attention)
    n_rows = min(recent, attention.shape[1])
    rows = common.reduce_rows(attention[:, attention.shape[1] - n_rows :], "mean")
    return common.reduce_heads(rows, n_kv_heads if per_kv_head else 1, "mean")


def biased(row, recent, b):
    """B of the candidates of one group."""
    row = np.asarray(row)
    n_candidates = len(row) - recent
    age = np.arange(n_candidates - 1, -1, -1).astype(row.dtype)
    return row[:n_candidates] - row.dtype.type(b) * age / row.dtype.type(n_candidates)


def found_bias(row, recent, n_keep, old):
    """Exact, by trying the penalties at which an old candidate and a newer one change places."""
    row = np.asarray(row, dtype=np.float64)
    n, r = len(row) - recent, n_keep - recent
    most = common.round_half_up(old * r)
    ties = {0.0} | {(row[i] - row[j]) * n / (j - i) for i in range(n - r) for j in range(n - r, n) if row[i] > row[j]}
    for b in sorted(ties):
        # At the tie itself the newer slot wins.
        kept = common.ranked(biased(row, recent, b * (1 + 1e-12)))[:r]
        if sum(slot < n - r for slot in kept) <= most:
            return b
    raise AssertionError("the largest penalty leaves only age")


def keep(scores, n_keep, pinned=None, recent=64, b=0.01):
    scores = np.asarray(scores)
    n = scores.shape[1]
    if n_keep < recent:
        raise common.BudgetError(f"a budget of {n_keep} slots is below the {recent} recent ones")
    if n <= n_keep:
        return [list(range(n)) for _ in scores]
    return [
        common.fill(n, n_keep, pins, common.newest(n, recent), common.ranked(biased(row, recent, b)))
        for row, pins in zip(scores, common.per_group(pinned, len(scores)))
    ]


class Reference(contract.Policy):
    def options(self, draw):
        recent, b = draw.pick(1, 2, 4, 8), draw.pick(0.0, 1.0, 0.125, 0.01, 0.001, 0.0001)
        return {"recent": recent, "b": b, "per_kv_head": draw.case % 4 == 3}

    def fixed(self, options):
        return options["recent"], 0, options["recent"]

    def per_head(self, options):
        return options["per_kv_head"]

    def n_rows(self, options, n_new):
        return min(n_new, options["recent"] + 2)

    def statistic(self, r, before):
        return scores(r.raw("attention"), r.options["recent"], r.n_kv_heads, r.options["per_kv_head"])

    def select(self, r, scores):
        return keep(scores, r.n_keep, r.pinned, r.options["recent"], r.options["b"])

    def stable(self, r, scores, keep, select):
        recent = r.options["recent"]
        n = len(scores[0]) - recent
        if n <= 0:
            return True
        ages = np.arange(n - 1, -1, -1)
        for row, pins, kept in zip(scores, r.pinned, keep):
            for real in (np.float32, np.float64):
                b, head, age, count = real(r.options["b"]), np.asarray(row[:n], real), ages.astype(real), real(n)
                for value in (head - b / count * age, head - b * (age / count), head + b * (-age / count)):
                    newest = common.newest(len(row), recent)
                    if common.fill(len(row), r.n_keep, pins, newest, common.ranked(value)) != kept:
                        return False
        return True
