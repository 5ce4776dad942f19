# SPDX-License-Identifier: Apache-2.0
"""Sequences of calls that hypothesis makes up and shortens: what sessions promise holds after each of them.

WEIR_LIBRARY=build/release/libweir.so PYTHONPATH=python python3 -m tests.python.stateful_fuzz [SECONDS [--no-shrinking]]

Beside tests/python/api_fuzz.py, which makes more calls and asks less of them: here forks and restored sessions must
hold what the first one held and write what it writes, counters must add up, and what is closed must say so.
"""

import copy
import pickle
import random
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import weir
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from . import support

PROMISED = (weir.WeirError, ValueError, TypeError)
MODELS = {}
GREEDY = {"temperature": 0, "ignore_end": True}


def model(seeing):
    if not MODELS:
        MODELS[False] = weir.Model(support.MODEL, threads=1)
        MODELS[True] = weir.Model(support.LLAVA, mmproj=support.CLIP, threads=2)
    return MODELS[seeing]


class MoodError(RuntimeError):
    pass


class Moody(weir.Policy):
    """Keeps the newest, or what a mood says instead."""

    def __init__(self, needs, moods):
        self.needs, self.moods, self.n, self.kept = needs, moods, 0, []

    def select(self, view, n_keep):
        self.n += 1
        mood = self.moods[self.n % len(self.moods)]
        self.kept = [view, view.seq, view.scores, view.nll]  # of the latest call alone
        if mood == "raise":
            raise MoodError("a mood")
        if mood == "wrong":
            return [0] * n_keep
        return weir.fill(view, n_keep, range(view.n_slots - 1, -1, -1))

    def after_prompt(self, views):
        return [np.flatnonzero(view.pinned | (np.arange(view.n_slots) % 3 > 0)) for view in views]


class PlainMoody(Moody):
    after_prompt = None

    def __getattribute__(self, name):
        if name == "after_prompt":
            raise AttributeError(name)
        return super().__getattribute__(name)


NEEDS = st.sampled_from(
    [
        weir.Needs(),
        weir.Needs(share="head", rows="all", nll=True),
        weir.Needs(share="layer", rows="last", n_last=4),
        weir.Needs(share="head", vector="key_diff"),
        weir.Needs(share="head", rows="probe", probe="the man"),
        weir.Needs(like="snapkv:window=8"),
        weir.Needs(like="streaming_llm"),
        weir.Needs(like="a_vl"),
    ]
)
MOODS = st.lists(st.sampled_from(["fine", "fine", "fine", "raise", "wrong"]), min_size=1, max_size=5)
NAMES = st.sampled_from(
    ["weir", "streaming_llm", "h2o", "tova", "snapkv:window=8", "adakv:window=8", "infinipot", "a_vl", "fastv", "full"]
)
IDS = st.integers(0, 150).map(support.ids)
TEXTS = st.one_of(
    st.text(max_size=60),
    st.binary(max_size=60),
    st.integers(0, 12).map(lambda n: support.WORDS * n),
    IDS,
    st.just([10**9]),
)
PICTURES = st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(0, 255)).map(
    lambda x: np.full((x[0], x[1], 3), x[2], np.uint8)
)
OPTIONS = st.fixed_dictionaries(
    {"max_tokens": st.integers(0, 10)},
    optional={
        "temperature": st.sampled_from([0, 0.5, -1]),
        "seed": st.integers(-1, 2**64),
        "stop": st.sampled_from(["a", ["the", "."], ""]),
        "regex": st.sampled_from(["[a-c]+", "(", "a{3}"]),
        "schema": st.sampled_from([{"type": "integer"}, {"enum": ["x", 3]}, {"type": 7}, "nonsense"]),
        "choices": st.sampled_from([["x", "yes"], []]),
        "top_k": st.integers(-1, 50),
    },
)


class Calls(RuleBasedStateMachine):
    sessions, answers, states = Bundle("sessions"), Bundle("answers"), Bundle("states")

    def __init__(self):
        super().__init__()
        self.open = {}  # sessions, and how they were made
        self.n_failed = 0

    def trying(self, call):
        """What the call returns; None where it raised what is promised."""
        try:
            return call()
        except PROMISED:
            self.n_failed += 1
        except MoodError:
            self.n_failed += 1
        return None

    @rule(
        target=sessions,
        seeing=st.booleans(),
        own=st.booleans(),
        needs=NEEDS,
        moods=MOODS,
        name=NAMES,
        pot=st.sampled_from([40, 64, 96, 200]),
        chunk=st.sampled_from([0, 1, 16]),
        likelihoods=st.booleans(),
        rule_tokens=st.sampled_from([0, 96, 160]),
        form_bytes=st.sampled_from([0, 1 << 20, 16 << 20]),
        recall=st.sampled_from([None, None, "words"]),
        pin=st.sampled_from([None, "the man"]),
    )
    def make(self, seeing, own, needs, moods, name, pot, chunk, likelihoods, rule_tokens, form_bytes, recall, pin):
        kind = PlainMoody if needs.like != "a_vl" else Moody
        options = {"pot": pot, "chunk": chunk, "likelihoods": likelihoods, "recall": recall, "pin": pin}
        options["rule_tokens"] = rule_tokens
        options["form_bytes"] = form_bytes
        if seeing:
            options["picture_side"] = 64
        if recall:
            options["recall_tokens"] = 60
        s = self.trying(lambda: model(seeing).session(policy=kind(needs, moods) if own else name, **options))
        if s is None:
            return multiple()
        key = (seeing, own, needs if own else name, tuple(sorted(options.items(), key=str)))
        self.open[s] = (key, s.counters().bytes, own, recall)
        return s

    @rule(s=sessions, given=TEXTS, pin=st.booleans(), t=st.one_of(st.none(), st.floats(-1, 1e13)))
    def append(self, s, given, pin, t):
        self.trying(lambda: s.append(given, t=t, pin=pin and len(given) < 9))

    @rule(s=sessions, picture=PICTURES, t=st.one_of(st.none(), st.floats(0, 100)))
    def see(self, s, picture, t):
        self.trying(lambda: s.append(picture, t=t))

    @rule(s=sessions, ids=IDS, end_of_prompt=st.booleans())
    def read(self, s, ids, end_of_prompt):
        if s.closed:
            return
        before = s.seen
        try:
            s.read(ids, end_of_prompt=end_of_prompt)
        except (*PROMISED, MoodError):
            assert before <= s.seen <= before + len(ids) + 12, "an answer's last token, and a part of this"
        else:
            assert s.seen >= before + len(ids)

    @rule(s=sessions, ids=IDS)
    def score(self, s, ids):
        nll = self.trying(lambda: s.score(ids))
        assert nll is None or (nll.shape == (len(ids),) and np.isfinite(nll).all())

    @rule(target=answers, s=sessions, question=st.text(max_size=20), options=OPTIONS, plain=st.booleans())
    def ask(self, s, question, options, plain):
        answer = self.trying(lambda: s.generate(**options) if plain else s.ask(question, **options))
        return multiple() if answer is None else answer

    @rule(answer=answers, how=st.sampled_from(["next", "read", "close", "value"]))
    def go_on(self, answer, how):
        if how == "next":
            self.trying(lambda: next(answer, None))
        else:
            self.trying(getattr(answer, how))
            if how == "close" and not answer._session.closed:
                assert answer.end is not None

    @rule(target=sessions, s=sessions, ids=IDS)
    def fork(self, s, ids):
        if s.closed or len([x for x in self.open if not x.closed]) > 5:
            return multiple()
        twin = self.trying(s.fork)
        if twin is None:
            return multiple()
        self.open[twin] = self.open[s]
        self.equal(s, twin)
        if not self.open[s][2]:  # policies in a mood answer the two differently
            for x in (s, twin):
                self.trying(lambda x=x: x.read(ids))
            self.equal(s, twin)
            one, other = (self.trying(lambda x=x: x.generate(max_tokens=3, **GREEDY).read()) for x in (s, twin))
            assert one == other
        return twin

    @rule(target=states, s=sessions)
    def state(self, s):
        data = self.trying(s.state)
        return multiple() if data is None else (data, self.open[s][0], s.seen, s.slots().tolist())

    @rule(s=sessions, state=states, cut=st.integers(0, 3), at=st.integers(0, 2**31))
    def restore(self, s, state, cut, at):
        data, key, seen, slots = state
        if s.closed:
            return
        if cut == 0:
            if self.trying(lambda: s.restore(data) or True):
                assert (s.seen, s.slots().tolist()) == (seen, slots)
            else:
                assert key != self.open[s][0] or self.open[s][3], "a state of such a session was refused"
            return
        # Not what was saved: refused, or read as another state, but never the process's end.
        broken = bytearray(data)
        if cut == 1:
            del broken[at % len(broken) :]
        else:
            broken[at % min(len(broken), 400 * cut)] ^= 1 << at % 8
        if self.trying(lambda: s.restore(bytes(broken)) or True):
            self.trying(s.reset)

    @rule(
        s=sessions,
        span=st.one_of(st.text("0123456789%:.", max_size=7), st.tuples(st.integers(-2, 99), st.integers(0, 99))),
    )
    def remembers(self, s, span):
        found = self.trying(lambda: s.remembers(span))
        assert found is None or 0 <= found.share <= 1

    @rule(s=sessions)
    def look(self, s):
        for call in (s.logits, s.passages, s.flush, s.stop, lambda: s.slots(1), lambda: repr(s)):
            self.trying(call)
        for copier in (pickle.dumps, copy.copy, copy.deepcopy):
            try:
                copier(s)
            except TypeError:
                continue
            raise AssertionError("a session was copied")

    @rule(
        s=sessions,
        words=st.sampled_from(["Who came? => the man", "Where? => sea", "=>", "the sea " * 99 + "=> a", "a parcel"]),
        name=st.sampled_from([None, "door", "a b"]),
        does=st.sampled_from(["nothing", "raise", "append", "ask", "remove", "reset", "close"]),
        learn=st.integers(0, 3),
    )
    def when(self, s, words, name, does, learn):
        def told(event):
            assert event.state in ("began", "ended") and event.id >= event.began_id > 0, event
            if does == "raise":
                raise MoodError("a mood")
            if does == "append" and event.id % 2:
                s.append(" the boat")
            elif does == "ask":
                s.ask("what?", max_tokens=2).read()
            elif does == "remove":
                s.remove_rule(event.rule)
            elif does in ("reset", "close"):
                getattr(s, does)()

        self.trying(lambda: s.when(words, told, id=name, score=1e-6, odds=-30, hold=1, learn=learn))
        found = self.trying(s.rules)
        assert found is None or len(found) <= 64
        if found and learn == 1:
            s.remove_rule(found[0].id)
            assert s.rules() == found[1:]

    @rule(s=sessions, ids=IDS)
    def trace(self, s, ids):
        with tempfile.TemporaryDirectory() as folder:
            trace = self.trying(lambda: s.trace(Path(folder) / "t.jsonl"))
            if trace is None:
                return
            self.trying(lambda: s.read(ids))
            kinds = [event["type"] for event in trace.events()]
            assert (kinds[0], kinds[-1]) == ("trace", "end"), kinds

    @rule(s=sessions)
    def reset(self, s):
        if self.trying(lambda: s.reset() or True):
            assert s.seen == 0

    @rule(s=consumes(sessions))
    def close(self, s):
        s.close()
        for call in (lambda: s.seen, lambda: s.append("a"), s.fork, s.state, s.reset):
            try:
                call()
            except weir.ClosedError:
                continue
            raise AssertionError("a closed session was used")

    @invariant()
    def counters_add_up(self):
        for s, (_, n_bytes, _, recall) in self.open.items():
            if s.closed:
                continue
            now = s.counters()
            assert now.seen == now.kept + now.dropped and now.bytes == n_bytes, now
            groups = [s.slots(group)["seq"] for group in range(s.n_groups)]
            # Heads may share a budget, and passages have room of their own.
            assert sum(map(len, groups)) <= s.n_groups * (s.pot + (60 if recall else 0))
            assert all((np.diff(seq) > 0).all() for seq in groups)

    @staticmethod
    def equal(one, other):
        assert one.seen == other.seen
        for group in range(one.n_groups):
            assert one.slots(group).tolist() == other.slots(group).tolist()

    def teardown(self):
        for s in self.open:
            s.close()


def main():
    quick = "--no-shrinking" in sys.argv
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    end, n = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        seed = random.getrandbits(32)
        random.seed(seed)
        run_state_machine_as_test(
            Calls,
            settings=settings(
                max_examples=5,
                stateful_step_count=40,
                deadline=None,
                database=None,
                phases=[Phase.generate] if quick else [Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
        n += 1
        passed = time.monotonic() - end + seconds
        print(f"{n} rounds of 5 sequences, {passed:.0f} s, {support.resident_kib()} KiB resident", flush=True)


if __name__ == "__main__":
    main()
