#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/policy/<policy>.jsonl: what each eviction policy must keep, by the reference in tools/reference.

    pip install numpy
    tools/golden/policy.py               write the files (the same bytes every time)
    tools/golden/policy.py --check       compare the files with what would be written

One line is one case:

    policy       file name and registry name
    name         unique in the file
    tags         special properties: ties equal plateau close zeros pins pins_crowd edge tiny gaps raw rounds
                 inf_nll; pins_crowd: pinned slots leave less room than the policy's own window or sinks ask for
    options      every parameter of the method, spelled out
    n_kv_heads   KV heads of the one layer that the case shows
    n_heads      query heads; only where a round has "attention"
    rounds       list of selections on one session, in order; a round's slots begin with the survivors of the one before

A round:

    n_keep       the budget: exactly min(n_keep, n) slots stay (where heads share a budget: on average over the heads,
                 so n_kv_heads * n_keep in all)
    num_coming   if the policy makes room in advance: tokens about to be read; n_keep is the capacity less these
    slots        [{seq, pinned, nll, queries, frame, row, t}], one entry per group, or a single entry that holds for all
                 groups. seq: number of each slot's token in its stream, ascending; pinned: the slots that are pinned.
                 Where the policy ranks by it, nll: -log P when the token was read, null = none (first of the stream),
                 to be taken as +infinity; queries: queries that could see the slot so far. In streams with pictures,
                 frame: first seq of the slot's picture or frame, -1 for text; row: its place there; t: ms of source
                 time
    scores       [n_groups][n_slots] the statistic that the policy ranks, reduced over rows and heads, before pooling,
    age penalty and
                 normalisation by `queries`; for accumulated or decaying statistics, after this round
    attention    [n_heads][n_rows][n_slots], raw level only: softmax rows of the newest n_rows slots, or of probe tokens
                 that are not in the pot
    keys, values [n_kv_heads][n_slots][head_dim], raw level only. There, `scores` are rounded to 2^-12, and the keep-set
                 is the same from the rounded ones.
    novelty,     [n_groups][n_slots] the second statistic that the policy ranks in a stream with pictures (`SECOND` in
    visual       tools/reference/contract.py)
    scenes       [n_groups][n_slots] if the policy ranks by scenes (`SCENES`), in streams with pictures: 0 for text,
                 else the number of the scene, negative for what its first frame showed as well
    keep         [n_groups][...] the slots that must stay, ascending

A group is the whole cache, a layer or a KV head. What a policy's options mean, what its groups and inputs are, and
every choice made where a paper is silent, is in tools/reference/policies/<policy>.py; ties, pins and budgets in
tools/reference/common.py.

Scores, NLLs and attention are multiples of 2^-12 (their means multiples of a smaller power of two), so every sum is
exact in binary32 in any order. A case whose keep-set depends on the precision or order of inexact operations (decay,
age penalty, division by counts, norms, cosines) is not written.
"""

import argparse
import json
import math
import sys
import zlib
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.reference import common, replay
from tools.reference.contract import UNIT, Draw

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "policy"


class Pot:
    """The stored tokens of every group while a case is being made."""

    def __init__(self, rng, n_groups, kind, gaps=False, spans=False, vision=False):
        self.rng, self.groups = rng, [[] for _ in range(n_groups)]
        self.pinned, self.nll, self.read_at = set(), {}, {}
        self.next_seq, self.n_queries = 0, 0
        self.gaps, self.nll_range = gaps, {"ties": 4, "equal": 1}.get(kind)
        self.spans, self.left = spans, 0  # surprising spans, tokens left of the present one
        # seq -> (first seq of its frame or -1, place there, ms); rows left of the present frame, or text of a run
        self.vision, self.what, self.t_ms, self.rows_left = {} if vision else None, None, 0, 0
        self.text_left, self.n_rows = (int(rng.randint(0, 4)), int(rng.randint(2, 6))) if vision else (0, 0)

    def read(self, n_tokens):
        for _ in range(n_tokens):
            if self.gaps and self.next_seq:
                self.next_seq += int(self.rng.randint(0, 4))
            seq = self.next_seq
            for group in self.groups:
                group.append(seq)
            # Near zero for a third of the tokens, as in chat templates.
            high = self.nll_range or (16 if self.rng.randint(3) == 0 else 40000)
            low = 0
            if self.spans:
                self.left = max(self.left - 1, 0) if self.rng.randint(12) else int(self.rng.randint(1, 5))
                low = 3 * high if self.left else 0
            self.nll[seq] = math.inf if seq == 0 else (low + int(self.rng.randint(0, high))) * UNIT
            self.read_at[seq] = self.n_queries
            self.next_seq, self.n_queries = seq + 1, self.n_queries + 1
            if self.vision is not None:
                self.vision[seq] = self.next_visual(seq)
                if seq and self.vision[seq][0] >= 0:
                    self.nll[seq] = 0  # nothing predicts it

    def next_visual(self, seq):
        if self.rows_left == 0 and self.text_left == 0:
            if self.rng.randint(4):
                self.rows_left, self.what = self.n_rows, seq
                self.t_ms += 1000
            else:
                self.text_left = int(self.rng.randint(1, 6))
        if self.rows_left > 0:
            self.rows_left -= 1
            return self.what, seq - self.what, self.t_ms
        self.text_left -= 1
        return -1, 0, self.t_ms

    def n(self):
        return len(self.groups[0])

    def apply(self, keep):
        self.groups = [[group[slot] for slot in slots] for group, slots in zip(self.groups, keep)]

    def slots(self, with_nll, with_queries):
        out = []
        for group in self.groups:
            entry = {"seq": list(group), "pinned": [slot for slot, seq in enumerate(group) if seq in self.pinned]}
            if with_nll:
                entry["nll"] = [self.nll[seq] for seq in group]
            if self.vision is not None:
                for i, key in enumerate(("frame", "row", "t")):
                    entry[key] = [self.vision[seq][i] for seq in group]
            if with_queries:
                entry["queries"] = [self.n_queries - self.read_at[seq] for seq in group]
            out.append(entry)
        return out[:1] if all(entry == out[0] for entry in out) else out


def scores_of(rng, kind, n):
    """A row of n scores, multiples of UNIT."""
    if kind == "ties":
        k = rng.randint(0, 4, n) * 16
    elif kind == "equal":
        k = np.full(n, 77)
    elif kind == "zeros":
        k = np.zeros(n, int)
        k[rng.randint(n)] = 5
    elif kind == "plateau":
        k = np.repeat(rng.randint(0, 3, n) * 64, rng.randint(1, 7, n))[:n]
        k[rng.randint(n)] = 900
    elif kind == "close":
        k = 2047 * 4096 + rng.randint(0, 8, n)  # neighbours that binary16 cannot tell apart
    elif kind == "falling":
        k = np.arange(n, 0, -1) * 3
    elif kind == "rising":
        k = np.arange(n) * 3
    else:
        k = (rng.exponential(60, n)).astype(int)
        k[rng.randint(0, n, max(1, n // 12))] += rng.randint(500, 4000)
    return (k * UNIT).tolist()


def attention_row(rng, n_slots, n_visible, kind):
    """A row of UNIT multiples that sums to one over the visible slots, zeros after them."""
    row = np.zeros(n_slots, int)
    weights = np.ones(n_visible) if kind == "equal" else rng.exponential(1, n_visible) ** 2 + 1e-3
    row[:n_visible] = np.floor(weights / weights.sum() * 4096).astype(int)
    row[rng.randint(n_visible) if kind != "equal" else 0] += 4096 - row.sum()
    return (row * UNIT).tolist()


def attention_of(rng, n_heads, n_rows, n_slots, kind, causal=True):
    return [
        [attention_row(rng, n_slots, n_slots - n_rows + row + 1 if causal else n_slots, kind) for row in range(n_rows)]
        for _ in range(n_heads)
    ]


def stable(case, scores, keep, step):
    """False if the keep-set depends on rounding."""

    def select(rows, dtype, **options):
        other = {**case, "options": {**case["options"], **options}}
        return replay.select(other, step, rows, dtype)

    if select([np.asarray(row, np.float32) for row in scores], np.float32) != keep:
        return False
    return replay.reference(case).stable(replay.round_of(case, step), scores, keep, select)


def pin(pot, mode, n_keep, sinks, recent, rng):
    """Pins tokens of every group; returns the tags that follow. REQUIRES: all groups hold the same tokens."""
    seqs, n = pot.groups[0], pot.n()
    if mode == "some":
        chosen = rng.choice(n, min(n_keep, max(1, n // 8)), replace=False)
    elif mode == "old":
        chosen = np.arange(min(n_keep, n, 3))
    elif mode == "recent":
        chosen = np.arange(max(0, n - min(n_keep, 3)), n)
    elif mode == "all":
        chosen = rng.choice(n, min(n_keep, n), replace=False)
    else:
        chosen = rng.choice(n, min(n, max(1, n_keep - max(1, (sinks + recent) // 2))), replace=False)
    pot.pinned = {seqs[slot] for slot in chosen}
    wanted = {*chosen.tolist(), *common.oldest(n, sinks), *common.newest(n, recent)}
    return ["pins"] + (["pins_crowd"] if n > n_keep and n_keep < len(wanted) > len(chosen) else [])


def raw_inputs(policy, case, step, pot, kind, n_new, rng):
    """Adds the raw inputs of a policy's statistic."""
    if "attention" in policy.RAW:
        n_rows = policy.n_rows(case["options"], n_new)
        step["attention"] = attention_of(rng, case["n_heads"], n_rows, pot.n(), kind, causal=not policy.PROBE)
    for name in policy.RAW:
        if name != "attention":
            step[name] = (rng.randint(-128, 129, (len(pot.groups), pot.n(), 8)) / 64.0).tolist()
    second = policy.second(replay.round_of(case, step))
    if second is not None:
        step[policy.SECOND] = second


def not_above_zero(row):
    return [-(k // 1 % 4096) * UNIT for k in np.array(row) / UNIT]


def second_scores(policy, slots, kind, rng):
    """A second statistic that follows from no raw inputs."""
    rows = [not_above_zero(scores_of(rng, kind, len(group["seq"]))) for group in slots]
    if policy.SECOND_OF_TEXT:
        return rows
    return [[x if frame >= 0 else 0 for x, frame in zip(row, group["frame"])] for row, group in zip(rows, slots)]


def scenes_of(slots, rng):
    """Frames that begin a scene, or repeat much of the one that did."""
    out = []
    for group in slots:
        scene, last, row = 0, -1, []
        for frame in group["frame"]:
            if frame >= 0 and frame != last:
                begins = scene == 0 or rng.rand() < 0.5
                scene += begins
                last = frame
            repeats = frame >= 0 and not begins and rng.rand() < 0.6
            row.append(0 if frame < 0 else -scene if repeats else scene)
        out.append(row)
    return out


def written_scores(case, step, scores, keep):
    """Scores as stored, or None if they do not choose the same slots. Rounds the second statistic, too."""
    policy = replay.reference(case)
    if not any(name in step for name in ("keys", "values")):
        return [np.asarray(row) for row in scores]
    written = [np.round(row / UNIT) * UNIT for row in scores]
    if replay.select(case, step, written, np.float64) != keep:
        return None
    if policy.SECOND in step:
        second = [np.round(row / UNIT) * UNIT for row in step[policy.SECOND]]
        rounded = {key: value for key, value in step.items() if key not in policy.RAW}
        if replay.select(case, {**rounded, policy.SECOND: second}, written, np.float64) != keep:
            return None
        step[policy.SECOND] = [row.tolist() for row in second]
    return written


def make_round(case, pot, n_keep, kind, level, n_new, before, rng):
    """Adds one round to the case and evicts from the pot: (round, scores, keep), or None if it is not stable."""
    policy, o = replay.reference(case), case["options"]
    step = {"n_keep": n_keep}
    if policy.MOST_COMING:
        step["num_coming"] = o["capacity"] - n_keep
    step["slots"] = pot.slots(policy.NLL, policy.counts_queries(o))
    if level == "raw":
        raw_inputs(policy, case, step, pot, kind, n_new, rng)
    scores = replay.statistic(case, step, before, np.float64)
    slots = replay.round_of(case, step).slots
    if policy.SECOND and pot.vision is not None and policy.SECOND not in step:
        step[policy.SECOND] = second_scores(policy, slots, kind, rng)
    if policy.SCENES and pot.vision is not None:
        step["scenes"] = scenes_of(slots, rng)
    if scores is None and policy.SCORES:
        scores = [np.array(scores_of(rng, kind, len(group["seq"]))) for group in slots]
        if policy.NEGATIVE:
            scores = [np.array(not_above_zero(row)) for row in scores]
    keep = replay.select(case, step, scores, np.float64)
    if not stable(case, [] if scores is None else scores, keep, step):
        return None
    if scores is not None:
        written = written_scores(case, step, scores, keep)
        if written is None:
            return None
        step["scores"] = [np.asarray(row, np.float32).astype(float).tolist() for row in written]
        if not policy.ROUNDED and step["scores"] != [row.tolist() for row in written]:
            return None  # a score that binary32 cannot hold
    step["keep"] = keep
    case["rounds"].append(step)
    pot.apply(keep)
    return step, scores, keep


def try_case(
    policy, name, i, seed, kind="random", n=None, budget="half", pins=None, level="scores", n_rounds=1, vision=False
):
    rng, reference = np.random.RandomState(seed), replay.POLICIES[policy]
    o = reference.options(Draw(rng, i))
    if level == "raw":
        o = reference.raw_options(o)
    n = n or int(rng.randint(16, 49 if level == "scores" else 25))
    n_kv_heads = int(rng.choice([1, 2, 4])) if reference.per_head(o) else 2
    case = {"policy": policy, "name": name, "tags": [], "options": o, "n_kv_heads": n_kv_heads, "rounds": []}
    if level == "raw" and "attention" in reference.RAW:
        case["n_heads"] = n_kv_heads * int(rng.choice([1, 2] if n_kv_heads == 4 else [1, 2, 4]))
    vision = vision or reference.VISION == "always"
    gaps = i % 3 == 2 and n_rounds == 1 and not reference.counts_queries(o) and not vision
    pot = Pot(rng, reference.n_groups(case), kind, gaps=gaps, spans=reference.SPANS, vision=vision)
    least, sinks, recent = reference.fixed(o)
    n_keep = {
        "half": lambda: int(rng.randint(least, max(least + 1, n))),
        "least": lambda: least,
        "n-1": lambda: n - 1,
        "n": lambda: n,
        "n+3": lambda: n + 3,
    }[budget]()
    if n_keep < least:
        return None
    tags = {kind} - {"random", "falling", "rising"}
    tags |= {"gaps"} if pot.gaps else set()
    tags |= ({"edge"} if budget != "half" else set()) | ({"tiny"} if n < 4 else set())
    tags |= ({"raw"} if level == "raw" else set()) | ({"rounds"} if n_rounds > 1 else set())
    if reference.MOST_COMING:
        o["capacity"] = max(sinks + recent, n_keep + (int(rng.randint(0, 6)) if budget == "half" else 0))
    if reference.LAYER_BUDGETS:
        o["capacity"] = n_keep
    before, n_new = None, n
    for r in range(n_rounds):
        pot.read(n_new)
        if reference.LAYER_BUDGETS:
            n_keep = reference.layer_budget(o, pot.n())
        if r == 0 and pins:
            tags |= set(pin(pot, pins, n_keep, sinks, recent, rng))
        before = make_round(case, pot, n_keep, kind, level, n_new, before, rng)
        if before is None:
            return None
        n_new = int(rng.randint(1, 6))
        if "num_coming" in before[0]:
            n_new = max(1, before[0]["num_coming"])
            n_keep = max(least, o["capacity"] - int(rng.randint(1, reference.MOST_COMING)))
    if pins == "crowd" and reference.FIXED and "pins_crowd" not in tags:
        return None
    if reference.NLL:
        tags.add("inf_nll")
    case["tags"] = sorted(tags)
    stored = json.loads(json.dumps(plain(case)))  # as a reader of the file recomputes it, in either precision
    for real in (np.float32, np.float64):
        if [keep for _, keep in replay.replay(stored, real)] != [step["keep"] for step in stored["rounds"]]:
            return None
    return case


def make(policy):
    reference = replay.POLICIES[policy]
    kinds = "random ties random equal plateau close zeros falling rising ties random plateau random ties"
    plan = [{"kind": kind} for kind in kinds.split()] if reference.SCORES else [{}] * 8
    plan += [{"budget": budget, "kind": kind} for budget in ("least", "n-1", "n", "n+3") for kind in ("random", "ties")]
    plan += [{"n": n, "budget": budget} for n, budget in ((1, "n"), (2, "n-1"), (3, "n-1"), (3, "least"), (2, "n+3"))]
    plan += [
        {"pins": mode, "kind": kind}
        for mode, kind in (
            ("some", "random"),
            ("old", "ties"),
            ("recent", "random"),
            ("some", "ties"),
            ("all", "equal"),
            ("crowd", "random"),
            ("old", "falling"),
            ("recent", "equal"),
        )
    ]
    plan += [{"n_rounds": rounds, "kind": kind} for rounds, kind in ((3, "random"), (4, "ties"), (5, "random"))]
    if reference.NLL:
        plan += [{"n_rounds": 4, "kind": kind} for kind in ("random", "ties")]
    if reference.LONG:
        plan += [{"n_rounds": reference.LONG, "kind": kind} for kind in ("random", "ties") * 3]
    plan += [{"pins": "crowd", "kind": "ties"}, {"kind": "close"}, {"kind": "close"}]
    plan += [{"n_rounds": 3, "pins": "some"}, {"n_rounds": 4, "budget": "n+3"}]
    if reference.RAW:
        plan += [{"level": "raw"}] * 4 + [{"level": "raw", "pins": "some"}, {"level": "raw", "kind": "equal"}]
        plan += [{"level": "raw", "n_rounds": 3}] * 2 + [{"level": "raw", "n_rounds": 2, "pins": "old"}]
    if reference.VISION == "too":
        plan += [{"vision": True, "kind": kind} for kind in ("random", "ties", "equal", "plateau", "close")]
        plan += [{"vision": True, "pins": mode} for mode in ("some", "old", "crowd")]
        plan += [{"vision": True, "n_rounds": 4, "kind": kind} for kind in ("random", "ties")]
        plan += [{"vision": True, "budget": "least"}, {"vision": True, "n": 44}, {"vision": True, "n": 40}]
    cases = []
    for i, spec in enumerate(plan):
        for attempt in range(400):
            seed = zlib.crc32(f"{policy} {i} {attempt}".encode())
            try:
                case = try_case(policy, f"{policy}-{i}", i, seed, **spec)
            except common.BudgetError:  # an impossible budget; the next seed draws different parameters
                continue
            if case is not None:
                cases.append(case)
                break
        else:
            # Some policies have no such case: fixed parts must fit, tiny pots cannot hold a window.
            if spec.get("pins") not in ("all", "crowd") and "n" not in spec:
                raise SystemExit(f"{policy}: no stable case for {spec}")
    return cases


def plain(value):
    """Integers without a fraction, infinity as null."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(entry) for entry in value]
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (float, np.floating)):
        if math.isinf(value):
            return None
        return int(value) if value == int(value) else float(value)
    return int(value)


def main():
    parser = argparse.ArgumentParser(description="Writes tests/golden/policy/*.jsonl")
    parser.add_argument("--check", action="store_true", help="only compare")
    args = parser.parse_args()
    differing = []
    for policy in replay.POLICIES:
        path = OUT / f"{policy}.jsonl"
        text = "".join(json.dumps(plain(case), separators=(",", ":")) + "\n" for case in make(policy))
        if args.check:
            if not path.exists() or path.read_text() != text:
                differing.append(path.name)
            continue
        OUT.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(f"{path.name}: {text.count(chr(10))} cases, {len(text)} bytes")
    if differing:
        raise SystemExit("differ: " + " ".join(differing))


if __name__ == "__main__":
    main()
