#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Repeats the selections of a real model with the reference policies.

    pip install numpy
    WEIR_MODEL=model.gguf WEIR_DUMP=dump.jsonl build/dev/tests/conformance_policy_real_test
    tools/reference/check_dump.py dump.jsonl

One line is one case in the format of tests/golden/policy (policy.py). Scores are single precision, so the
reference ranks in single precision.
"""

import argparse
import collections
import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.reference import replay


def main():
    parser = argparse.ArgumentParser(description="Replays selections of a real model with the reference policies.")
    parser.add_argument("dump", help="JSON lines that conformance_policy_real_test wrote")
    args = parser.parse_args()
    cases, differing = collections.Counter(), []
    with open(args.dump) as lines:
        for line in lines:
            case = json.loads(line)
            step = case["rounds"][0]
            ((_, keep),) = replay.replay(case, np.float32)
            cases[case["policy"]] += 1
            if keep != step["keep"]:
                n = sum(len(set(a) ^ set(b)) for a, b in zip(keep, step["keep"]))
                differing.append(f"{case['name']}: {n} slots differ")
            reference = replay.reference(case)
            if reference.LAYER_BUDGETS:
                budget = reference.layer_budget(case["options"], len(step["scores"][0]))
                if budget != step["n_keep"]:
                    differing.append(f"{case['name']}: {step['n_keep']} slots, not {budget}")
    for policy, n in sorted(cases.items()):
        print(f"{policy}: {n} cases")
    if differing:
        raise SystemExit("\n".join(differing))
    print(f"all {sum(cases.values())} keep-sets are those of the reference")


if __name__ == "__main__":
    main()
