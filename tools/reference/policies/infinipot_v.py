# SPDX-License-Identifier: Apache-2.0
"""InfiniPot-V: temporal redundancy of keys (TaR), then value norms (VaN) (NeurIPS 2025, arXiv 2506.15745).

VaN may be pooled by layers (the published code's option): means over 7 x 7 places of a frame in the first quarter of
the layers, 5 x 5 in the second, 3 tokens in a row in the third, none in the last; what nothing holds counts as 0.

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


def pooled(norms, frames, rows, n_columns, layer, n_layers):
    """[n_slots] the value norms of one head after pooling; frames of n_columns columns."""
    norms, quarter = np.asarray(norms), 4 * layer // n_layers
    out, visual = norms.copy(), [s for s in range(len(norms)) if frames[s] >= 0]
    if quarter == 2:
        line = np.concatenate([[0], norms[visual], [0]]).astype(norms.dtype)
        out[visual] = (line[:-2] + line[1:-1] + line[2:]) / norms.dtype.type(3)
    if quarter < 2:
        half = 3 - quarter
        for frame in {frames[s] for s in visual}:
            held = [s for s in visual if frames[s] == frame]
            grid = np.zeros((max(rows[s] for s in held) // n_columns + 1 + 2 * half, n_columns + 2 * half), norms.dtype)
            for s in held:
                grid[rows[s] // n_columns + half, rows[s] % n_columns + half] = norms[s]
            for s in held:
                y, x = divmod(rows[s], n_columns)
                window = grid[y : y + 2 * half + 1, x : x + 2 * half + 1]
                out[s] = window.sum() / norms.dtype.type(window.size)
    return out


def keep(values, novel, n_keep, pinned, frames, alpha, recent, text, smooth=None):
    """values, novel: [n_groups, n_slots] value norms and novelty(); smooth: the norms pooled, or None."""
    out = []
    smooth = values if smooth is None else smooth
    for norms, means, fresh, pins, frame in zip(values, smooth, novel, common.per_group(pinned, len(values)), frames):
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
        out.append(common.fill(n, n_keep, pins, list(taken), common.ranked(means, norms)))
    return out


class Reference(contract.Policy):
    RAW, VISION, SECOND, SECOND_OF_TEXT = ("keys", "values"), "always", "novelty", False

    def options(self, draw):
        return {
            "alpha": draw.pick(0.0, 0.25, 0.5, 0.5, 1.0),
            "recent": draw.pick(0.125, 0.25, 0.25, 0.5, 1.0),
            "text": draw.pick(0.0, 0.25, 0.25, 0.5),
            "pool": draw.pick("off", "on"),
        }

    def fixed(self, options):
        return 1, 0, 0  # `recent` is a share

    def statistic(self, r, before):
        return value_norm.scores(r.raw("values"))

    def second(self, r):
        return novelty(r.raw("keys"), r.column("frame"), r.column("row"), r.options["recent"])

    def select(self, r, scores):
        novel = self.second(r) if r.has("keys") else r.rows("novelty")
        o, frames, smooth = r.options, r.column("frame"), None
        if o["pool"] == "on":  # a case shows the only layer, and frames of one column
            smooth = [pooled(*head, 1, 0, 1) for head in zip(scores, frames, r.column("row"))]
        return keep(scores, novel, r.n_keep, r.pinned, frames, o["alpha"], o["recent"], o["text"], smooth)
