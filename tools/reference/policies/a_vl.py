# SPDX-License-Identifier: Apache-2.0
"""A-VL (2409.14846): shares of the visual tokens are stored and read, per layer; H2O over text.

Keep-set per layer. A view is a dict of one layer:
    seq, visual, pinned, scores   [n_slots]: number in the stream, whether visual, whether pinned, the score: for
                                  visual slots the attention of the newest voting row, for text the sum over rows
    n_seen, n_seen_visual         tokens of the stream so far, and visual ones

Choices: those of src/policy/a_vl.cc, restated. Shares of visual tokens are rounded down, shares of text half
up.
"""

import math

from .. import common, contract


def parts(view):
    """(text before the first picture, other text best first, visual slots best first)."""
    n = len(view["seq"])
    prefix = []
    if view["n_seen_visual"]:
        while len(prefix) < n and not view["visual"][len(prefix)] and view["seq"][len(prefix)] == len(prefix):
            prefix.append(len(prefix))
    order = common.ranked(view["scores"])
    visual = [s for s in order if view["visual"][s]]
    return prefix, [s for s in order if not view["visual"][s] and s not in prefix], visual


def text_budget(view, prefix, options):
    n_text = view["n_seen"] - view["n_seen_visual"] - len(prefix)
    return max(common.round_half_up(options["T"] * n_text), options["text_min"])


def heavy_hitters(text, taken, budget, heavy):
    """`taken` first; then the newest, then the best of the others."""
    n_heavy = common.round_half_up(heavy * budget)
    newest = sorted(text, reverse=True)[: budget - n_heavy]
    others = [s for s in text if s not in newest and s not in taken]
    return newest + others[:n_heavy]


def share(view, of):
    return math.floor(of * view["n_seen_visual"])


def core_size(view, visual, options):
    """Of a stream that has outgrown the pot less than the stored share is held: the core is as large a part of it."""
    c, stored = min(options["C"], options["S"]), min(options["S"], options["P"])
    if len(visual) >= share(view, stored):
        return share(view, c)
    return math.floor(min(1.0, c / stored) * len(visual))


def keep(view, n_keep, options):
    """A full pot."""
    prefix, text, visual = parts(view)
    n = len(view["seq"])
    pins = common.pinned_slots(view["pinned"])
    fixed = list(dict.fromkeys(pins + prefix))
    room = max(0, n_keep - len(fixed))
    core = core_size(view, visual, options)
    budget = min(text_budget(view, prefix, options), max(room - min(core, len(visual)), room // 2))
    return common.fill(
        n,
        n_keep,
        view["pinned"],
        prefix,
        heavy_hitters(text, fixed, budget, options["heavy"]),
        visual[:core],
        visual[: share(view, options["S"])],
        text,
        visual,
        common.newest(n, n),
    )


def after_prompt(views, options):
    out = []
    for layer, view in enumerate(views):
        prefix, text, visual = parts(view)
        if options["P"] < 1 and layer > 1:
            filter_view = views[1]
            ranked = [filter_view["seq"][s] for s in parts(filter_view)[2]]
            refused = set(ranked[share(filter_view, options["P"]) :])
            visual = [s for s in visual if view["seq"][s] not in refused]
        pins = common.pinned_slots(view["pinned"])
        stays = set(pins) | set(prefix) | set(visual[: share(view, options["S"])])
        stays |= set(heavy_hitters(text, stays, text_budget(view, prefix, options), options["heavy"]))
        out.append(sorted(stays))
    return out


def read(view, options):
    """The slots that a step between two full ones reads."""
    _, _, visual = parts(view)
    core = visual[: core_size(view, visual, options)]
    pinned = common.pinned_slots(view["pinned"])
    return sorted(set(core) | set(pinned) | {s for s in range(len(view["seq"])) if not view["visual"][s]})


class Reference(contract.ViewPolicy):
    SEED, READS = 20240607, True

    def options(self, pick):
        return {
            "S": pick(0.45, 0.6, 1.0, 0.2),
            "C": pick(0.3, 0.1, 0.7),
            "P": pick(1, 0.9, 0.4),
            "T": pick(1.0, 0.5, 0.1),
            "heavy": pick(0.5, 0.0, 0.7),
            "text_min": pick(0, 4, 20),
        }

    def keep(self, view, n_keep, options):
        return keep(view, n_keep, options)

    def after_prompt(self, views, options):
        return after_prompt(views, options)

    def read(self, view, options):
        return read(view, options)
