# SPDX-License-Identifier: Apache-2.0
"""The reference policies of tools/reference, unchanged, as policies of live sessions: they keep what the engine's
do."""

import unittest

import numpy as np
import weir

from tools.reference import policies, replay
from tools.reference.contract import Policy, ViewPolicy

from . import support

BY_ROWS = ("inf_mllm", "weir")  # what their cases hold is divided by the rows
PLANS = [
    ("window", {}),
    ("streaming_llm", {"sinks": 4}),
    ("h2o", {"recent": 20, "reduce": "mean", "normalise": "none"}),
    ("h2o", {"recent": 10, "reduce": "sum", "normalise": "count"}),
    ("keyformer", {"recent": 20, "seed": 3, "reduce": "mean"}),
    ("tova", {}),
    ("sirllm", {"sinks": 4, "recent": 12, "decay": 1}),
    ("snapkv", {"window": 8, "kernel": 5, "pooling": "avg", "reduce": "mean"}),
    ("snapkv", {"window": 8, "kernel": 3, "pooling": "max", "reduce": "max"}),
    ("pyramidkv", {"window": 8, "kernel": 5, "pooling": "max", "reduce": "mean", "beta": 2}),
    ("adakv", {"window": 8, "kernel": 5, "pooling": "max", "reduce": "mean", "floor": 0.25}),
    ("inf_mllm", {"recent": 16, "b": 0.0001, "per_kv_head": False}),
    ("inf_mllm", {"recent": 16, "b": 0.01, "per_kv_head": True}),
    ("infinipot", {"alpha": 0.5, "kernel": 1, "pooling": "avg", "rows": "sum", "reduce": "mean"}),
    ("infinipot", {"alpha": 0.25, "kernel": 5, "pooling": "max", "rows": "max", "reduce": "max"}),
    ("value_norm", {"recent": 8}),
    ("keydiff", {"recent": 0}),
    (
        "weir",
        {"sinks": 4, "alpha": 0.35, "z": 2, "beta": 0.1, "saddle": 8, "kernel": 5, "b": 0, "rows": 32}
        | {"recent": 0.3, "frame_rows": 4, "first": 0.1, "saddles": "always"},
    ),
]
WITH_PICTURES = [
    ("infinipot_v", {"alpha": 0.5, "recent": 0.25, "text": 0.25, "pool": "off"}),
    ("last_frames", {"frames": 2, "text": 0.25}),
    ("lookm", {"share": 0.25, "reduce": "mean"}),
    ("streaming_vlm", {"sinks": 4, "text": 32, "seconds": 4}),
    ("a_vl", {"S": 0.45, "C": 0.3, "P": 1, "T": 1.0, "heavy": 0.5, "text_min": 20}),
    ("fastv", {"K": 1, "R": 0.5}),
]


def spec_of(name, options):
    def text(value):
        return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)

    given = [f"{key}={text(value)}" for key, value in options.items()]
    return f"{name}:{','.join(given)}" if given else name


def slots_of(view, counted):
    out = {"seq": view.seq.tolist(), "pinned": np.flatnonzero(view.pinned).tolist()}
    if view.modality.any() or view.n_seen_visual:
        out["frame"] = np.where(view.modality > 0, view.frame, -1).tolist()
        out["row"] = view.slots["row"].tolist()
        out["t"] = view.t_ms.tolist()
    if counted:
        out["queries"] = (view.n_seen - view.seq).tolist()
    if view.nll is not None:
        out["nll"] = view.nll
    return out


class Referenced(weir.Policy):
    """Declares what a built-in policy does, and leaves the choice to its reference."""

    def __init__(self, name, options):
        self.method, self.options, self.n_selections = name, options, 0
        self.needs = weir.Needs(like=spec_of(name, options))

    def select_all(self, views, n_keep):
        self.n_selections += 1
        out = []
        for layer in sorted({view.layer for view in views}):
            out += self.layer([view for view in views if view.layer == layer], n_keep)
        return out

    def layer(self, views, n_keep):
        options = dict(self.options)
        if self.method == "pyramidkv":
            options |= {"capacity": n_keep, "full_pot": True, "layer": views[0].layer, "n_layers": views[0].n_layers}
        slots = [slots_of(view, "normalise" in options) for view in views]
        if "frame" not in slots[0] and self.method in ("lookm", "last_frames", "streaming_vlm", "infinipot_v"):
            for view, group in zip(views, slots):
                group |= {"frame": [-1] * view.n_slots, "row": [0] * view.n_slots, "t": view.t_ms.tolist()}
        step = {"n_keep": n_keep, "slots": slots}
        scores = None
        if views[0].scores is not None:
            scores = [view.scores / np.float32(view.n_rows if self.method in BY_ROWS else 1) for view in views]
        if self.method == "sirllm":
            scores = [view.nll for view in views]
        if views[0].novelty is not None:
            step["novelty"] = [view.novelty.tolist() for view in views]
        if views[0].visual is not None:
            step["visual"] = [view.visual.tolist() for view in views]
        if views[0].scenes is not None:
            step["scenes"] = [view.scenes.tolist() for view in views]
        case = {
            "policy": self.method,
            "name": self.method,
            "options": options,
            "n_kv_heads": len(views),
            "rounds": [step],
        }
        return replay.select(case, step, scores, np.float32)


class ReferencedView(Referenced):
    """The same for the references that read views."""

    def __init__(self, name, options):
        super().__init__(name, options)
        self.needs = weir.Needs(like=spec_of(name, options | {"step": 60}))

    def layer(self, views, n_keep):
        reference = policies.all_of(ViewPolicy)[self.method]
        assert all(view.n_unscored == 0 for view in views)  # what no row voted on yet is no matter of the papers
        return [reference.keep(self.seen(view), n_keep, self.options) for view in views]

    def after_prompt(self, views):
        reference = policies.all_of(ViewPolicy)[self.method]
        return reference.after_prompt([self.seen(view) for view in views], self.options)

    @staticmethod
    def seen(view):
        return {
            "seq": view.seq.tolist(),
            "visual": (view.modality > 0).tolist(),
            "pinned": view.pinned.tolist(),
            "scores": view.scores.tolist(),
            "n_seen": view.n_seen,
            "n_seen_visual": view.n_seen_visual,
        }


def held(session):
    return [session.slots(group)["seq"].tolist() for group in range(session.n_groups)]


class ReferencePoliciesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = weir.Model(support.MODEL, threads=1)
        cls.seeing = weir.Model(support.LLAVA, mmproj=support.CLIP, threads=1)

    def test_every_reference_runs(self):
        named = {name for name, _ in PLANS + WITH_PICTURES}
        self.assertEqual(named, set(policies.all_of(Policy)) | set(policies.all_of(ViewPolicy)))

    def test_text(self):
        for name, options in PLANS:
            with self.subTest(policy=name, options=options):
                policy = Referenced(name, options)
                # The reference of pyramidkv is for layers of equal length, all of them full.
                pyramid = name == "pyramidkv"
                pot = {"pot": 160, "chunk": 32 if pyramid else 24}
                lengths = (192,) if pyramid else (8, 160, 24, 200, 1, 90)
                with (
                    self.text.session(policy=policy, **pot) as ours,
                    self.text.session(policy=policy.needs.like, **pot) as built_in,
                ):
                    for i, n in enumerate(lengths):
                        for session in (ours, built_in):
                            session.read(support.ids(n, first=50 * i), pin=n == 8, end_of_prompt=n == 24)
                        self.assertEqual(held(ours), held(built_in))
                self.assertGreaterEqual(policy.n_selections, 1 if pyramid else 3)

    def test_pictures(self):
        rng = np.random.default_rng(7)
        frames = rng.integers(0, 256, (30, 48, 48, 3), dtype=np.uint8)
        for name, options in WITH_PICTURES + [plan for plan in PLANS if plan[0] in ("weir", "infinipot")]:
            with self.subTest(policy=name, options=options):
                views = name in policies.all_of(ViewPolicy)
                policy = ReferencedView(name, options) if views else Referenced(name, options)
                pot = {"pot": 160, "chunk": 64 if views else 24, "picture_side": 64}
                with (
                    self.seeing.session(policy=policy, **pot) as ours,
                    self.seeing.session(policy=policy.needs.like, **pot) as built_in,
                ):
                    for i, frame in enumerate(frames):
                        for session in (ours, built_in):
                            session.append(frame, t=2.0 * i)
                            if views:  # rows that vote, and room for them: what comes next is a frame
                                session.read(support.ids(4, first=30 * i), end_of_prompt=True)
                                continue
                            session.append(support.ids(20, first=30 * i))
                            if i % 3 == 2:
                                session.ask("what?", max_tokens=4, temperature=0, ignore_end=True).read()
                        self.assertEqual(held(ours), held(built_in), i)
                self.assertGreaterEqual(policy.n_selections, 2)


if __name__ == "__main__":
    unittest.main()
