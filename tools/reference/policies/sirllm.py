# SPDX-License-Identifier: Apache-2.0
"""SirLLM: the most surprising tokens, the first `sinks`, and the newest.

Global keep-set, once per round, before the round's `num_coming` tokens are read. A stored token carries its NLL; after
the selection of every round, whether or not anything was evicted, all stored NLLs are multiplied by `decay`.

With capacity C = sinks + recent + n_entropy and n_keep = C - num_coming, the n_entropy - num_coming slots of highest
NLL are selected: that is n_keep - sinks - recent, and none if negative. They are ranked over all slots, sinks and
recent ones included; room left by overlaps is filled newest first.

Choices:
- The true NLL of a token (common.nll), not the published code's, which is shifted by one token.
- The first token of the stream has +inf, not the maximum of its chunk; decay does not change it.
- A budget of n_keep <= sinks is rejected.
"""

import numpy as np

from .. import common, contract


def decayed(nll, decay):
    nll = np.asarray(nll)
    return nll * nll.dtype.type(decay)


def keep(nll, n_keep, pinned=None, sinks=4, recent=0):
    n = len(nll)
    if n_keep <= sinks:
        raise common.BudgetError(f"a budget of {n_keep} slots leaves nothing beside {sinks} sinks")
    n_surprising = max(0, n_keep - sinks - recent)
    return [
        common.fill(
            n,
            n_keep,
            pinned,
            common.newest(n, min(recent, 1)),
            common.oldest(n, sinks),
            common.newest(n, recent),
            common.ranked(nll)[:n_surprising],
            common.newest(n, n),
        )
    ]


class Reference(contract.Policy):
    RAW, NLL, MOST_COMING, ROUNDED, LONG = (), True, 16, True, 6

    def options(self, draw):
        return {
            "sinks": draw.pick(0, 2, 4, 4),
            "recent": draw.pick(0, 0, 3, 6),
            "decay": draw.pick(1.0, 0.5, 0.75, 0.7, 0.9),
        }

    def per_head(self, options):
        return False

    def statistic(self, r, before):
        nll = r.nll()[0]
        if before is not None:
            survivors = decayed(before[0][0][before[1][0]], r.options["decay"])
            nll[: len(survivors)] = survivors
        return [nll]

    def select(self, r, scores):
        return keep(scores[0], r.n_keep, r.pinned[0], r.options["sinks"], r.options["recent"])
