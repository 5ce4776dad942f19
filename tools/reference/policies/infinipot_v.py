# SPDX-License-Identifier: Apache-2.0
"""InfiniPot-V: temporal redundancy of keys (TaR), then value norms (VaN) (NeurIPS 2025, arXiv 2506.15745).

Keep-set per layer and KV head. Extension for streams with questions: the newest text takes up to `text` of the budget.
"""

import numpy as np

from .. import common, contract
from . import value_norm


def recent_frames(frames, share):
    """First seqs of the recent frames, ascending."""
    present = sorted({f for f in frames if f >= 0})
    count = min(len(present), max(1, int(np.floor(share * len(present)))))
    return present[len(present) - count :] if present else []


def novelty(keys, frames, rows, share):
    """[n_kv_heads, n_slots, head_dim] -> [n_kv_heads, n_slots]: TaR's score of older visual tokens, 0 for others.

    frames, rows: [n_kv_heads][n_slots]; rows: a visual token's place in its frame.
    """
    keys = np.asarray(keys)
    norms = np.sqrt((keys * keys).sum(axis=2, keepdims=True))
    unit = keys / np.where(norms == 0, 1, norms)
    out = np.zeros(keys.shape[:2], keys.dtype)
    for head in range(len(keys)):
        recent = recent_frames(frames[head], share)
        for slot, (frame, row) in enumerate(zip(frames[head], rows[head])):
            if frame < 0 or frame in recent:
                continue
            same = [s for s in range(len(rows[head])) if frames[head][s] in recent and rows[head][s] == row]
            out[head, slot] = -np.mean([unit[head, slot] @ unit[head, s] for s in same]) if same else 1
    return out


def keep(values, novel, n_keep, pinned, frames, alpha, recent, text):
    """values, novel: [n_groups, n_slots] value norms and novelty()."""
    out = []
    for norms, fresh, pins, frame in zip(values, novel, common.per_group(pinned, len(values)), frames):
        n = len(norms)
        if n <= n_keep:
            out.append(list(range(n)))
            continue
        taken = dict.fromkeys(common.pinned_slots(pins))
        newest_first = list(range(n - 1, -1, -1))
        for slot in [s for s in newest_first if frame[s] < 0][: common.round_half_up(text * n_keep)]:
            if len(taken) < n_keep:
                taken[slot] = None
        if alpha > 0:
            last = recent_frames(frame, recent)
            budget = common.round_half_up(alpha * (n_keep - len(taken)))
            tar = [s for s in newest_first if frame[s] in last]
            tar += [s for s in common.ranked(np.asarray(fresh)) if frame[s] >= 0 and frame[s] not in last]
            for slot in [s for s in tar if s not in taken][:budget]:
                taken[slot] = None
        out.append(common.fill(n, n_keep, pins, list(taken), common.ranked(np.asarray(norms))))
    return out


class Reference(contract.Policy):
    RAW, VISION, SECOND, SECOND_OF_TEXT = ("keys", "values"), "always", "novelty", False

    def options(self, draw):
        return {
            "alpha": draw.pick(0.0, 0.25, 0.5, 0.5, 1.0),
            "recent": draw.pick(0.125, 0.25, 0.25, 0.5, 1.0),
            "text": draw.pick(0.0, 0.25, 0.25, 0.5),
        }

    def fixed(self, options):
        return 1, 0, 0  # `recent` is a share

    def statistic(self, r, before):
        return value_norm.scores(r.raw("values"))

    def second(self, r):
        return novelty(r.raw("keys"), r.column("frame"), r.column("row"), r.options["recent"])

    def select(self, r, scores):
        novel = self.second(r) if r.has("keys") else r.rows("novelty")
        o = r.options
        return keep(scores, novel, r.n_keep, r.pinned, r.column("frame"), o["alpha"], o["recent"], o["text"])
