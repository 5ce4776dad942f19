# SPDX-License-Identifier: Apache-2.0
"""Random calls with random arguments on sessions of tiny models: they succeed or raise what the package promises.

WEIR_LIBRARY=build/release/libweir.so PYTHONPATH=python python3 -m tests.python.api_fuzz [SECONDS] [SEED]
"""

import gc
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import weir

from . import support

ALLOWED = (weir.WeirError, ValueError, TypeError, OSError, OverflowError)
POLICIES = (
    "weir",
    "streaming_llm",
    "h2o",
    "infinipot",
    "snapkv",
    "adakv",
    "tova",
    "full",
    "random",
    "inf_mllm:recent=8",
)


class Mood(weir.Policy):
    """Mostly right, sometimes not."""

    def __init__(self, rng, needs):
        self.rng, self.needs, self.kept = rng, needs, []

    def select(self, view, n_keep):
        what = self.rng.random()
        if what < 0.05:
            raise RuntimeError("a mood")
        if what < 0.1:
            return self.rng.choice([[], [0] * n_keep, range(n_keep + 3), None, np.ones(view.n_slots, bool), [-1], "x"])
        if what < 0.2:
            self.kept = [view.seq, view.scores]  # views outlive the call, and perhaps the session
        return weir.fill(view, n_keep, self.rng.sample(range(view.n_slots), view.n_slots))


class Fuzz:
    def __init__(self, seed, folder):
        self.rng, self.folder = random.Random(seed), folder
        self.text = weir.Model(support.MODEL, threads=1)
        self.seeing = weir.Model(support.LLAVA, mmproj=support.CLIP, threads=1)
        self.sessions, self.answers, self.n_raised = [], [], 0

    def number(self):
        rng = self.rng
        return rng.choice([0, 1, -1, 2, 7, 64, 300, 2**31, 2**63, -(2**40), 0.5, float("nan"), None, "3"])

    def given(self):
        rng = self.rng
        return rng.choice(
            [
                lambda: support.WORDS * rng.randint(0, 8),
                lambda: rng.randbytes(rng.randint(0, 200)),
                lambda: support.ids(rng.randint(0, 200)),
                lambda: np.array(support.ids(rng.randint(0, 60)), rng.choice([np.int8, np.int64, np.float32])),
                lambda: np.zeros(tuple(rng.randint(0, 70) for _ in range(rng.randint(0, 4))), np.uint8),
                lambda: np.full((rng.randint(1, 64), rng.randint(1, 64), 3), rng.randint(0, 255), np.uint8),
                lambda: Path(self.folder) / "none.png",
                lambda: [10**9],
                self.number,
            ]
        )()

    def options(self):
        rng = self.rng
        out = {"max_tokens": rng.randint(0, 12), "temperature": rng.choice([0, 0.8, -1, 1e9])}
        if rng.random() < 0.4:
            name = rng.choice(["regex", "grammar", "choices", "schema", "stop", "top_p", "top_k", "seed", "max_tokens"])
            values = ["[a-c]+", "(", 'root ::= "a"', ["x", "y"], {"type": "object"}, {"type": 3}, "", self.number()]
            out[name] = rng.choice(values)
        return out

    def open(self):
        rng = self.rng
        needs = rng.choice([weir.Needs(), weir.Needs(share="head", rows="all", nll=True), weir.Needs(like="snapkv")])
        self.sessions.append(
            rng.choice([self.text, self.seeing]).session(
                pot=rng.choice([0, 1, 40, 64, 160]) if rng.random() < 0.9 else self.number(),
                policy=Mood(rng, needs) if rng.random() < 0.4 else rng.choice(POLICIES),
                chunk=rng.choice([0, 1, 16, 1000]),
                picture_side=64,
                recall=rng.choice([None, None, "words"]),
                recall_tokens=60,
                likelihoods=rng.random() < 0.5,
                pin=rng.choice([None, "the man"]),
                rule_tokens=rng.choice([0, 96, 160]),
                form_bytes=rng.choice([0, 1 << 20, 16 << 20, 5]) if rng.random() < 0.5 else 16 << 20,
            )
        )

    def told(self, s):
        """What a rule's callback does."""
        rng = self.rng

        def callback(event):
            what = rng.random()
            if what < 0.1:
                raise RuntimeError("a mood")
            if what < 0.2:
                s.append(self.given())
            elif what < 0.3:
                self.answers.append(s.ask("who?", **self.options()))
            elif what < 0.4:
                s.remove_rule(event.rule)
            elif what < 0.45:
                s.reset()

        return callback

    def watch_for(self, s):
        rng = self.rng
        words = rng.choice(["Who came? => the man", "Where? => sea", "a parcel", "=>", "", "x" * 2000, "\xff => \0"])
        tuning = {"score": 1e-6, "odds": -30, "hold": 1, "learn": 1}
        if rng.random() < 0.3:
            tuning[rng.choice([*tuning, "cooldown"])] = self.number()
        s.when(
            words, self.told(s) if rng.random() < 0.9 else self.number(), id=rng.choice([None, "a", "a b"]), **tuning
        )

    def step(self):
        rng = self.rng
        if not self.sessions or (len(self.sessions) < 6 and rng.random() < 0.1):
            return self.open()
        s = rng.choice(self.sessions)
        path = Path(self.folder) / f"{rng.randint(0, 3)}.weir"
        span = rng.choice(["99%", "1:9", "", "5", "%", (0, 3), (9, 1), "50%:60%"])
        calls = [
            lambda: s.append(self.given(), t=rng.choice([None, None, 1.5, self.number()]), pin=rng.random() < 0.05),
            lambda: s.append(self.given()),
            lambda: s.read(self.given(), special=rng.random() < 0.3, end_of_prompt=rng.random() < 0.3),
            lambda: self.answers.append(s.ask(rng.choice(["who?", "", "\n" * 50]), **self.options())),
            lambda: self.answers.append(s.generate(**self.options())),
            lambda: next(rng.choice(self.answers), None) if self.answers else None,
            lambda: rng.choice(self.answers).read() if self.answers else None,
            lambda: rng.choice(self.answers).close() if self.answers else None,
            lambda: s.score(self.given()),
            lambda: s.logits(),
            lambda: s.slots(self.number() if rng.random() < 0.3 else 0),
            lambda: s.counters(),
            lambda: s.remembers(span),
            lambda: s.passages(),
            lambda: self.watch_for(s),
            lambda: s.remove_rule(rng.choice(["r1", "a", ""])),
            lambda: (s.rules(), s.rule_cost()),
            lambda: self.sessions.append(s.fork()) if len(self.sessions) < 8 else None,
            lambda: s.save(path),
            lambda: s.load(path),
            lambda: s.restore(rng.randbytes(rng.randint(0, 300))),
            lambda: s.trace(Path(self.folder) / "t.jsonl").end(),
            lambda: s.reset(),
            lambda: s.close() or self.sessions.remove(s),
        ]
        return rng.choice(calls)()

    def run(self, seconds):
        end, n, resident = time.monotonic() + seconds, 0, 0
        while time.monotonic() < end:
            n += 1
            try:
                self.step()
            except ALLOWED:
                self.n_raised += 1
            except RuntimeError as error:
                if str(error) != "a mood":
                    raise
            if n % 500 == 0:
                self.answers = self.answers[-5:]
                gc.collect()
            if n == 20_000:
                resident = support.resident_kib()
        print(f"{n} calls, {self.n_raised} of them raised")
        print(f"resident: {resident} KiB after 20000 calls, {support.resident_kib()} KiB at the end")


def main():
    seconds, seed = (int(x) for x in (sys.argv[1:] + ["30", "1"][len(sys.argv) - 1 :])[:2])
    print(f"seed {seed}")
    with tempfile.TemporaryDirectory() as folder:
        Fuzz(seed, folder).run(seconds)


if __name__ == "__main__":
    main()
