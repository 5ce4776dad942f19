# SPDX-License-Identifier: Apache-2.0
"""The interface of a file of policies/ to the golden generators and replay.py, which name no policy.

A policy module states the rule as plain functions, and its conventions in a class `Reference` of one of two kinds:

    Policy       keep-sets of a full pot, from statistics of every slot: tools/golden/policy.py, tests/golden/policy
    ViewPolicy   policies that treat pictures separately, layer by layer:    tools/golden/vl_policy.py

The folder is the list: `policies.all_of(Policy)` finds them.
"""

import numpy as np

UNIT = 2.0**-12  # golden statistics are multiples of it, so that every sum is exact in binary32 in any order


def array(row, dtype):
    """A stored row of numbers; null means infinity."""
    return np.array([np.inf if x is None else x for x in row], dtype=dtype)


class Round:
    """One selection of a golden case as a policy reads it (format: tools/golden/policy.py). Numbers come in `dtype`."""

    def __init__(self, case, step, n_groups, dtype):
        self.options, self.n_kv_heads, self.dtype = case["options"], case["n_kv_heads"], dtype
        self.step, self.n_keep = step, step["n_keep"]
        self.slots = step["slots"] if len(step["slots"]) > 1 else step["slots"] * n_groups
        self.n = len(self.slots[0]["seq"])
        self.pinned = [self._flags(group) for group in self.slots]

    @staticmethod
    def _flags(group):
        flags = np.zeros(len(group["seq"]), bool)
        flags[group["pinned"]] = True
        return flags

    def column(self, name):
        """[n_groups][n_slots] of a per-slot field: seq, frame, row, t, queries."""
        return [group[name] for group in self.slots]

    def nll(self):
        return [array(group["nll"], self.dtype) for group in self.slots]

    def has(self, name):
        return name in self.step

    def raw(self, name):
        """attention, keys or values."""
        return np.array(self.step[name], self.dtype)

    def rows(self, name):
        """[n_groups] rows of a stored statistic."""
        return [array(row, self.dtype) for row in self.step[name]]


class Draw:
    """Chooses the options of a golden case. Its draws depend only on the case's seed."""

    def __init__(self, rng, case):
        self.rng, self.case = rng, case
        # Drawn for every policy, so that later draws do not change when a policy starts to use them.
        self.pooled = {
            "window": self.pick(1, 2, 4, 8),
            "kernel": self.pick(1, 3, 5, 7),
            "pooling": ("max", "avg")[case % 2],
            "reduce": self.pick("mean", "mean", "max", "sum"),
        }

    def pick(self, *choices):
        return choices[self.rng.randint(len(choices))]


class Policy:
    """The defaults describe a policy that ranks the slots of every KV head by the attention they receive."""

    RAW = ("attention",)  # inputs of the statistic: attention, keys, values; () if it uses none of them
    SCORES = True  # false: the policy ranks nothing
    NLL = False  # also ranks by -log P
    PROBE = False  # attention comes from a probe whose tokens are not in the pot
    VISION = "never"  # streams of golden cases hold pictures: "never", "always", or "too": some cases besides
    SECOND = None  # name of a second statistic, of slots in streams with pictures
    SECOND_OF_TEXT = True  # false: it is 0 for text
    SCENES = False  # also ranks by scenes, in streams with pictures
    NEGATIVE = False  # scores are never above 0
    ROUNDED = False  # scores are not multiples of UNIT; they are stored as binary32 values
    SPANS = False  # the rule uses spans of surprising tokens
    FIXED = True  # some slots are kept regardless of their scores
    MOST_COMING = 0  # above 0: makes room for tokens about to be read, fewer than this
    LAYER_BUDGETS = False  # layer_budget() gives each layer its own
    SHARES_HEADS = False  # the KV heads of a layer share one budget
    LONG = 0  # additional golden cases with this many rounds, for accumulating statistics

    def options(self, draw):
        """The method's parameters for a golden case, small enough for pots of a few dozen slots."""
        return {}

    def raw_options(self, options):
        """The same for a case with raw inputs."""
        return options

    def fixed(self, options):
        """(smallest valid budget, sinks, recent slots that are kept)"""
        sinks = options.get("sinks", 0)
        return max(1, sinks + 1), sinks, options.get("recent", 0)

    def per_head(self, options):
        """Whether every KV head has its own keep-set; otherwise the layer or the whole cache has one."""
        return True

    def counts_queries(self, options):
        """Whether slots count the queries that could see them."""
        return False

    def n_rows(self, options, n_new):
        """Number of attention rows in a case with raw inputs, for n_new tokens read."""
        return n_new

    def layer_budget(self, options, n_slots):
        """LAYER_BUDGETS: slots of this case's layer."""
        raise NotImplementedError

    def statistic(self, r, before):
        """[n_groups, n_slots] the ranked statistic, from the raw inputs of Round `r`; None if nothing is ranked.

        `before`: (scores, keep) of the round before, or None.
        """
        return None

    def second(self, r):
        """SECOND from raw inputs, or None if it does not depend on them."""
        return None

    def select(self, r, scores):
        """The keep-sets of Round `r`, one per group."""
        raise NotImplementedError

    def stable(self, r, scores, keep, select):
        """False if the keep-set depends on rounding. select(scores, dtype, **options): selects with other numbers."""
        return True

    def n_groups(self, case):
        return case["n_kv_heads"] if self.per_head(case["options"]) else 1


class ViewPolicy:
    """A policy that reads views of all layers: dicts with seq, visual, pinned, scores, n_seen, n_seen_visual."""

    SEED = 0  # of its golden cases
    READS = False  # read(view, options): the slots that a step between two full ones reads

    def options(self, pick):
        raise NotImplementedError

    def keep(self, view, n_keep, options):
        """The slots of a layer that are kept when the pot is full."""
        raise NotImplementedError

    def after_prompt(self, views, options):
        """The slots of every layer that are kept at the end of a prompt."""
        raise NotImplementedError
