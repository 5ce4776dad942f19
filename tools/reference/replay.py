# SPDX-License-Identifier: Apache-2.0
"""Runs the reference on a golden case as stored on disk (format: tools/golden/policy.py)."""

import numpy as np

from . import policies
from .contract import Policy, Round

POLICIES = policies.all_of(Policy)


def reference(case):
    return POLICIES[case["policy"]]


def round_of(case, step, dtype=np.float64):
    return Round(case, step, reference(case).n_groups(case), dtype)


def statistic(case, step, before, dtype):
    """The ranked statistic, from the raw inputs of a step, or None if the step has none.

    `before`: (step, scores, keep) of the round before, or None.
    """
    policy = reference(case)
    if not all(name in step for name in policy.RAW):
        return None
    return policy.statistic(round_of(case, step, dtype), None if before is None else before[1:])


def select(case, step, scores, dtype):
    """The keep-sets of one step, from the reduced statistic."""
    return reference(case).select(round_of(case, step, dtype), scores)


def replay(case, dtype=np.float64):
    """[(scores or None, keep)] of every round, with state carried from round to round where the inputs are raw."""
    out, before = [], None
    for step in case["rounds"]:
        r = round_of(case, step, dtype)
        if before is not None:
            for old, keep, new in zip(round_of(case, before[0]).slots, before[2], r.slots):
                survivors = [old["seq"][slot] for slot in keep]
                if new["seq"][: len(survivors)] != survivors:
                    raise ValueError(f"case {case['name']}: a round does not start with the survivors of the last one")
        scores = statistic(case, step, before, dtype)
        if scores is None and "scores" in step:
            scores = r.rows("scores")
        keep = select(case, step, scores, dtype)
        before = (step, scores, keep)
        out.append((scores, keep))
    return out
