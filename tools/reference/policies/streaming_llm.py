# SPDX-License-Identifier: Apache-2.0
"""StreamingLLM ("Efficient Streaming Language Models with Attention Sinks"): the first slots and the newest stay.

Global keep-set, no scores, applied after every forward or, in a chat, before a prompt of `num_coming` tokens.
A budget that leaves no recent slot beside the sinks is rejected. Where pins leave too little room, the newest slot goes
before the sinks and the sinks go before the rest of the window (recent, at least one, then sinks).
"""

from .. import common, contract


def budget(capacity, num_coming=0):
    """Slots that can be kept when num_coming tokens are about to be read into `capacity` slots."""
    return capacity - num_coming


def keep(n_slots, n_keep, pinned=None, sinks=4):
    if n_keep <= sinks:
        raise common.BudgetError(f"a budget of {n_keep} slots leaves no recent slot beside {sinks} sinks")
    return [
        common.fill(
            n_slots,
            n_keep,
            pinned,
            common.newest(n_slots, 1),
            common.oldest(n_slots, sinks),
            common.newest(n_slots, n_slots),
        )
    ]


class Reference(contract.Policy):
    RAW, SCORES, MOST_COMING = (), False, 6

    def options(self, draw):
        return {"sinks": draw.pick(0, 1, 4, 4)}

    def per_head(self, options):
        return False

    def select(self, r, scores):
        return keep(r.n, r.n_keep, r.pinned[0], r.options["sinks"])
