#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the goldens of policies that treat pictures separately: tests/golden/policy/<policy>.jsonl and
tests/golden/prompt_end/<policy>.jsonl, by the reference in tools/reference.

    tools/golden/vl_policy.py [--check]

The first are the keep-sets of a full pot, in the format of policy.py; a round also has n_seen, n_seen_visual, and in
`slots` visual: the slots of pictures. The second are ends of prompts, one per line:

    policy, options
    n_seen, n_seen_visual
    layers          [{seq, pinned, visual, scores}]; pinned and visual are lists of slots
    after_prompt    [n_layers][...] the slots that are kept
    read            if the policy has it: [n_layers][...] of those, renumbered, the slots that a step between two full
                    ones reads

Scores are multiples of 2^-12, many of them equal. Needs numpy.
"""

import argparse
import json
import pathlib
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.reference import policies
from tools.reference.contract import UNIT, ViewPolicy

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"


def view_of(rng, layout, n_gone, ties):
    """One layer after reading `layout`, [(n, visual)] runs; n_gone tokens after the first text were evicted."""
    visual = np.concatenate([np.full(n, v) for n, v in layout])
    seq = np.arange(len(visual))
    first = layout[0][0] if len(layout) > 1 else 0
    gone = rng.choice(np.arange(first, len(seq) - 1), n_gone, replace=False) if n_gone else []
    stays = np.setdiff1d(seq, gone)
    n = len(stays)
    scores = rng.integers(0, 6 if ties else 4000, n) * UNIT
    pinned = np.zeros(n, bool)
    pinned[rng.choice(n, rng.integers(0, 3), replace=False)] = True
    return dict(
        seq=stays.tolist(),
        visual=visual[stays].tolist(),
        pinned=pinned.tolist(),
        scores=scores.tolist(),
        n_seen=len(visual),
        n_seen_visual=int(visual.sum()),
    )


def stored(view, with_scores=True):
    out = dict(
        seq=view["seq"], pinned=np.flatnonzero(view["pinned"]).tolist(), visual=np.flatnonzero(view["visual"]).tolist()
    )
    return dict(out, scores=view["scores"]) if with_scores else out


LAYOUTS = [
    ((5, False), (40, True), (12, False)),
    ((0, False), (30, True), (9, False)),
    ((50, False),),
    ((3, False), (17, True), (4, False), (23, True), (30, False)),
    ((8, False), (60, True), (2, False)),
    ((4, False), (100, True), (10, False)),
]


def cases(policy, reference):
    rng = np.random.default_rng(reference.SEED)

    def pick(*values):
        return values[rng.integers(len(values))]

    full, ends = [], []
    for i in range(48):
        layout, options = LAYOUTS[i % len(LAYOUTS)], reference.options(pick)
        view = view_of(rng, layout, int(rng.integers(0, 12)), i % 2)
        n_keep = int(rng.integers(4, len(view["seq"]) + 3))
        full.append(
            dict(
                policy=policy,
                name=f"full_{i}",
                tags=[],
                options=options,
                n_kv_heads=1,
                rounds=[
                    dict(
                        n_keep=n_keep,
                        n_seen=view["n_seen"],
                        n_seen_visual=view["n_seen_visual"],
                        slots=[stored(view, False)],
                        scores=[view["scores"]],
                        keep=[reference.keep(view, n_keep, options)],
                    )
                ],
            )
        )
        views = [view_of(rng, layout, n_gone, i % 2) for n_gone in (0, 0, 0, int(rng.integers(0, 9)))]
        for other in views[1:]:  # pins belong to the stream: the same in every layer
            other["pinned"] = [bool(views[0]["pinned"][s]) for s in other["seq"]]
        keeps = reference.after_prompt(views, options)
        line = dict(
            policy=policy,
            options=options,
            n_seen=view["n_seen"],
            n_seen_visual=view["n_seen_visual"],
            layers=[stored(v) for v in views],
            after_prompt=keeps,
        )
        if reference.READS:
            left = [
                dict(v, **{key: [v[key][s] for s in keep] for key in ("seq", "visual", "pinned", "scores")})
                for v, keep in zip(views, keeps)
            ]
            line["read"] = [reference.read(v, options) for v in left]
        if i < 25:
            ends.append(line)
    return full, ends


def main():
    parser = argparse.ArgumentParser(description="Writes the goldens of policies that treat pictures apart.")
    parser.add_argument("--check", action="store_true", help="compare what is there with what would be written")
    args = parser.parse_args()
    differs = False
    for policy, reference in policies.all_of(ViewPolicy).items():
        for folder, lines in zip(("policy", "prompt_end"), cases(policy, reference)):
            path = TESTS / folder / f"{policy}.jsonl"
            text = "".join(json.dumps(line) + "\n" for line in lines)
            if args.check:
                differs |= not path.is_file() or path.read_text() != text
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"{path}: {len(lines)} cases, {len(text)} bytes")
    return differs


if __name__ == "__main__":
    sys.exit(main())
