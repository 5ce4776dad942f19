# SPDX-License-Identifier: Apache-2.0
"""StreamingVLM: attention sinks, the newest text, the visual tokens of the last seconds (arXiv 2510.09608).

One keep-set for the whole cache. The text window takes at most half of the room after the sinks; remaining room goes
to the newest of the other slots.
"""

from .. import common, contract


def keep(n, n_keep, pinned, frames, times, sinks, text, seconds):
    """frames: first seq of each slot's frame, -1 for text; times: ms."""
    newest_first = list(range(n - 1, -1, -1))
    words = [slot for slot in newest_first if frames[slot] < 0][: min(text, max(0, n_keep - sinks) // 2)]
    vision = [slot for slot in newest_first if frames[slot] >= 0 and times[slot] >= times[n - 1] - int(seconds * 1000)]
    return [common.fill(n, n_keep, pinned, [n - 1], common.oldest(n, sinks), words, vision, newest_first)]


class Reference(contract.Policy):
    RAW, SCORES, VISION = (), False, "always"

    def options(self, draw):
        return {
            "sinks": draw.pick(0, 1, 4),
            "text": draw.pick(0, 2, 8, 512),
            "seconds": draw.pick(0, 1, 2, 4, 16),
        }

    def per_head(self, options):
        return False

    def select(self, r, scores):
        o, frames, times = r.options, r.column("frame")[0], r.column("t")[0]
        return keep(r.n, r.n_keep, r.pinned[0], frames, times, o["sinks"], o["text"], o["seconds"])
