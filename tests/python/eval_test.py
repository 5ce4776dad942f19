# SPDX-License-Identifier: Apache-2.0
"""weir.eval, its charts, and the adapters of benchmarks, on tiny models and made data."""

import importlib.util
import os
import tempfile
import types
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from unittest import mock

import numpy as np
import weir
from weir import plots
from weir._program import find_program
from weir.kvpress import PotPipeline, answer_rows
from weir.lmms_eval import WeirLMM

from . import support

HAS_PANDAS = importlib.util.find_spec("pandas") is not None
LINES = {"pot": [64, 96], "distance": [2, 5], "n": 2, "every": 3, "threads": 1, "gold_nll": False}


def program_or_skip(test):
    try:
        return find_program()
    except FileNotFoundError as error:
        test.skipTest(str(error))


class EvalTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = weir.Model(support.MODEL, threads=1)

    def test_rows(self):
        program_or_skip(self)
        seen = []
        rows = weir.eval(
            "lines", self.model, policy=["streaming_llm:sinks=2", "h2o"], frame=False, on_row=seen.append, **LINES
        )
        self.assertEqual(rows, seen)
        self.assertEqual(len(rows), 2 * 2 * 2)
        self.assertEqual({row["policy"].partition(":")[0] for row in rows}, {"streaming_llm", "h2o"})
        self.assertEqual({(row["pot"], row["distance"]) for row in rows}, {(64, 2), (64, 5), (96, 2), (96, 5)})
        self.assertTrue(all(row["suite"] == "lines" and row["n"] == 2 and 0 <= row["value"] <= 1 for row in rows))
        as_frame = weir.eval("lines", support.MODEL, policy="h2o", **LINES)
        if HAS_PANDAS:
            self.assertEqual(as_frame[["pot", "distance"]].values.tolist(), [[64, 2], [64, 5], [96, 2], [96, 5]])
        else:
            self.assertIsInstance(as_frame, list)
            with self.assertRaises(ImportError):
                weir.eval("lines", support.MODEL, policy="h2o", frame=True, **LINES)

    def test_what_the_program_says_is_raised(self):
        program_or_skip(self)
        for more in ({"policy": "nobody"}, {"policy": "h2o", "nonsense": 3}, {"policy": "h2o", "n": "many"}):
            with self.subTest(more=more), self.assertRaises(weir.EvalError) as caught:
                weir.eval("lines", self.model, **(LINES | more))
            self.assertNotIn("\n", str(caught.exception))
            self.assertEqual(caught.exception.rows, [])
        with self.assertRaises(weir.EvalError):
            weir.eval("lines", "/there/is/none.gguf", policy="h2o")
        with self.assertRaises(weir.EvalError):
            weir.eval("nothing", self.model)

    def test_bad_arguments(self):
        class Mine(weir.Policy):
            pass

        with mock.patch.dict(os.environ, {"WEIR_PROGRAM": "/bin/true"}):
            with self.assertRaises(TypeError):
                weir.eval("lines", self.model, policy=Mine())
            for suite in ("", "-m", "lines; rm", "../lines"):
                with self.subTest(suite=suite), self.assertRaises(ValueError):
                    weir.eval(suite, self.model)
            with self.assertRaises(ValueError):
                weir.eval("lines", self.model, **{"a b": 1})
            self.assertEqual(len(weir.eval("lines", self.model, pot=[1, 2], carry=True)), 0)

    def test_a_callback_that_raises_ends_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            endless = Path(folder) / "weir"
            endless.write_text("#!/bin/sh\nwhile echo '{\"value\": 1}'; do :; done\n")
            endless.chmod(0o755)

            def enough(row):
                raise KeyboardInterrupt

            with mock.patch.dict(os.environ, {"WEIR_PROGRAM": str(endless)}), self.assertRaises(KeyboardInterrupt):
                weir.eval("lines", self.model, on_row=enough)


class PlotsTest(unittest.TestCase):
    ROWS = [
        {"policy": policy, "pot": pot, "value": value, "stderr": 0.1, "note": None}
        for policy, pot, value in (("a", 128, 0.5), ("a", 64, 0.25), ("b <x>", 64, 0.5), ("b <x>", 128, float("nan")))
    ]

    def check(self, chart, n_lines):
        root = ElementTree.fromstring(chart.svg())
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        for line in chart.lines:
            self.assertIn(line.name, texts)
        self.assertEqual(len(chart.lines), n_lines)
        self.assertNotIn("nan", chart.svg())
        self.assertEqual(chart._repr_svg_(), chart.svg())
        if importlib.util.find_spec("matplotlib") is not None:
            self.assertEqual(len(chart.figure().axes), 1)

    def test_curves(self):
        chart = plots.curve(self.ROWS, x="pot", title="a & b", log_x=True)
        self.check(chart, 2)
        self.assertEqual(chart.lines[0].x.tolist(), [64, 128])
        self.assertEqual(chart.lines[0].y.tolist(), [0.25, 0.5])
        self.assertEqual(chart.lines[1].x.tolist(), [64])
        self.check(plots.curve(self.ROWS, x="pot", by=["policy", "pot"]), 3)
        with tempfile.TemporaryDirectory() as folder:
            chart.save(Path(folder) / "a.svg")
            self.assertEqual((Path(folder) / "a.svg").read_text(), chart.svg())
        for rows, more in (([], {}), (self.ROWS, {"x": "note"}), ([{"pot": 0, "value": 1}], {"log_x": True})):
            with self.subTest(more=more), self.assertRaises(ValueError):
                plots.curve(rows, **({"x": "pot"} | more)).svg()
        if HAS_PANDAS:
            import pandas as pd

            self.assertEqual(plots.curve(pd.DataFrame(self.ROWS), x="pot").svg(), plots.curve(self.ROWS, x="pot").svg())

    def test_what_was_forgotten(self):
        """As the session itself says, for policies whose groups differ."""
        model = weir.Model(support.MODEL, threads=1)
        traces = {}
        with tempfile.TemporaryDirectory() as folder:
            for name in ("streaming_llm:sinks=2", "h2o", "adakv:window=8", "tova", "window"):
                with model.session(pot=96, policy=name) as s:
                    traces[name] = s.trace(Path(folder) / f"{len(traces)}.jsonl")
                    s.read(support.ids(400))
                    s.reset()  # what was read before is no part of the stream
                    s.read(support.ids(350))
                    held = sorted({seq for group in range(s.n_groups) for seq in s.slots(group)["seq"].tolist()})
                    left = traces[name].forgotten_at()
                    self.assertEqual(np.flatnonzero(left < 0).tolist(), held, name)
                    self.assertEqual((len(left), int((left >= 0).sum())), (s.seen, s.dropped))
                    gone = left[left >= 0]
                    self.assertTrue((gone > np.flatnonzero(left >= 0)).all() and (gone <= s.seen).all())
            chart = plots.forgotten(traces)
            self.check(chart, 5)
            newest = next(line for line in chart.lines if line.name == "window")
            self.assertEqual((newest.y[0], newest.y[-1]), (0, 1))
            self.check(plots.lifetimes(traces), 5)
            self.check(plots.forgotten(traces["h2o"], parts=7), 1)
            with model.session(pot=96) as s:
                s.read(support.ids(300))
                late = s.trace(Path(folder) / "late.jsonl")
                s.read(support.ids(100))
                with self.assertRaises(ValueError):
                    late.forgotten_at()


class AdaptersTest(unittest.TestCase):
    def test_rows_of_a_compression_benchmark(self):
        model = weir.Model(support.MODEL, threads=1)
        context, other = support.WORDS * 8, support.WORDS * 3
        for chat in (False, True):
            pipeline = PotPipeline(model, pot=96, policy="streaming_llm", chat=chat)
            both = pipeline(context, questions=["Who?", "What?"], max_new_tokens=6)["answers"]
            # Every question sees the context alone.
            self.assertEqual(
                both, [pipeline(context, question=q, max_new_tokens=6)["answer"] for q in ("Who?", "What?")]
            )
            self.assertLess(pipeline.kept, pipeline.seen)
            with self.assertRaises(ValueError):
                pipeline(context, question="Who?", questions=["Who?"])
            rows = [
                {"context": context, "question": "Who?", "answer": "x", "max_new_tokens": 6},
                {"context": context, "question": "What?", "answer": "y", "max_new_tokens": 6},
                {"context": other, "question": "Who?", "answer": "z", "max_new_tokens": 4, "answer_prefix": "It is"},
            ]
            out = answer_rows(pipeline, rows)
            self.assertEqual([row["predicted_answer"] for row in out[:2]], both)
            self.assertEqual([row["answer"] for row in out], ["x", "y", "z"])
            self.assertNotIn("predicted_answer", rows[0])
            answer_rows(pipeline, rows, ratio=0.5)
            n = len(model.encode(other))
            self.assertLessEqual(pipeline.kept, max(64, round(n / 2)))
            with self.assertRaises(ValueError):
                answer_rows(pipeline, rows, ratio=1)
            if HAS_PANDAS:
                import pandas as pd

                frame = answer_rows(pipeline, pd.DataFrame(rows[:2]))
                self.assertEqual(frame["predicted_answer"].tolist(), both)

    def test_requests_of_a_vision_benchmark(self):
        rng = np.random.default_rng(5)
        pictures = [rng.integers(0, 256, (48, 48, 3), dtype=np.uint8) for _ in range(3)]
        lmm = WeirLMM(support.LLAVA, mmproj=support.CLIP, threads=1, pot=300, picture_side=64)
        lmm.task_dict = {"made": {"test": [{"pictures": pictures[:1]}, {"pictures": pictures[1:]}, {"pictures": []}]}}

        def request(doc_id, *middle):
            text, first = middle
            return types.SimpleNamespace(args=(text, first, lambda doc: doc["pictures"], doc_id, "made", "test"))

        options = {"max_new_tokens": 6, "until": ["\n\n"]}
        asked = [request(i, "<image>\nWhat is it?", options) for i in range(3)]
        answers = lmm.generate_until(asked)
        self.assertEqual(len(answers), 3)
        self.assertEqual(answers, lmm.generate_until(asked[:1]) + lmm.generate_until(asked[1:]))  # nothing is left over
        with lmm.model.session(pot=300, picture_side=64) as s:
            s.append(pictures[1])
            s.append(pictures[2])
            self.assertEqual(s.ask("What is it?", max_tokens=6, temperature=0, stop="\n\n").read(), answers[1])
        (loss, greedy), (other, _) = lmm.loglikelihood(
            [request(0, "What is it?", lambda doc: "the sea"), request(0, "What is it?", "the")]
        )
        self.assertGreater(loss, other)
        self.assertGreater(other, 0)
        self.assertIsInstance(greedy, bool)
        # What greedy decoding writes is what it would have written.
        with lmm.model.session(pot=300, picture_side=64) as s:
            s.append(pictures[0])
            s.ask("What is it?", max_tokens=0).read()
            first = lmm.model.decode([int(s.logits().argmax())])
        if lmm.model.encode(first).size == 1:
            self.assertTrue(lmm.loglikelihood([request(0, "What is it?", first)])[0][1])
        with self.assertRaises(ValueError):
            WeirLMM(support.MODEL)
        with self.assertRaises(NotImplementedError):
            lmm.generate_until_multi_round([])


if __name__ == "__main__":
    unittest.main()
