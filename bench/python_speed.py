#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python costs: reading and writing against `weir bench`, policies in Python against the engine's own.

    WEIR_LIBRARY=build/release/libweir.so PYTHONPATH=python bench/python_speed.py build/release/weir MODEL [--pairs 5]

Everything runs with one thread and is measured in processor time, so that a busy machine disturbs it little; pairs are
taken in turns, and the median of their ratios is printed with the smallest and the largest. Policies keep the same
slots as the engine's, which is checked.
"""

import argparse
import resource
import statistics
import subprocess
import time

import numpy as np
import weir

POT, CHUNK = 1024, 256


class StreamingLlm(weir.Policy):
    """The first four tokens and the newest."""

    needs = weir.Needs(like="streaming_llm")

    def select(self, view, n_keep):
        n = view.n_slots
        return np.concatenate([np.arange(4), np.arange(n - n_keep + 4, n)])


class InfiniPot(weir.Policy):
    """alpha = 0.5: half of the slots by surprise, then the largest votes of the catalyst; all heads in one array.
    Ties go to the newer slot. For streams without pins."""

    needs = weir.Needs(like="infinipot")

    def select_all(self, views, n_keep):
        n = views[0].n_slots
        rows = np.arange(len(views))[:, None]
        # Newest first, so that a stable sort prefers it.
        nll = np.stack([view.nll for view in views])[:, ::-1]
        votes = np.stack([view.scores for view in views])[:, ::-1]
        keep = np.zeros((len(views), n), bool)
        keep[rows, np.argsort(-nll, axis=1, kind="stable")[:, : (n_keep + 1) // 2]] = True
        votes = np.where(keep, -np.inf, votes)
        keep[rows, np.argsort(-votes, axis=1, kind="stable")[:, : n_keep - (n_keep + 1) // 2]] = True
        return keep[:, ::-1]


def processor_seconds(work):
    before = time.process_time()
    work()
    return time.process_time() - before


def child_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def told(name, ratios):
    print(
        f"{name}: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} pairs)",
        flush=True,
    )


def against_bench(args, model, ids):
    """Rates as shares of those of `weir bench`, whose start is taken out: runs of 1 and of 4 repetitions."""
    base = [args.program, "bench", "-m", args.model, "-t", "1", "--pot", str(POT)]
    with model.session(pot=POT, policy="full", chunk=CHUNK) as s:
        for name, flags, work in (
            ("reading 512 tokens", ["-p", "512", "-n", "0"], lambda: (s.reset(), s.read(ids[:512]))),
            (
                "writing 64 tokens",
                ["-p", "0", "-n", "64"],
                lambda: (s.reset(), s.read(ids[:1]), s.generate(max_tokens=64, temperature=0, ignore_end=True).read()),
            ),
        ):
            ratios = []
            for _ in range(args.pairs):
                ours = statistics.median(processor_seconds(work) for _ in range(3))
                few, many = (child_seconds([*base, *flags, "-r", str(r)]) for r in (1, 4))
                ratios.append((many - few) / 3 / ours)
            told(f"{name}, rate relative to weir bench", ratios)


def against_built_in(args, model, ids):
    for policy, built_in in ((StreamingLlm(), "streaming_llm"), (InfiniPot(), "infinipot")):
        ratios = []
        for pair in range(args.pairs):
            times, held = {}, {}
            for one in ((policy, built_in), (built_in, policy))[pair % 2]:
                with model.session(pot=POT, policy=one) as s:
                    s.read(ids[:POT])  # the pot is full
                    times[one] = processor_seconds(lambda s=s: s.read(ids[POT:]))
                    held[one] = [s.slots(group)["seq"].tolist() for group in range(s.n_groups)]
                    n = s.counters().selections
            assert held[policy] == held[built_in], "the two kept different slots"
            ratios.append(times[policy] / times[built_in] - 1)
        told(f"{built_in} in Python, {n} selections at pot {POT}, additional time of reading", ratios)


def calls(model):
    with model.session(pot=POT) as s:
        s.read("a")
        for name, call, n in (("read([])", lambda: s.read([]), 3000), ("slots()", lambda: s.slots(), 3000)):
            seconds = processor_seconds(lambda call=call, n=n: [call() for _ in range(n)])
            print(f"{name}: {seconds / n * 1e6:.1f} us a call")


def main():
    parser = argparse.ArgumentParser(description="What Python costs.")
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=4096, help="read by each session that compares policies")
    args = parser.parse_args()
    model = weir.Model(args.model, threads=1)
    rng = np.random.default_rng(1)
    ids = rng.integers(1000, model.n_vocab // 2, args.tokens).astype(np.int32)
    calls(model)
    against_built_in(args, model, ids)
    against_bench(args, model, ids)


if __name__ == "__main__":
    main()
