# SPDX-License-Identifier: Apache-2.0
"""Window attention: the newest slots stay. A baseline that must collapse once the first tokens of the stream are
evicted.

Global keep-set, no scores. Pinned slots are kept beside the window and shorten it.
"""

from .. import common, contract


def keep(n_slots, n_keep, pinned=None):
    return [common.fill(n_slots, n_keep, pinned, common.newest(n_slots, n_slots))]


class Reference(contract.Policy):
    RAW, SCORES, FIXED = (), False, False

    def per_head(self, options):
        return False

    def select(self, r, scores):
        return keep(r.n, r.n_keep, r.pinned[0])
