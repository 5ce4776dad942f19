#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Python costs: reading and writing against `weir bench`, policies in Python against the engine's own.

    WEIR_LIBRARY=build/release/libweir.so PYTHONPATH=python bench/python_speed.py build/release/weir MODEL [--pairs 5]

Everything runs with one thread and is measured in processor time, so that a busy machine disturbs it little; pairs are
taken in turns, and the median of their ratios is printed with the smallest and the largest. Policies keep the same
slots as the engine's, which is checked.

--shares measures inside one process what no other work on the machine can disturb: which share of a call's processor
time is the library's, and which share of it is a policy in Python. Library and program are linked from the same
objects.
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
        f"{name}: {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f}, {len(ratios)} times)",
        flush=True,
    )


def against_bench(args, model, ids):
    """Rates as shares of those of `weir bench`, whose start is taken out: runs of 1 and of 9 repetitions."""
    base = [args.program, "bench", "-m", args.model, "-t", "1", "--pot", str(POT)]
    with model.session(pot=POT, policy="full", chunk=CHUNK) as s:
        # As many forward passes on both sides: an answer reads its last token, too, but the stream has to begin first.
        for name, flags, begin, work in (
            ("reading 512 tokens", ["-p", "512", "-n", "0"], (), lambda: s.read(ids[:512])),
            (
                "writing 64 tokens",
                ["-p", "0", "-n", "64"],
                ids[:1],
                lambda: s.generate(max_tokens=64, temperature=0, ignore_end=True).read(),
            ),
        ):
            ratios = []
            for _ in range(args.pairs):
                ours = 0.0
                for _ in range(8):
                    s.reset()
                    s.read(begin)
                    ours += processor_seconds(work)
                few, many = (child_seconds([*base, *flags, "-r", str(r)]) for r in (1, 9))
                ratios.append((many - few) / ours)
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


class Watch:
    """Processor time of this thread that is spent in a function of the package."""

    def __init__(self, owner, name):
        self.owner, self.name, self.seconds, self.n = owner, name, 0.0, 0

    def __enter__(self):
        self.before = inner = getattr(self.owner, self.name)

        def timed(*args):
            start = time.thread_time()
            try:
                return inner(*args)
            finally:
                self.seconds += time.thread_time() - start
                self.n += 1

        setattr(self.owner, self.name, timed)
        return self

    def __exit__(self, *error):
        setattr(self.owner, self.name, self.before)


def shares(args, model, ids):
    """Of processor time: the library's share of reading and writing, and the share of policies in Python."""
    for name, function, n, work in (
        ("reading 512 tokens", "weir_session_append_tokens", 512, lambda s: s.read(ids[:512])),
        (
            "writing 64 tokens",
            "weir_session_next_tokens",
            64,
            lambda s: s.generate(max_tokens=64, temperature=0, ignore_end=True).read(),
        ),
    ):
        found, outside = [], []
        with model.session(pot=POT, policy="full", chunk=CHUNK) as s:
            for _ in range(args.pairs):
                s.reset()
                s.read(ids[:1])
                with Watch(weir.session.lib.LIB, function) as inside:
                    start = time.thread_time()
                    work(s)
                    whole = time.thread_time() - start
                found.append(inside.seconds / whole)
                outside.append((whole - inside.seconds) / n)
        print(
            f"{name}: {100 * statistics.median(found):.2f} % of the time in the library "
            f"({100 * min(found):.2f} to {100 * max(found):.2f}, {len(found)} times); outside it "
            f"{1e6 * statistics.median(outside):.1f} us a token",
            flush=True,
        )
    # What an answer takes in the library beside the two calls that `weir bench -n` makes, token by token in turns.
    with model.session(pot=POT, policy="full") as writes, model.session(pot=POT, policy="full") as reads:
        for s in (writes, reads):
            s.read(ids[:8])
        answer = writes.generate(max_tokens=POT // 2, temperature=0, ignore_end=True)
        next(answer)
        lib = weir.session.lib.LIB
        with (
            Watch(lib, "weir_session_next_tokens") as ours,
            Watch(lib, "weir_session_append_tokens") as append,
            Watch(lib, "weir_session_logits") as logits,
        ):
            for token in ids[: 40 * args.pairs]:
                next(answer)
                reads.read([token])
                reads.logits()
        theirs = (append.seconds + logits.seconds) / append.n
        print(f"an answer's token in the library: {theirs * ours.n / ours.seconds:.3f} of the rate without drawing it")
    for policy, built_in in ((StreamingLlm(), "streaming_llm"), (InfiniPot(), "infinipot")):
        found = []
        with model.session(pot=POT, policy=policy) as s:
            s.read(ids[:POT])
            for _ in range(args.pairs):
                # One round: as many tokens as a selection makes room for, and the selection.
                n = s.counters().selections
                with Watch(weir.policy.Rule, "_choose") as inside:
                    start = time.thread_time()
                    while s.counters().selections == n or not inside.n:
                        s.read(ids[:CHUNK])
                    whole = time.thread_time() - start
                found.append(inside.seconds / (whole - inside.seconds))
        told(f"{built_in} in Python, its time beside that of everything else in a round", found)


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
    parser.add_argument("--shares", action="store_true", help="only what is measured inside one process")
    args = parser.parse_args()
    model = weir.Model(args.model, threads=1)
    rng = np.random.default_rng(1)
    ids = rng.integers(1000, model.n_vocab // 2, args.tokens).astype(np.int32)
    calls(model)
    shares(args, model, ids)
    if args.shares:
        return
    against_built_in(args, model, ids)
    against_bench(args, model, ids)


if __name__ == "__main__":
    main()
