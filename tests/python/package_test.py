# SPDX-License-Identifier: Apache-2.0
"""The package weir: what its objects promise, and that no misuse of them ends the process.

One file, although long: the tests share one tiny model and the helpers that make sessions of it.
"""

import asyncio
import copy
import ctypes
import dataclasses
import enum
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref
from pathlib import Path
from typing import Literal
from unittest import mock

import numpy as np
import weir
from weir import _inputs

from . import support

GREEDY = {"temperature": 0, "ignore_end": True}


class Newest(weir.Policy):
    def select(self, view, n_keep):
        return weir.fill(view, n_keep, range(view.n_slots - 1, -1, -1))


class DlpackAlone:
    """An array of a library that shares its memory and does nothing else."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = weir.Model(support.MODEL, threads=1)
        cls.seeing = weir.Model(support.LLAVA, mmproj=support.CLIP, threads=1)

    # ---- texts and answers

    def test_a_stream_is_counted(self):
        with self.model.session(pot=96, system="the man", pin="the sea") as s:
            s.append(support.WORDS * 10)
            answer = s.ask("who?", max_tokens=7, **GREEDY)
            self.assertEqual(s.seen, s.kept + s.dropped)
            before = s.seen
            pieces = list(answer)
            self.assertEqual("".join(pieces), answer.text)
            self.assertEqual((answer.end, answer.n_tokens), ("length", 7))
            self.assertGreater(s.seen, before + 7)  # the question, too
            self.assertEqual(s.kept + s.dropped, s.seen)
            self.assertGreater(s.dropped, 0)
            self.assertTrue(s.slots()[0]["pinned"])
            self.assertIn("the man", s.remembers("0%:100%").text)

    def test_inputs_of_every_kind_are_the_same_text(self):
        ids = self.model.encode("the man and the sea")
        self.assertEqual(self.model.decode(ids), "the man and the sea")
        given = [
            ids,
            ids.tolist(),
            tuple(ids.tolist()),
            ids.astype(np.int64),
            ids.astype(np.uint16),
            np.array(ids)[::1],
            DlpackAlone(np.array(ids)),
        ]
        try:
            import torch

            given.append(torch.tensor(ids.tolist()))
        except ImportError:
            pass
        states = []
        for x in ["the man and the sea", b"the man and the sea", bytearray(b"the man and the sea"), *given]:
            with self.model.session(pot=96) as s:
                s.append(x)
                states.append(s.slots()["token_id"].tolist())
        self.assertTrue(all(state == states[0] for state in states), states)
        with self.model.session(pot=96) as s:
            s.append([])
            s.append("")
            for bad in (1, 1.5, None, {"a": 1}, [1.5], [[[1]]] * 2, np.zeros((2, 3, 4, 5)), object()):
                with self.subTest(bad=bad), self.assertRaises((TypeError, ValueError)):
                    s.append(bad)
            for bad in ([-1], [1 << 40]):
                with self.assertRaises(ValueError):
                    s.append(bad)
            with self.assertRaises(weir.InvalidArgumentError):
                s.append([self.model.n_vocab])
            with self.assertRaises(ValueError):
                s.append("\ud800")
            with self.assertRaises(ValueError):
                s.append("a", t=-1)
            s.append(b"\xff\xfe broken \x00 bytes")  # read as U+FFFD, as everywhere

    def test_pictures_of_every_kind_are_the_same_pixels(self):
        rng = np.random.default_rng(3)
        rgb = rng.integers(0, 256, (40, 48, 3), dtype=np.uint8)
        given = [
            rgb,
            np.asfortranarray(rgb),
            rgb[::1],
            np.moveaxis(rgb, 2, 0),
            np.dstack([rgb, rgb[:, :, :1]]),
            rgb / 255.0,
            DlpackAlone(rgb),
        ]
        try:
            from PIL import Image

            given.append(Image.fromarray(rgb))
        except ImportError:
            pass
        try:
            import torch

            given += [torch.from_numpy(rgb), torch.from_numpy(rgb).permute(2, 0, 1)]
        except ImportError:
            pass
        for x in given:
            made = _inputs.classify(x)
            np.testing.assert_array_equal(made.rgb, rgb)
        np.testing.assert_array_equal(_inputs.classify(rgb[:, :, 0]).rgb[:, :, 2], rgb[:, :, 0])
        with tempfile.TemporaryDirectory() as folder, self.seeing.session(pot=200, picture_side=64) as s:
            s.append(rgb)
            n = s.seen
            s.append(rgb, t=2.5)
            self.assertGreater(s.seen, n)
            slots = s.slots()
            self.assertEqual(sorted(set(slots["modality"].tolist())), [0, 1, 2])
            self.assertEqual(slots["t_ms"].max(), 2500)
            self.assertIn("<image>", s.remembers("0%:100%").text)
            with self.assertRaises(weir.WeirError):
                s.append(Path(folder) / "none.png")
            with self.assertRaises(ValueError):
                s.append(np.zeros((0, 4, 3), np.uint8))
            with self.assertRaises(ValueError):
                s.append(np.full((4, 4, 3), 2.0))
            with self.assertRaises(weir.UnsupportedError):
                s.append(np.zeros((8, 2000, 3), np.uint8))  # larger than picture_side
        with self.model.session(pot=96) as s, self.assertRaises(weir.InvalidArgumentError):
            s.append(rgb)

    def test_answers_end_as_told(self):
        with self.model.session(pot=96) as s:
            s.append("the man")
            whole = s.fork().ask("who?", max_tokens=30, **GREEDY).read()
            for stop in (whole[8:11], [whole[8:11], "nowhere to be found"]):
                answer = s.fork().ask("who?", max_tokens=30, stop=stop, **GREEDY)
                self.assertEqual(answer.read(), whole[: whole.index(whole[8:11])])
                self.assertEqual(answer.end, "stop_text")
            left = s.ask("who?", max_tokens=30, **GREEDY)
            first = next(left)
            self.assertTrue(whole.startswith(first))
            left.close()
            left.close()
            self.assertEqual((left.end, list(left)), ("stopped", []))
            other = s.ask("and?", max_tokens=30, **GREEDY)
            next(other)
            s.append("the sea")  # ends it
            self.assertEqual((other.end, list(other)), ("stopped", []))
            never = s.ask("and?")
            never.close()
            self.assertEqual((never.end, never.text), ("stopped", ""))
            for bad in ({"max_tokens": -1}, {"top_p": 2.0}, {"choices": []}, {"choices": "ab"}, {"regex": "a\0"}):
                with self.subTest(bad=bad), self.assertRaises(ValueError):
                    s.ask("and?", **bad).read()
            with self.assertRaises(TypeError):
                s.ask("and?", temprature=1)
            with self.assertRaises(TypeError):
                s.ask("and?", schema=3)
            self.assertIsInstance(s.ask("and?", max_tokens=3).read(), str)

    def test_forms(self):
        class Colour(enum.Enum):
            RED = "red"
            BLUE = "blue"

        @dataclasses.dataclass
        class Inner:
            on: bool

        @dataclasses.dataclass
        class Event:
            colour: Colour
            kind: Literal["a", "b"]
            inner: Inner
            maybe: Inner | None

        with self.model.session(pot=200) as s:
            self.assertIn(s.ask("?", choices=["the man", "the sea"], temperature=0).read(), ["the man", "the sea"])
            self.assertRegex(s.ask("?", regex="[ab]{3}", temperature=0).read(), "^[ab]{3}$")
            self.assertEqual(s.ask("?", grammar='root ::= "sea"').read(), "sea")
            self.assertEqual(s.ask("?", schema={"enum": [7]}).value(), 7)
            self.assertEqual(s.ask("?", schema='{"enum": ["x"]}').value(), "x")
            event = s.ask("?", schema=Event, temperature=0, max_tokens=300).value()
            self.assertIsInstance(event, Event)
            self.assertIsInstance(event.colour, Colour)
            self.assertIsInstance(event.inner.on, bool)
            with self.assertRaises(ValueError):
                s.ask("?", schema=Event, max_tokens=2).value()
            with self.assertRaises(TypeError):
                s.ask("?").value()
            with self.assertRaises(weir.InvalidArgumentError):
                s.ask("?", regex="a", grammar='root ::= "a"').read()

    @unittest.skipIf(
        "san.so" in os.environ.get("LD_PRELOAD", ""), "a decoder with a sanitizer needs more than its memory"
    )
    def test_decoders_are_confined_unless_it_is_said_otherwise(self):
        if ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 1:  # landlock_create_ruleset: its version
            self.skipTest("this kernel has no Landlock")
        with tempfile.TemporaryDirectory() as folder:
            picture, left = Path(folder) / "a.bin", Path(folder) / "left"
            picture.write_bytes(b"no picture")
            for name in ("ffmpeg", "ffprobe"):
                (Path(folder) / name).write_text(f"#!/bin/sh\necho x >{left}\n")
                (Path(folder) / name).chmod(0o755)
            with mock.patch.dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"):
                for confined in (True, False):
                    with self.seeing.session(pot=96, picture_side=64, media_sandbox=confined) as s:
                        with self.assertRaises(weir.WeirError):
                            s.append(picture)
                    self.assertEqual(left.exists(), not confined)

    def test_memory_for_forms_is_the_sessions(self):
        with self.model.session(pot=96, form_bytes=0) as none, self.model.session(pot=96) as s:
            self.assertEqual(s.counters().bytes, none.counters().bytes + (16 << 20))
            with self.assertRaisesRegex(weir.InvalidArgumentError, "keeps no memory for forms"):
                none.ask("?", regex="a").read()
            none.ask("?", max_tokens=1).read()
            with self.assertRaisesRegex(weir.InvalidArgumentError, "with 16777216 kept for forms"):
                s.ask("?", regex="a" * 50_000).read()
            with self.assertRaisesRegex(weir.InvalidArgumentError, "the form is too large"):
                s.ask("?", grammar="root ::= " + '"' + "ab" * 20_000 + '"').read()
            self.assertEqual(s.ask("?", regex="a{3}", temperature=0).read(), "aaa")
            with s.fork() as f:
                self.assertEqual(f.counters().bytes, s.counters().bytes)
                self.assertEqual(f.ask("?", regex="a{3}", temperature=0).read(), "aaa")
        with self.assertRaisesRegex(weir.OverBudgetError, "the smallest that works is"):
            self.model.session(budget=8 << 20)
        with self.assertRaises(weir.InvalidArgumentError):
            self.model.session(pot=96, form_bytes=1000)

    def test_likelihoods_and_logits(self):
        ids = self.model.encode("the man and the sea")
        with self.model.session(pot=96, likelihoods=True) as s, self.model.session(pot=96) as plain:
            with self.assertRaises(weir.InvalidArgumentError):
                s.logits()
            nll = s.score(ids)
            self.assertEqual((nll.shape, nll.dtype, nll[0]), (ids.shape, np.float32, 0))
            plain.read(ids[:-1])
            logits = plain.logits().astype(np.float64)
            self.assertAlmostEqual(np.log(np.exp(logits).sum()) - logits[ids[-1]], nll[-1], places=3)
            with self.assertRaises(weir.InvalidArgumentError):
                plain.score(ids)

    # ---- files and copies

    def test_a_saved_session_goes_on(self):
        with tempfile.TemporaryDirectory() as folder, self.model.session(pot=96) as s:
            s.append(support.WORDS * 4)
            s.save(Path(folder) / "a.weir")
            self.assertEqual(os.listdir(folder), ["a.weir"])
            fork = s.fork()
            wanted = s.ask("who?", max_tokens=9, **GREEDY).read()
            self.assertEqual(fork.ask("who?", max_tokens=9, **GREEDY).read(), wanted)
            s.load(Path(folder) / "a.weir")
            self.assertEqual(s.ask("who?", max_tokens=9, **GREEDY).read(), wanted)
            with self.assertRaises(weir.InvalidArgumentError):
                s.restore(b"no session")
            with self.assertRaises(FileNotFoundError):
                s.load(Path(folder) / "b.weir")
            with self.assertRaises(OSError):
                s.save(Path(folder) / "none" / "a.weir")
            s.reset()
            self.assertEqual(s.counters(), dataclasses.replace(s.counters(), seen=0, kept=0, dropped=0, selections=0))

    def test_traces(self):
        with tempfile.TemporaryDirectory() as folder, self.model.session(pot=96) as s:
            path = Path(folder) / "t.jsonl"
            with s.trace(path) as trace:
                with self.assertRaises(weir.InvalidArgumentError):
                    s.trace(path)
                s.append(support.WORDS * 8)
            self.assertEqual(trace.path, path)
            kinds = [event["type"] for event in trace.events()]
            self.assertEqual((kinds[0], kinds[-1]), ("trace", "end"))
            self.assertIn("select", kinds)
            unnamed = s.trace()
            s.append(support.WORDS)
            last = list(unnamed.events())[-1]
            self.assertEqual(last["seen"], s.seen)
            unnamed.path.unlink()
            with self.assertRaises(weir.IoError):
                s.trace(Path(folder) / "none" / "t.jsonl")

    def test_remembers(self):
        with self.model.session(pot=64, policy="streaming_llm:sinks=2") as s:
            s.read(support.ids(300))
            end = s.remembers("99%")
            self.assertEqual((end.begin, end.end, end.share), (297, 300, 1.0))
            self.assertNotIn("[...", str(end))
            gone = s.remembers("100:104")
            self.assertEqual((gone.n_held, gone.text), (0, "[... 4 tokens ...]"))
            self.assertEqual(s.remembers("25%:50%").end, 150)
            self.assertEqual(s.remembers((0, 2)).n_held, 2)
            self.assertEqual(s.remembers("1").n_held, 1)
            self.assertEqual(s.remembers(":").end, 300)
            for bad in ("", "x", "300", "9:3", "50%:20%", (5, 5), "120%"):
                with self.subTest(bad=bad), self.assertRaises(ValueError):
                    s.remembers(bad)

    def test_recall(self):
        with self.model.session(pot=64, recall="words:passages=1,gate=0", recall_tokens=120) as s:
            s.append("The harpoon lay in the attic. ")
            for _ in range(40):
                s.append("the man and the sea, ")
            s.ask("Where in the attic is the harpoon?", max_tokens=4, **GREEDY).read()
            (passage,) = s.passages()
            self.assertIn("The harpoon lay in the attic.", passage.text)
            s.flush()
            with self.assertRaises(ValueError):
                s.copy_archive("")
            fork = s.fork()
            fork.ask("Where in the attic is the harpoon?", max_tokens=4, **GREEDY).read()
            self.assertEqual(len(fork.passages()), 1)

    # ---- errors and misuse

    def test_errors_are_of_one_family(self):
        with self.assertRaises(weir.NotFoundError) as caught:
            weir.Model("/there/is/none.gguf")
        self.assertIsInstance(caught.exception, weir.WeirError)
        self.assertEqual(caught.exception.status, 2)
        self.assertNotIn("\n", str(caught.exception))
        with self.assertRaises(weir.NotFoundError):
            self.model.session(policy="nobody")
        with self.assertRaises(weir.OverBudgetError):
            self.model.session(budget=10)
        with self.assertRaises(weir.WeirError):
            weir.Model(__file__)
        with self.assertRaises(TypeError):
            self.model.session(policy=3)
        with self.assertRaises(TypeError):
            self.model.session(policy=Newest)  # the class, not an object
        with self.assertRaises(ValueError):
            weir.Model("a\0b")
        with self.model.session(pot=64, never_forget=True) as s, self.assertRaises(weir.OverBudgetError):
            s.append(support.WORDS * 9)

    def test_numbers_are_not_cut_off(self):
        """ctypes would make 64 of 2**32 + 64 without a word."""
        for bad in (2**32 + 64, -1, 2**31):
            for name in ("pot", "chunk", "picture_side", "recall_tokens"):
                with self.subTest(name=name, bad=bad), self.assertRaises(ValueError):
                    self.model.session(**{"pot": 64, name: bad})
        for bad in ("64", 64.0, None):
            with self.subTest(bad=bad), self.assertRaises(TypeError):
                self.model.session(pot=bad)
        with self.assertRaises(ValueError):
            weir.Model(support.MODEL, threads=2**32 + 1)
        with self.model.session(pot=64) as s:
            s.append("the man")
            for bad in ({"max_tokens": 2**64 + 1}, {"seed": -1}, {"top_k": 2**32}):
                with self.subTest(bad=bad), self.assertRaises(ValueError):
                    s.ask("who?", **bad)
            with self.assertRaises(TypeError):
                s.ask("who?", temperature="hot")
            with self.assertRaises(ValueError):
                s.slots(2**32)
            with self.assertRaises(TypeError):
                s.slots("0")
            with self.assertRaises(TypeError):
                s.append("a", t="now")

    def test_what_is_closed_raises(self):
        model = weir.Model(support.MODEL, threads=1)
        s, other = model.session(pot=96), model.session(pot=96)
        answer = s.ask("who?", max_tokens=9)
        next(answer)
        trace = s.trace()
        s.close()
        s.close()
        trace.end()
        trace.path.unlink()
        calls = [
            lambda: s.append("a"),
            lambda: s.read([1]),
            lambda: s.ask("a"),
            lambda: s.generate(),
            lambda: next(answer),
            lambda: s.seen,
            lambda: s.slots(),
            lambda: s.fork(),
            lambda: s.state(),
            lambda: s.restore(b""),
            lambda: s.reset(),
            lambda: s.logits(),
            lambda: s.remembers("1%"),
            lambda: s.trace("x"),
            lambda: s.passages(),
            lambda: s.flush(),
            lambda: s.watch("x"),
        ]
        for i, call in enumerate(calls):
            with self.subTest(i=i), self.assertRaises(weir.ClosedError):
                call()
        model.close()
        for call in (
            lambda: other.append("a"),
            lambda: model.encode("a"),
            lambda: model.session(pot=9),
            lambda: other.seen,
        ):
            with self.assertRaises(weir.ClosedError):
                call()
        self.assertIn("closed", repr(model) + repr(s))

    def test_nothing_is_pickled_or_copied(self):
        with self.model.session(pot=96) as s:
            for x in (self.model, s):
                for copier in (pickle.dumps, copy.copy, copy.deepcopy):
                    with self.assertRaises(TypeError):
                        copier(x)

    def test_a_forked_process_cannot_use_them(self):
        with self.model.session(pot=96) as s:
            s.append("the man")
            child = os.fork()
            if child == 0:
                code = 0
                for call in (lambda: s.append("a"), lambda: self.model.encode("a"), lambda: self.model.session(pot=9)):
                    try:
                        call()
                        code = 1
                    except weir.ClosedError:
                        pass
                s.close()
                os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            s.append("and the sea")

    def test_a_process_forked_in_the_middle_of_a_call(self):
        """Another thread's turn never ends in the child: nobody may wait for it there."""
        held, done = threading.Event(), threading.Event()

        def hold():
            with self.model._turn:
                held.set()
                done.wait(60)

        with self.model.session(pot=96) as s:
            answer = s.ask("who?", max_tokens=9)
            next(answer)
            thread = threading.Thread(target=hold)
            thread.start()
            held.wait(60)
            child = os.fork()
            if child == 0:
                signal.alarm(20)  # a wait ends the child, and the test fails
                code = 0
                trace = weir.Trace(Path("x"), s._end_trace)
                for call in (
                    lambda: self.model.session(pot=9),
                    lambda: s.append("a"),
                    lambda: s.fork(),
                    lambda: next(answer),
                    answer.close,
                    trace.end,
                ):
                    try:
                        call()
                        code = 1
                    except weir.ClosedError:
                        pass
                s.close()
                os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            done.set()
            thread.join()

    @unittest.skipIf(
        "tsan.so" in os.environ.get("LD_PRELOAD", ""), "ThreadSanitizer knows no threads of such a process"
    )
    def test_a_forked_process_has_models_of_its_own(self):
        with weir.Model(support.MODEL, threads=2) as model, model.session(pot=96) as s:
            s.append(support.WORDS * 4)
            wanted = s.fork().ask("who?", max_tokens=6, **GREEDY).read()
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                code = 1
                with weir.Model(support.MODEL, threads=2) as own, own.session(pot=96) as mine:
                    mine.append(support.WORDS * 4)
                    code = 0 if mine.ask("who?", max_tokens=6, **GREEDY).read() == wanted else 2
                os._exit(code)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_packed_weights_are_mapped_by_the_next_model(self):
        answers, mapped = [], []
        with tempfile.TemporaryDirectory() as folder:
            for _ in range(2):
                with weir.Model(support.MODEL, threads=2, packed=Path(folder) / "packed") as model:
                    mapped.append(model.weights_mapped)
                    with model.session(pot=96) as s:
                        s.append(support.WORDS)
                        answers.append(s.ask("who?", max_tokens=6, **GREEDY).read())
        self.assertEqual(mapped, [False, True])
        self.assertEqual(answers[0], answers[1])

    def test_what_is_dropped_waits_for_the_turn(self):
        """An object's end may come in the middle of another session's call."""
        from weir._handle import Handle, Turn

        turn, closed = Turn(), []
        with turn:
            Handle(7, closed.append, None, turn)
            self.assertEqual(closed, [])
            thread = threading.Thread(target=lambda: Handle(8, closed.append, None, turn))
            thread.start()
            thread.join(20)
            self.assertFalse(thread.is_alive())
            self.assertEqual(closed, [])
        self.assertEqual(closed, [7, 8])
        Handle(9, closed.append, None, turn)
        self.assertEqual(closed, [7, 8, 9])

    def test_sessions_dropped_by_policies_and_threads(self):
        dropped = []

        class Drops(Newest):
            def select(self, view, n_keep):
                dropped.clear()  # the last reference to another session
                return super().select(view, n_keep)

        with self.model.session(pot=64, policy=Drops()) as s:
            stop = threading.Event()

            def churn():
                while not stop.is_set():
                    self.model.session(pot=64)  # and gone

            thread = threading.Thread(target=churn)
            thread.start()
            try:
                for _ in range(20):
                    dropped.append(self.model.session(pot=64))
                    s.read(support.ids(100))
            finally:
                stop.set()
                thread.join()
            self.assertEqual(dropped, [])

    @unittest.skipIf("san.so" in os.environ.get("LD_PRELOAD", ""), "a sanitizer keeps memory that was given back")
    def test_sessions_leave_nothing(self):
        def round_trip():
            with self.model.session(pot=96, policy=Newest()) as s:
                s.read(support.ids(120))
                s.fork()

        for _ in range(60):
            round_trip()
        gc.collect()
        before = support.resident_kib()
        for _ in range(400):
            round_trip()
        gc.collect()
        self.assertLess(support.resident_kib() - before, 4000)  # a session alone has 230 KiB

    def test_a_policy_that_keeps_its_views_is_collected(self):
        class Keeps(Newest):
            def select(self, view, n_keep):
                self.kept = [view, view.seq, view.scores]
                return super().select(view, n_keep)

        def use(close):
            policy = Keeps()
            s = self.model.session(pot=96, policy=policy)
            s.when("Who? => the man", lambda event: s.counters())
            s.read(support.ids(120))
            seen = policy.kept[1].copy()
            if close:
                s.close()
                self.assertEqual(policy.kept[1].tolist(), seen.tolist())  # the memory is still there
            return weakref.ref(policy), weakref.ref(policy.kept[0]._owner)

        for close in (False, True):
            left = use(close)
            gc.collect()
            self.assertEqual([ref() for ref in left], [None, None])

    # ---- threads, interrupts, asyncio

    def test_threads_take_turns(self):
        with self.model.session(pot=96) as one, self.model.session(pot=96) as two:
            failed = []

            def work(session):
                try:
                    for _ in range(30):
                        session.append(support.WORDS)
                        session.ask("who?", max_tokens=3).read()
                except BaseException as error:
                    failed.append(error)

            threads = [threading.Thread(target=work, args=(s,)) for s in (one, two, one, two)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failed, [])

    def test_stop_ends_a_long_call_of_another_thread(self):
        with self.model.session(pot=96) as s:
            ids = np.array(support.ids(2_000_000), np.int32)
            raised = []

            def read():
                try:
                    s.read(ids)
                except weir.CancelledError as error:
                    raised.append(error)

            thread = threading.Thread(target=read)
            thread.start()
            time.sleep(0.05)
            s.stop()
            thread.join(20)
            self.assertFalse(thread.is_alive())
            self.assertEqual(len(raised), 1)
            self.assertLess(s.seen, len(ids))
            s.append("the man")

    def test_ctrl_c_ends_a_long_call(self):
        code = (
            "import sys, os, signal, threading, time\n"
            "import numpy as np, weir\n"
            f"s = weir.Model({str(support.MODEL)!r}, threads=1).session(pot=96)\n"
            "ids = np.full(3_000_000, 7, np.int32)\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # shells ignore it in the background
            "threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\n"
            "start = time.monotonic()\n"
            "try:\n    s.read(ids)\n    print('read all')\n"
            "except KeyboardInterrupt:\n    print('interrupted', s.seen < len(ids), time.monotonic() - start < 5)\n"
            "s.append('the man')\n"
            "try:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(1)\n"
            "except KeyboardInterrupt:\n    print('as before')\n"
        )
        out = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, timeout=240)
        self.assertEqual((out.stdout, out.stderr), ("interrupted True True\nas before\n", ""))

    def test_asyncio(self):
        async def both():
            with self.model.session(pot=96) as one, self.model.session(pot=96) as two:
                await asyncio.gather(one.append_async(support.WORDS * 9), two.append_async("the sea"))

                async def answer(session):
                    return "".join([piece async for piece in session.ask("who?", max_tokens=8, **GREEDY)])

                texts = await asyncio.gather(answer(one), answer(two))
                task = asyncio.create_task(one.append_async(np.array(support.ids(2_000_000), np.int32)))
                await asyncio.sleep(0.05)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    texts.append("cancelled")
                await asyncio.to_thread(one.append, "the man")  # its turn comes
                return texts, one.seen

        (first, second, last), seen = asyncio.run(both())
        self.assertTrue(first and second)
        self.assertEqual(last, "cancelled")
        self.assertLess(seen, 2_000_000)

    # ---- policies

    def test_a_policys_exception_is_the_calls(self):
        class Fails(Newest):
            error = None

            def select(self, view, n_keep):
                if self.error is not None:
                    raise self.error
                return super().select(view, n_keep)

        policy = Fails()
        with self.model.session(pot=64, policy=policy) as s:
            s.read(support.ids(60))
            held = s.slots()
            for error in (ZeroDivisionError("mine"), KeyboardInterrupt(), MemoryError()):
                policy.error = error
                with self.assertRaises(type(error)) as caught:
                    s.read(support.ids(30))
                self.assertIs(caught.exception, error)
                np.testing.assert_array_equal(s.slots(), held)
            policy.error = None
            s.read(support.ids(30))
            self.assertGreater(s.dropped, 0)
            policy.error = ValueError("in an answer")
            with self.assertRaisesRegex(ValueError, "in an answer"):
                s.generate(max_tokens=60, **GREEDY).read()
            policy.error = None
            s.generate(max_tokens=60, **GREEDY).read()

    def test_wrong_answers_of_policies(self):
        class Wrong(weir.Policy):
            answer = None

            def select(self, view, n_keep):
                return self.answer(view, n_keep)

        policy = Wrong()
        wrong = [
            (weir.InvalidArgumentError, lambda v, n: range(n - 1)),
            (weir.InvalidArgumentError, lambda v, n: range(n + 1)),
            (weir.InvalidArgumentError, lambda v, n: [0] * n),
            (weir.InvalidArgumentError, lambda v, n: []),
            (weir.InvalidArgumentError, lambda v, n: range(v.n_slots - n, v.n_slots)),  # drops the pinned one
            (weir.InvalidArgumentError, lambda v, n: np.ones(v.n_slots, bool)),
            (ValueError, lambda v, n: [v.n_slots]),
            (ValueError, lambda v, n: [-1]),
            (ValueError, lambda v, n: list(range(v.n_slots)) * 2),
            (ValueError, lambda v, n: np.ones(3, bool)),
            (TypeError, lambda v, n: [0.5]),
            (TypeError, lambda v, n: None),
            (TypeError, lambda v, n: "abc"),
            (ValueError, lambda v, n: weir.fill(v, n, [1, 2])),
            (ValueError, lambda v, n: v.seq.sort()),  # read-only
            (weir.InvalidArgumentError, lambda v, n: s.append("a")),  # in the middle of a call
        ]
        with self.model.session(pot=64, policy=policy) as s:
            s.read(support.ids(1), pin=True)
            s.read(support.ids(59))
            held = s.slots()
            for i, (kind, answer) in enumerate(wrong):
                policy.answer = answer
                with self.subTest(i=i), self.assertRaises(kind):
                    s.read(support.ids(30))
                np.testing.assert_array_equal(s.slots(), held)
            policy.answer = lambda v, n: list(reversed(range(n)))  # any order
            s.read(support.ids(30))

    def test_views_outlive_their_session(self):
        kept = []

        class Keeps(Newest):
            needs = weir.Needs(share="head", rows="all", nll=True)

            def select(self, view, n_keep):
                kept.extend([view.seq, view.scores, view.nll[2:], view])
                return super().select(view, n_keep)

        with weir.Model(support.MODEL, threads=1) as model, model.session(pot=64, policy=Keeps()) as s:
            s.read(support.ids(200))
        del s, model
        gc.collect()
        self.assertGreater(len(kept), 8)
        self.assertTrue(all(len(x) > 30 for x in kept if isinstance(x, np.ndarray)))
        self.assertEqual(kept[0].dtype, np.int64)
        self.assertGreater(sum(float(x.sum()) for x in kept if isinstance(x, np.ndarray)), 0)  # the memory is there
        self.assertFalse(kept[0].flags.writeable)

    def test_views_outlive_a_reset(self):
        kept = []

        class Keeps(Newest):
            def select(self, view, n_keep):
                kept.append((view, view.layer, view.n_slots))
                return super().select(view, n_keep)

        with self.model.session(pot=64, policy=Keeps()) as s:
            s.read(support.ids(100))
            s.reset()
            s.read(support.ids(100))
        for view, layer, n_slots in kept:
            self.assertEqual((view.layer, view.n_slots), (layer, n_slots))

    def test_what_target_raises_is_raised(self):
        class Fails(Newest):
            wrong: type

            def target(self, n_slots, n_coming):
                if self.wrong is TypeError:
                    return None
                if self.wrong is ValueError:
                    return 1 << 32
                raise self.wrong

        for wrong in (ZeroDivisionError, KeyboardInterrupt, TypeError, ValueError):
            policy = Fails()
            policy.wrong = wrong
            with self.model.session(pot=64, policy=policy) as s, self.assertRaises(wrong):
                s.read(support.ids(200))

    def test_stop_ends_an_answer(self):
        with self.model.session(pot=96) as s:
            s.append("the man and the sea")
            answer = s.ask("what?", max_tokens=50, ignore_end=True)
            next(answer)
            s.stop()
            self.assertEqual(list(answer), [])
            self.assertEqual(answer.end, "stopped")
            self.assertLess(answer.n_tokens, 50)
            s.append("and the boat")

    def test_targets_and_declarations(self):
        class Halves(Newest):
            calls = 0

            def target(self, n_slots, n_coming):
                self.calls += 1
                return min(n_slots - n_coming, n_slots // 2)

        policy = Halves()
        with self.model.session(pot=64, policy=policy) as s:
            s.read(support.ids(200))
            self.assertGreater(policy.calls, 2)
            self.assertLessEqual(s.counters().selections, 6)
            self.assertEqual(s.policy, "Halves")
        for needs in (
            weir.Needs(share="nobody"),
            weir.Needs(rows="last"),
            weir.Needs(share="layer", rows="probe"),
            weir.Needs(vector="key_diff"),
            weir.Needs(min_tokens=1000),
            weir.Needs(like="full"),
            {"share": "all"},
        ):
            policy = Newest()
            policy.needs = needs
            with self.subTest(needs=needs), self.assertRaises((ValueError, TypeError)):
                self.model.session(pot=64, policy=policy)

    def test_the_program_is_found_or_missed(self):
        run = [sys.executable, "-B", "-m", "weir", "--version"]
        inside = Path(weir.__file__).parent / "_bin" / "weir"
        beside = Path(os.environ.get("WEIR_LIBRARY", "")).absolute().parent / "weir"
        out = subprocess.run(run, capture_output=True, text=True, timeout=60)
        if inside.is_file() or beside.is_file():
            self.assertEqual(out.stdout.strip(), f"weir {weir.__version__}")
        if not inside.is_file():
            with tempfile.TemporaryDirectory() as folder:
                library = Path(folder) / "libweir.so"
                library.symlink_to(Path(os.environ["WEIR_LIBRARY"]).absolute())
                env = {**os.environ, "WEIR_LIBRARY": str(library)}
                env.pop("WEIR_PROGRAM", None)
                out = subprocess.run(run, capture_output=True, text=True, timeout=60, env=env)
                self.assertIn("no program in it", out.stderr)
                self.assertNotEqual(out.returncode, 0)

    def test_every_public_name_says_what_it_is(self):
        from weir import kvpress, lmms_eval, plots

        public = {name: getattr(weir, name) for name in weir.__all__ if name not in ("PotCache", "SLOT", "__version__")}
        for module in (kvpress, lmms_eval, plots):
            public |= {n: x for n, x in vars(module).items() if getattr(x, "__module__", "") == module.__name__}
        for name, thing in public.items():
            if name.startswith("_"):
                continue
            self.assertTrue((thing.__doc__ or "").strip(), name)
            for part, value in vars(thing).items() if isinstance(thing, type) else ():
                if not part.startswith("_") and (callable(value) or isinstance(value, property)):
                    self.assertTrue((value.__doc__ or "").strip(), f"{name}.{part}")

    def test_json_of_a_schema(self):
        from weir._schema import schema_text

        @dataclasses.dataclass
        class Point:
            x: int
            names: list[str]

        text, value = schema_text(Point)
        self.assertEqual(
            json.loads(text)["properties"],
            {"x": {"type": "integer"}, "names": {"type": "array", "items": {"type": "string"}}},
        )
        self.assertEqual(value('{"x": 3, "names": ["a"]}'), Point(3, ["a"]))

        for bad in (object, set[int], dict[int, str], list[object], int | object, complex):
            with self.subTest(bad=bad), self.assertRaises(TypeError):
                schema_text(dataclasses.make_dataclass("Bad", [("what", bad)]))

    def test_values_of_a_schema(self):
        """What JSON says becomes what the class says, in unions, too."""
        from weir._schema import schema_text

        class Colour(enum.Enum):
            RED = "red"

        class Level(enum.IntEnum):
            LOW = 1

        @dataclasses.dataclass
        class Point:
            x: float

        @dataclasses.dataclass
        class Named:
            x: str

        cases = [
            (Colour | None, "red", Colour.RED),
            (Colour | None, None, None),
            (list[Point] | None, [{"x": 1.5}], [Point(1.5)]),
            (Point | Named, {"x": "a"}, Named("a")),
            (Named | Point, {"x": 2}, Point(2.0)),
            (list[Point | Colour], [{"x": 1}, "red"], [Point(1.0), Colour.RED]),
            (float, 3, 3.0),
            (float | int, 3, 3),
            (int | float, 3.5, 3.5),
            (bool | int, 1, 1),
            (Literal[1, "a", True], True, True),
            (Literal[Colour.RED, None], "red", Colour.RED),
            (Level | str, 1, Level.LOW),
            (dict[str, Point], {"a": {"x": 0}}, {"a": Point(0.0)}),
            (tuple[int, Point], [1, {"x": 0}], (1, Point(0.0))),
            (tuple[Colour, ...], ["red", "red"], (Colour.RED, Colour.RED)),
            (list, [1, "a"], [1, "a"]),
        ]
        for kind, found, wanted in cases:
            with self.subTest(kind=kind, found=found):
                holder = dataclasses.make_dataclass("Holder", [("what", kind)])
                text, value = schema_text(holder)
                got = value(json.dumps({"what": found})).what
                self.assertEqual((got, type(got)), (wanted, type(wanted)))
                with self.model.session(pot=300) as s:  # and the library holds answers to it
                    try:
                        s.ask("?", schema=holder, temperature=0, max_tokens=200).value()
                    except ValueError as error:
                        self.assertIn("cut short", str(error))
        for kind, found in ((Colour, "blue"), (Point | None, {"y": 1}), (int, True), (tuple[int, int], [1])):
            _, value = schema_text(dataclasses.make_dataclass("Holder", [("what", kind)]))
            with self.subTest(kind=kind), self.assertRaises(ValueError):
                value(json.dumps({"what": found}))

    def test_a_class_that_has_itself_in_it(self):
        from weir._schema import schema_text

        tree = dataclasses.make_dataclass("Tree", [("value", int), ("left", "Tree | None"), ("rest", "list[Tree]")])
        text, value = schema_text(tree)
        leaf = {"value": 1, "left": None, "rest": []}
        made = value(json.dumps({"value": 2, "left": leaf, "rest": [leaf, leaf]}))
        self.assertEqual(made, tree(2, tree(1, None, []), [tree(1, None, [])] * 2))
        with self.model.session(pot=300) as s:
            answer = s.ask("?", schema=tree, temperature=0, max_tokens=120)
            answer.read()
            self.assertTrue(answer.text.startswith("{"), answer.text)
        lost = dataclasses.make_dataclass("Lost", [("what", "Nowhere")])
        with self.assertRaisesRegex(TypeError, "Nowhere"):
            schema_text(lost)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
