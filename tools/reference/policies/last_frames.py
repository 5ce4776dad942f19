# SPDX-License-Identifier: Apache-2.0
"""The newest frames, whole, and the newest text: the baseline of streaming video (SimpleStream).

One keep-set for the whole cache. A frame that does not fit ends the tier; text and then the newest remaining slots
fill the room.
"""

from .. import common, contract


def keep(n, n_keep, pinned, frames, limit, text):
    """frames: first seq of each slot's frame, -1 for text; limit: maximum number of frames kept, 0 = as many as fit."""
    if n <= n_keep:
        return [list(range(n))]
    newest_first = list(range(n - 1, -1, -1))
    words = [slot for slot in newest_first if frames[slot] < 0]
    taken = set(common.pinned_slots(pinned))
    for slot in words[: common.round_half_up(text * n_keep)]:
        if len(taken) < n_keep:
            taken.add(slot)
    whole, n_frames = list(taken), 0
    for frame in sorted({f for f in frames if f >= 0}, reverse=True):
        members = [slot for slot in range(n) if frames[slot] == frame]
        if (limit and n_frames == limit) or len(taken | set(members)) > n_keep:
            break
        taken |= set(members)
        whole += members
        n_frames += 1
    return [common.fill(n, n_keep, pinned, whole, words, newest_first)]


class Reference(contract.Policy):
    RAW, SCORES, VISION = (), False, "always"

    def options(self, draw):
        return {"frames": draw.pick(0, 0, 1, 2, 3), "text": draw.pick(0.0, 0.25, 0.25, 0.5, 1.0)}

    def per_head(self, options):
        return False

    def select(self, r, scores):
        return keep(r.n, r.n_keep, r.pinned[0], r.column("frame")[0], r.options["frames"], r.options["text"])
