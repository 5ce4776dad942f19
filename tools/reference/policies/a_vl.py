# SPDX-License-Identifier: Apache-2.0
"""A-VL (AAAI 2025, arXiv 2409.14846), from the paper: definitions on rows of attention, then their use in a pot.

One layer at a time. `s` is what the newest token pays to every earlier one, as the mean of all query heads; N counts
the image tokens of the prompt, also those that are gone. Image tokens, best first by s, are

    core        the first floor(C N)         read in every step
    secondary   up to the first floor(S N)   stored, read when the core is chosen again: every K steps
    minor       the others                   evicted at the prompt's end

P: behind the second layer only the first floor(P N) by that layer's s are left, in all later layers. T: of the text
behind the image H2O leaves max(T L, text_min), L tokens of it seen so far; text before the image stays.

Shares are decimal numbers and rounded exactly: 0.29 of 100 is 29, which a product of two binary floats misses. The text
budget and its heavy part are rounded half up, as all budgets of text here. Ties go to the newer token.
"""

from fractions import Fraction

import numpy as np

from .. import common, contract

FILTER_LAYER = 2  # counted from 1: the paper's shallow layer


def image_scores(attention):
    """s [n_slots] from attention [n_heads, n_rows, n_slots]: s_t = sum over h of A_t^h / H, of the last row."""
    return np.mean(np.asarray(attention)[:, -1, :], axis=0)


def text_scores(attention):
    """H2O's sums [n_slots] over all rows. H2O sums per head; a keep-set per layer ranks by the heads' mean."""
    return np.mean(np.sum(attention, axis=1), axis=0)


def share(part, whole):
    """floor(part * whole), part read as the decimal number it was written as."""
    return int(Fraction(str(part)) * whole // 1)


def share_of_text(part, whole):
    return int((Fraction(str(part)) * whole + Fraction(1, 2)) // 1)


def top(scores, members, count):
    """The `count` of `members` with the largest scores."""
    return set(sorted(members, key=lambda slot: (-scores[slot], -slot))[: max(count, 0)])


def heavy_hitters(scores, text, budget, heavy, pins=frozenset()):
    """H2O over the slots `text`: the newest ones first; then, for the share `heavy` of the budget, the largest sums
    among the others. Best first. Pins stay beside the budget and take no heavy hitter's place."""
    n_heavy = share_of_text(heavy, budget)
    newest = sorted(text, reverse=True)[: budget - n_heavy]
    others = set(text) - set(newest) - set(pins)
    return newest + sorted(top(scores, others, n_heavy), key=lambda slot: (-scores[slot], -slot))


def reads_all(step, interval):
    """Whether generated token `step` (the prompt's end is 0) attends to all that is stored; interval 0: always."""
    return interval == 0 or step % interval == 0


# What a pot adds. The paper has one prompt and caches that grow; a pot has a stream of prompts, pins and an end.
# - Pins stay beside the shares; a pinned image token that is among the best takes its own place there.
# - At a later prompt N and L count the whole stream. A token that the second layer no longer holds was judged at an
#   earlier prompt: P does not judge it again.
# - A stream that has outgrown the pot holds fewer than floor(S N), floor(P N) if P < S: its core is C / S (C / P) of
#   what it holds.
# - A full pot evicts image tokens beyond S, then text beyond T, then image tokens beyond C, then the worst. Text gets
#   the room that the core leaves, but not less than half.


class Layer:
    """What one layer holds, as a view of contract.ViewPolicy shows it."""

    def __init__(self, view, options):
        self.scores, self.seq, self.n = view["scores"], view["seq"], len(view["seq"])
        self.options, self.n_image = options, view["n_seen_visual"]
        self.pins = {slot for slot in range(self.n) if view["pinned"][slot]}
        self.image = {slot for slot in range(self.n) if view["visual"][slot]}
        # Text before the first image: nothing of it ever leaves, so its numbers in the stream have no gap. A stream
        # without images is text that H2O may trim.
        self.prefix = set()
        if self.n_image:
            while (slot := len(self.prefix)) < self.n and slot not in self.image and self.seq[slot] == slot:
                self.prefix.add(slot)
        self.text = set(range(self.n)) - self.image - self.prefix
        n_text = view["n_seen"] - self.n_image - len(self.prefix)
        self.text_budget = max(share_of_text(options["T"], n_text), options["text_min"])

    def best_images(self, part):
        return top(self.scores, self.image, share(part, self.n_image))

    def core(self):
        core, held = min(self.options["C"], self.options["S"]), len(self.image)
        stored = min(self.options["S"], self.options["P"])
        if held >= share(stored, self.n_image):
            return self.best_images(core)
        count = min(held, int(Fraction(str(core)) / Fraction(str(stored)) * held // 1))
        return top(self.scores, self.image, count)

    def ranked(self, slots):
        return sorted(slots, key=lambda slot: (-self.scores[slot], -slot))


def after_prompt(views, options):
    """The slots of every layer at the prompt's end: P before S."""
    layers = [Layer(view, options) for view in views]
    shallow = layers[FILTER_LAYER - 1] if len(layers) > FILTER_LAYER else None
    if options["P"] < 1 and shallow:
        refused = {shallow.seq[slot] for slot in shallow.image - shallow.best_images(options["P"])}
        for layer in layers[FILTER_LAYER:]:
            layer.image = {slot for slot in layer.image if layer.seq[slot] not in refused}
    out = []
    for layer in layers:
        text = heavy_hitters(layer.scores, layer.text, layer.text_budget, options["heavy"], layer.pins)
        out.append(sorted(layer.prefix | layer.pins | layer.best_images(options["S"]) | set(text)))
    return out


def read(view, options):
    """The slots that a step between two full ones reads: text and the core."""
    layer = Layer(view, options)
    return sorted(layer.prefix | layer.text | layer.pins | layer.core())


def keep(view, n_keep, options):
    """The slots of one layer of a full pot."""
    layer = Layer(view, options)
    room = max(0, n_keep - len(layer.pins | layer.prefix))
    core = layer.core()
    budget = min(layer.text_budget, max(room - len(core), room // 2))
    return common.fill(
        layer.n,
        n_keep,
        view["pinned"],
        sorted(layer.prefix),
        heavy_hitters(layer.scores, layer.text, budget, options["heavy"], layer.pins),
        layer.ranked(core),
        layer.ranked(layer.best_images(options["S"])),
        layer.ranked(layer.text),
        layer.ranked(layer.image),
    )


class Reference(contract.ViewPolicy):
    SEED, READS = 20240607, True

    def options(self, pick):
        return {
            "S": pick(0.45, 0.57, 1.0, 0.2, 0.58),
            "C": pick(0.3, 0.1, 0.7, 0.29),
            "P": pick(1, 0.9, 0.4),
            "T": pick(1.0, 0.5, 0.1, 0.29),
            "heavy": pick(0.5, 0.0, 0.7),
            "text_min": pick(0, 4, 20),
        }

    def keep(self, view, n_keep, options):
        return keep(view, n_keep, options)

    def after_prompt(self, views, options):
        return after_prompt(views, options)

    def read(self, view, options):
        return read(view, options)
