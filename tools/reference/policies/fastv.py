# SPDX-License-Identifier: Apache-2.0
"""FastV (ECCV 2024), from the paper, with the set that the prompt chooses: behind layer K, counted from 1, image tokens
that its last row hardly attends to leave all later layers.

    s_j  = (1 / H) sum over heads of A[layer K, h, last row of the prompt, j]
    keep = all text, and the round((1 - R) N) of N image tokens with the largest s, in their order

Choices: a share is a decimal number and rounded exactly, half up. Ties go to the newer token. Layers up to K keep
everything; K = depth is the full cache.

What a pot adds. Pins stay beside the share. N counts the whole stream: at a later prompt a later layer keeps, of the
tokens that layer K chooses, those that it still holds. A full pot keeps the newest slots.
"""

from fractions import Fraction

import numpy as np

from .. import common, contract


def scores(attention):
    """s [n_slots] from layer K's attention [n_heads, n_rows, n_slots]."""
    return np.mean(np.asarray(attention)[:, -1, :], axis=0)


def n_kept(ratio, n_image):
    return int(((1 - Fraction(str(ratio))) * n_image + Fraction(1, 2)) // 1)


def chosen(s, image, ratio, n_image):
    """The image slots, out of `image`, that stay."""
    order = sorted(image, key=lambda slot: (s[slot], slot), reverse=True)
    return set(order[: n_kept(ratio, n_image)])


def after_prompt(views, options):
    depth, out = options["K"], []
    stays = None
    if depth < len(views):
        ranking = views[depth - 1]
        image = [slot for slot, visual in enumerate(ranking["visual"]) if visual]
        picked = chosen(ranking["scores"], image, options["R"], ranking["n_seen_visual"])
        stays = {ranking["seq"][slot] for slot in picked}
    for layer, view in enumerate(views, start=1):
        slots = range(len(view["seq"]))
        if layer <= depth or stays is None:
            out.append(list(slots))
            continue
        out.append([s for s in slots if not view["visual"][s] or view["pinned"][s] or view["seq"][s] in stays])
    return out


def keep(view, n_keep, options):
    n = len(view["seq"])
    return common.fill(n, n_keep, view["pinned"], common.newest(n, n))


class Reference(contract.ViewPolicy):
    SEED = 20240608

    def options(self, pick):
        return {"K": pick(1, 2, 3, 9), "R": pick(0.0, 0.25, 0.5, 0.75, 0.55, 1.0)}

    def keep(self, view, n_keep, options):
        return keep(view, n_keep, options)

    def after_prompt(self, views, options):
        return after_prompt(views, options)
