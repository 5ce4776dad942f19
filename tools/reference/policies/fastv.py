# SPDX-License-Identifier: Apache-2.0
"""FastV (ECCV 2024), the form that keeps a cache: from layer K on, text and the visual slots that layer K - 1 attends
to most.

Views as in a_vl.py; scores are the attention of the prompt's last row. A full pot keeps the newest slots.
"""

from .. import common, contract


def keep(view, n_keep, options):
    n = len(view["seq"])
    return common.fill(n, n_keep, view["pinned"], common.newest(n, n))


def after_prompt(views, options):
    allowed = set()
    if options["K"] < len(views):
        ranking = views[options["K"] - 1]
        visual = [s for s in common.ranked(ranking["scores"]) if ranking["visual"][s]]
        n = common.round_half_up((1 - options["R"]) * ranking["n_seen_visual"])
        allowed = {ranking["seq"][s] for s in visual[:n]}
    return [
        [
            s
            for s in range(len(view["seq"]))
            if layer < options["K"] or not view["visual"][s] or view["pinned"][s] or view["seq"][s] in allowed
        ]
        for layer, view in enumerate(views)
    ]


class Reference(contract.ViewPolicy):
    SEED = 20240608

    def options(self, pick):
        return {"K": pick(1, 2, 3, 9), "R": pick(0.0, 0.25, 0.5, 0.75, 1.0)}

    def keep(self, view, n_keep, options):
        return keep(view, n_keep, options)

    def after_prompt(self, views, options):
        return after_prompt(views, options)
