# SPDX-License-Identifier: Apache-2.0
"""Sessions: endless streams in pots of a fixed size."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import itertools
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from . import _library as lib
from ._handle import Handle, array_at, ctrl_c, refuse_pickle
from ._inputs import Ids, PictureFile, Pixels, Text, c_text, classify, path_bytes, real, token_ids, utf8, whole
from .answer import Answer, AnswerOptions
from .errors import CancelledError, ClosedError, WeirError, check
from .events import Callback, Listener, RuleCost, WatchedRule, rule_at
from .policy import SLOT, Policy, Rule
from .trace import Trace

if TYPE_CHECKING:
    from .model import Model


@dataclass(frozen=True)
class Counters:
    """seen: tokens read or generated so far; kept: of these, held in at least one layer and head; dropped: the rest;
    selections: times the pot had to shrink; bytes: memory of the session, constant for its lifetime; guessed: tokens
    that were read in advance; guessed_right: of these, those that came."""

    seen: int
    kept: int
    dropped: int
    selections: int
    bytes: int
    guessed: int = 0
    guessed_right: int = 0


@dataclass(frozen=True)
class Remembered:
    """What is held of a part of the stream, tokens begin to before end: `text`, with "[... 12 tokens ...]" where some
    are gone. n_held of them are held in at least one layer and head."""

    begin: int
    end: int
    n_held: int
    text: str

    @property
    def share(self) -> float:
        """0 to 1."""
        return self.n_held / (self.end - self.begin)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Passage:
    """Brought back for a question: tokens seq to before end, stream time in ms, how well it matches (0 to 1), text."""

    seq: int
    end: int
    t_ms: int
    score: float
    text: str


class Session:
    """One endless stream, read as a chat: append() adds to the user's turn, ask() ends it with a question. read() and
    generate() do without the model's chat template; do not mix the two. Made by Model.session().

    Any thread may use it, one at a time: the others wait. Ctrl-C ends a call between two chunks; what it read stays
    read.
    """

    _handle: Handle | None = None  # also where __init__ failed

    def __init__(self, model: Model, **options: Any) -> None:
        policy = options["policy"]
        rule: Rule | None = None
        if isinstance(policy, Policy):
            rule = Rule(policy)
        elif not isinstance(policy, str):
            raise TypeError(f"policy must be a name or a weir.Policy object, not {policy!r}")
        recall_dir = options["recall_dir"]
        types = options["cache_type"]
        k_type, v_type = (types, types) if isinstance(types, str) else types
        draft_most = options["draft_most"]
        c = lib.SessionOptions(
            policy=c_text(policy, "policy") if rule is None else None,
            pot_tokens=whole(options["pot"], "pot"),
            budget_bytes=whole(options["budget"], "budget", bits=64),
            chunk_tokens=whole(options["chunk"], "chunk"),
            never_forget=bool(options["never_forget"]),
            prune=c_text(options["prune"], "prune"),
            picture_side=whole(options["picture_side"], "picture_side"),
            recall=c_text(options["recall"], "recall"),
            recall_dir=None if recall_dir is None else path_bytes(recall_dir, "recall_dir"),
            recall_disk_bytes=whole(options["recall_disk"], "recall_disk", bits=64),
            recall_tokens=whole(options["recall_tokens"], "recall_tokens"),
            likelihoods=bool(options["likelihoods"]),
            k_type=c_text(k_type, "cache_type"),
            v_type=c_text(v_type, "cache_type"),
            rule_tokens=whole(options["rule_tokens"], "rule_tokens"),
            lookup=whole(options["lookup"], "lookup"),
            form_bytes=whole(options["form_bytes"], "form_bytes", bits=64),
            no_media_sandbox=not options["media_sandbox"],
            draft_most=0 if draft_most is None else whole(draft_most, "draft_most") or -1,
        )
        if rule is not None:
            c.own_policy = ctypes.pointer(rule.c)
        out = ctypes.c_void_p()
        handle = model._open_handle()  # before its turn, which a process that was forked may wait for in vain
        with model._turn:
            check(lib.LIB.weir_session_open(handle.pointer, ctypes.byref(c), ctypes.byref(out)))
        self._become(model, handle, rule, {}, out.value)
        system, pin = options["system"], options["pin"]
        try:
            if system is not None:
                data = utf8(system, "system")
                self._read(lambda pointer: lib.LIB.weir_session_begin_chat(pointer, data, len(data), lib.PINNED))
            if pin is not None:
                self.append(utf8(pin, "pin"), pin=True)
        except BaseException:
            self.close()
            raise

    def _become(
        self,
        model: Model,
        of: Handle,
        rule: Rule | None,
        callbacks: dict[tuple[str, str], Callback],
        pointer: int | None,
    ) -> None:
        assert pointer is not None
        self._model, self._rule, self._answer = model, rule, None
        stop = _Stop()
        self._stop = stop
        self._events = events = Listener(callbacks)
        progress, on_event = lib.ProgressCallback(stop.told), lib.EventCallback(events.told)
        # What the C session calls in a call of this one, and never else. Its memory does not hold them: a policy may
        # keep arrays that show it, and through those the garbage collector does not see.
        self._callbacks = progress, on_event
        self._handle = Handle(pointer, lib.LIB.weir_session_close, of, model._turn)
        check(lib.LIB.weir_session_on_progress(pointer, progress, None))
        check(lib.LIB.weir_session_on_event(pointer, on_event, None))
        info = lib.SessionInfo()
        check(lib.LIB.weir_session_describe(pointer, ctypes.byref(info)))
        self.pot: int = info.pot_tokens
        self.chunk: int = info.chunk_tokens
        self.n_layers: int = info.n_layers
        self.n_kv_heads: int = info.n_kv_heads
        self.n_groups: int = info.n_groups
        self.policy: str = (info.policy or b"").decode("utf-8", "replace")

    _answer: Answer | None

    # ---- calls

    def _call(self, *, ends_answer: bool = False) -> _Call:
        """The C session, for one call at a time. A policy's exception is raised in place of the error that it caused.
        ends_answer: an answer that is being written ends here, as if it had been left."""
        return _Call(self, ends_answer)

    def _read(self, call: Callable[[int], int], number: int | None = None) -> None:
        """A call that reads, and may take long. number: of the call, where it was made earlier."""
        number = self._stop.new_call() if number is None else number
        with ctrl_c(self.stop), self._call(ends_answer=True) as pointer:
            if number <= self._stop.stopped:  # before it could begin
                raise CancelledError("stopped before anything was read")
            self._stop.running = number
            check(call(pointer))

    def _start(self, answer: Answer) -> None:
        options = ctypes.byref(answer._options.c)

        def begin(pointer: int) -> int:
            status: int = answer._begin((pointer, options))
            if status == 0:
                answer._begun = True
                self._answer = answer
            return status

        answer._number = self._stop.new_call()
        try:
            self._read(begin, answer._number)
        except BaseException:
            answer.end = answer.end or "stopped"
            raise

    def stop(self) -> None:
        """Ends a call that another thread has under way, between two chunks of what it reads: CancelledError there."""
        self._stop.stopped = self._stop.made

    # ---- chats

    def append(self, given: Any, *, t: float | None = None, pin: bool = False) -> None:
        """Reads into the user's turn: text (str, or bytes of UTF-8), token ids (any sequence or array of integers), or
        a picture (a path, a PIL image, or an array or tensor [height, width, 3] of uint8). t: its time in the stream,
        in seconds, which never runs backwards; a picture with a time is a frame of a video. pin: it is never forgotten.

        A text of any length is read. Rules (when()) are asked at its end, and callbacks called then. Errors: WeirError,
        TypeError, ValueError, and what a callback raises.
        """
        self._append(given, t, pin, self._stop.new_call())

    def _append(self, given: Any, t: float | None, pin: bool, number: int) -> None:
        try:
            self._take_in(given, t, pin, number)
        finally:
            self._events.deliver()  # of rules that were asked, whatever came then

    def _take_in(self, given: Any, t: float | None, pin: bool, number: int) -> None:
        t_ms = _milliseconds(t)
        flags = lib.PINNED if pin else 0
        x = classify(given)
        if isinstance(x, Pixels):
            rgb = x.rgb
            height, width = rgb.shape[:2]
            at = -1 if t is None else t_ms
            self._read(lambda p: lib.LIB.weir_session_see_pixels(p, rgb.ctypes.data, width, height, at, flags), number)
            return
        if t is not None:
            with self._call() as pointer:
                check(lib.LIB.weir_session_set_time(pointer, t_ms))
        if isinstance(x, Text):
            data = x.utf8
            self._read(lambda p: lib.LIB.weir_session_say(p, data, len(data), flags), number)
        elif isinstance(x, Ids):
            ids = x.ids
            self._read(lambda p: lib.LIB.weir_session_say_tokens(p, ids.ctypes.data, len(ids), flags), number)
        else:
            assert isinstance(x, PictureFile)
            path = x.path
            self._read(lambda p: lib.LIB.weir_session_see_file(p, path, flags), number)

    async def append_async(self, given: Any, *, t: float | None = None, pin: bool = False) -> None:
        """append() in a thread, callbacks of rules too. A task that is cancelled stops it between two chunks."""
        number = self._stop.new_call()  # here: the thread may begin after the task was cancelled
        try:
            await asyncio.to_thread(self._append, given, t, pin, number)
        except asyncio.CancelledError:
            self.stop()
            raise

    def watch(self, path: str | os.PathLike[str], *, fps: float = 1.0, pin: bool = False) -> int:
        """Reads a video file, `fps` frames of each second; returns the number of frames. Needs ffmpeg. Rules are asked
        after each frame, and callbacks called between two frames: they cannot use this model's sessions, and what one
        raises ends the reading."""
        name, n = path_bytes(path, "the video"), ctypes.c_int64()
        flags, rate = lib.PINNED if pin else 0, real(fps, "fps")
        events = self._events

        def see(pointer: int) -> int:
            events.at_once = True
            try:
                status: int = lib.LIB.weir_session_see_video(pointer, name, rate, flags, ctypes.byref(n))
            finally:
                events.at_once = False
            return status

        try:
            self._read(see)
        except WeirError:
            if error := events.take_error():
                raise error from None
            raise
        return n.value

    # ---- rules

    def when(
        self,
        when: str | bytes,
        callback: Callback,
        *,
        id: str | None = None,
        score: float = 3.0,
        odds: float = 1.5,
        hold: int = 2,
        learn: int = 8,
        cooldown: float = 0.0,
    ) -> str:
        """Watches the stream for something: a condition ("a parcel lies at the door"), or a question and the answer
        that counts ("What colour is the light? => red"). The model is asked aside after each append() and each frame of
        watch(), without a trace in the stream; callback(event) is called when it begins to hold and when it ceases.
        Returns the rule's id: `id`, or "r1", "r2", ...

        An event begins after `hold` checks in a row with a score of `score` and log-odds of `odds`, and ends after as
        many below half of that score. The first `learn` checks only teach the rule what is usual. cooldown: seconds of
        the stream after an event in which none begins.

        callback: called by the thread of the append(), after it: it may use the session. (In watch() it cannot.) What
        it raises, append() raises; what was given was read. A rule that restore() brought back takes the callback of a
        when() with the same words.

        Errors: InvalidArgumentError for a question that takes more tokens than the session's rule_tokens, an id that is
        taken, more than 64 rules; UnsupportedError where the vocabulary has no words for yes and no, and for encoders
        that read frames together; TypeError for a coroutine function.
        """
        if not callable(callback) or inspect.iscoroutinefunction(callback):
            raise TypeError("a callback is a function of an event, not a coroutine")
        data, events = utf8(when, "the rule"), self._events
        options = lib.RuleOptions(
            id=c_text(id, "id"),
            on=real(score, "score"),
            off=real(score, "score") / 2,
            least=real(odds, "odds"),
            n_begin=whole(hold, "hold"),
            n_end=whole(hold, "hold"),
            n_calibrate=whole(learn, "learn"),
            cooldown_ms=_milliseconds(cooldown),
        )
        names: list[str] = []

        def add(pointer: int) -> int:
            words = data.decode("utf-8", "replace").strip()
            for rule in _rules_of(pointer):
                if rule.when == words and id in (None, rule.id) and (rule.id, rule.when) not in events.callbacks:
                    events.callbacks[rule.id, rule.when] = callback
                    names.append(rule.id)
                    return 0
            status: int = lib.LIB.weir_session_add_rule(pointer, data, len(data), ctypes.byref(options))
            if status == 0:
                rule = _rules_of(pointer)[-1]
                events.callbacks[rule.id, rule.when] = callback
                names.append(rule.id)
            return status

        self._read(add)
        return names[0]

    def remove_rule(self, id: str) -> None:
        """NotFoundError if there is none of that id. The event that it is in, if any, gets no end."""
        name = c_text(id, "id")
        with self._call() as pointer:
            check(lib.LIB.weir_session_remove_rule(pointer, name))
            for key in [key for key in self._events.callbacks if key[0] == id]:
                del self._events.callbacks[key]

    def rules(self) -> list[WatchedRule]:
        """All rules, in the order in which they were added. InvalidArgumentError for sessions with rule_tokens=0."""
        with self._call() as pointer:
            return _rules_of(pointer)

    def rule_cost(self) -> RuleCost:
        """What checks took so far. InvalidArgumentError for sessions with rule_tokens=0."""
        out = lib.CRuleCost()
        with self._call() as pointer:
            check(lib.LIB.weir_session_rule_cost(pointer, ctypes.byref(out)))
        return RuleCost(out.n_checks, out.n_tokens, out.seconds)

    def ask(self, question: str | bytes, **options: Any) -> Answer:
        """A question that ends the user's turn, and its answer: `for piece in s.ask(q)`, `async for`, or
        s.ask(q).read(). Nothing happens before the first step.

        max_tokens: None until the model ends its answer. temperature: 0 is the most likely token, always. top_k, top_p,
        min_p, seed. stop: a text or texts that end it. The form, at most one: schema (JSON, a dict, a dataclass or a
        pydantic model; Answer.value() reads it back), grammar (GBNF), regex, choices. ignore_end: goes on after the
        end.
        """
        data = utf8(question, "the question")
        return self._make_answer(
            lambda at: lib.LIB.weir_session_begin_ask(at[0], data, len(data), at[1]), AnswerOptions(**options)
        )

    def passages(self) -> list[Passage]:
        """What was brought back for the last question (`recall`), in the order of the stream."""
        out = []
        with self._call() as pointer:
            report = lib.RecallReport()
            check(lib.LIB.weir_session_recalled(pointer, ctypes.byref(report)))
            for i in range(report.n_passages):
                one = lib.CPassage()
                check(lib.LIB.weir_session_recalled_passage(pointer, i, ctypes.byref(one)))
                text = ctypes.string_at(one.text, one.n_bytes).decode("utf-8", "replace")
                out.append(Passage(one.seq, one.end, one.t_ms, one.score, text))
        return out

    # ---- without a chat template

    def read(
        self, given: str | bytes | Any, *, pin: bool = False, special: bool = False, end_of_prompt: bool = False
    ) -> None:
        """Reads text or token ids as they are. special: a text's control tokens are recognised and the stream's first
        token is added; for your own text, never for a user's. end_of_prompt: some policies compress here.

        Errors: WeirError; TypeError for a picture; ValueError for ids that are negative or no 32-bit numbers;
        InvalidArgumentError for ids outside the vocabulary: what stands before them in the call is not read either.
        """
        flags = (lib.PINNED if pin else 0) | (lib.END_OF_PROMPT if end_of_prompt else 0)
        x = classify(given)
        if isinstance(x, Text):
            data, flags = x.utf8, flags | (lib.SPECIAL if special else 0)
            self._read(lambda p: lib.LIB.weir_session_append_text(p, data, len(data), flags))
        elif isinstance(x, Ids):
            ids = x.ids
            self._read(lambda p: lib.LIB.weir_session_append_tokens(p, ids.ctypes.data, len(ids), flags))
        else:
            raise TypeError("read() takes text or token ids; pictures are part of a chat: append()")

    def generate(self, **options: Any) -> Answer:
        """Continues the stream without a question, with the options and errors of ask()."""
        return self._make_answer(lambda at: lib.LIB.weir_session_begin_answer(*at), AnswerOptions(**options))

    def score(self, ids: Any) -> npt.NDArray[np.float32]:
        """Reads token ids and returns -log P of each, given everything before it that is held: [n] of float32, natural
        logarithms; 0 for the stream's first. InvalidArgumentError for sessions without likelihoods=True."""
        array = token_ids(ids)
        out = np.empty(len(array), np.float32)
        self._read(lambda p: lib.LIB.weir_session_score(p, array.ctypes.data, len(array), 0, out.ctypes.data))
        return out

    def logits(self) -> npt.NDArray[np.float32]:
        """Of the next token: a copy, [n_vocab] of float32, before any temperature. InvalidArgumentError before
        anything was read."""
        address, n = ctypes.c_void_p(), ctypes.c_size_t()
        with self._call() as pointer:
            check(lib.LIB.weir_session_logits(pointer, ctypes.byref(address), ctypes.byref(n)))
            assert self._handle is not None
            return array_at(address.value, ctypes.c_float, n.value, np.float32, self._handle).copy()

    def _make_answer(self, begin: Callable[[Any], int], options: AnswerOptions) -> Answer:
        if self._handle is None:
            raise ClosedError("the session was closed")
        return Answer(self, begin, options)

    # ---- what it holds

    def counters(self) -> Counters:
        """All of them at once; they walk through the pot."""
        out = lib.CCounters()
        with self._call() as pointer:
            check(lib.LIB.weir_session_counters(pointer, ctypes.byref(out)))
        return Counters(out.seen, out.kept, out.dropped, out.selections, out.bytes, out.guessed, out.guessed_right)

    @property
    def seen(self) -> int:
        """Tokens read or generated so far."""
        return self.counters().seen

    @property
    def kept(self) -> int:
        """Of these, held in at least one layer and head."""
        return self.counters().kept

    @property
    def dropped(self) -> int:
        """Of these, forgotten."""
        return self.counters().dropped

    def slots(self, group: int = 0) -> npt.NDArray[Any]:
        """The stored tokens of one metadata group, 0 to n_groups - 1, oldest first: a copy, [n_slots] of weir.SLOT.
        InvalidArgumentError for a group that is not there."""
        address, n = ctypes.c_void_p(), ctypes.c_size_t()
        group = whole(group, "group")
        with self._call() as pointer:
            check(lib.LIB.weir_session_slots(pointer, group, ctypes.byref(address), ctypes.byref(n)))
            assert self._handle is not None
            return array_at(address.value, lib.Slot, n.value, SLOT, self._handle).copy()

    def remembers(self, at: str | tuple[int, int]) -> Remembered:
        """What is still held of a part of the stream: "99%" (a hundredth of it), "25%:50%", "1000:1200", "1000", or a
        pair of token numbers, from and before. ValueError for a part that is written otherwise or has no token."""
        seen = self.seen
        begin, end = _span(at, seen)
        held: dict[int, int] = {}
        for group in range(self.n_groups):
            slots = self.slots(group)
            inside = slots[(slots["seq"] >= begin) & (slots["seq"] < end)]
            held.update(zip(inside["seq"].tolist(), inside["token_id"].tolist()))
        return Remembered(begin, end, len(held), self._text_of(held, begin, end))

    def _text_of(self, held: dict[int, int], begin: int, end: int) -> str:
        parts: list[str] = []
        run: list[int] = []
        gone = 0

        def close_run() -> None:
            if run:
                parts.append(self._model.decode(run))
                run.clear()

        def close_gap() -> None:
            if gone:
                parts.append(f"[... {gone} token{'' if gone == 1 else 's'} ...]")

        for seq in range(begin, end):
            token = held.get(seq)
            if token is None:
                close_run()
                gone += 1
                continue
            close_gap()
            gone = 0
            if token >= 0:
                run.append(token)
            else:
                close_run()
                parts.append("<image>")
        close_run()
        close_gap()
        return "".join(parts)

    def trace(self, path: str | os.PathLike[str] | None = None) -> Trace:
        """Writes what is forgotten from now on to a file, for `weir trace` and `weir remembers`; without a path, to a
        temporary one. Ends with the returned object's end() or `with` block, or with the session. InvalidArgumentError
        while another one is written; IoError for a file that cannot be."""
        if path is None:
            handle, name = tempfile.mkstemp(prefix="weir-", suffix=".jsonl")
            os.close(handle)
            path = name
        at = path_bytes(path, "the trace")
        with self._call() as pointer:
            check(lib.LIB.weir_session_trace(pointer, at))
        return Trace(Path(os.fsdecode(at)), self._end_trace)

    def _end_trace(self) -> None:
        if self._handle is not None:
            with self._call() as pointer:
                check(lib.LIB.weir_session_trace(pointer, None))

    # ---- copies and files

    def fork(self, recall_dir: str | os.PathLike[str] | None = None) -> Session:
        """A second session that holds the same, in as many bytes of its own; from here on they differ. It has the same
        rules, with their callbacks. An answer that is being written ends here. recall_dir: where its copy of the
        archive goes. Errors: OverBudgetError, InvalidArgumentError for a recall_dir without recall."""
        out = ctypes.c_void_p()
        folder = None if recall_dir is None else path_bytes(recall_dir, "recall_dir")
        with self._call(ends_answer=True) as pointer:
            of = self._model._open_handle()
            check(lib.LIB.weir_session_fork(pointer, folder, ctypes.byref(out)))
            fork = Session.__new__(Session)
            fork._become(self._model, of, self._rule, dict(self._events.callbacks), out.value)
        return fork

    def state(self) -> bytes:
        """Everything that restore() needs: pot, chat, rules, statistics, position. With recall, the archive is not in
        it."""
        n = ctypes.c_size_t()
        with self._call(ends_answer=True) as pointer:
            check(lib.LIB.weir_session_save(pointer, None, 0, ctypes.byref(n)))
            out = np.empty(n.value, np.uint8)
            check(lib.LIB.weir_session_save(pointer, out.ctypes.data, len(out), ctypes.byref(n)))
        return out.tobytes()

    def restore(self, state: bytes) -> None:
        """Goes on where another session of the same build, model and options stood. InvalidArgumentError if the bytes
        are not of such a session; this one is then unchanged."""
        data = bytes(state)
        with self._call(ends_answer=True) as pointer:
            check(lib.LIB.weir_session_restore(pointer, data, len(data)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes state() to a file, which is there as a whole or not at all. OSError where it cannot be."""
        to = Path(path)
        part = to.with_name(to.name + ".part")
        try:
            part.write_bytes(self.state())
            os.replace(part, to)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def load(self, path: str | os.PathLike[str]) -> None:
        """restore() from a file that save() wrote, with its errors and OSError."""
        self.restore(Path(path).read_bytes())

    def flush(self) -> None:
        """With recall: hands what was read to the operating system, so that it survives the death of the process."""
        with self._call() as pointer:
            check(lib.LIB.weir_session_flush(pointer))

    def copy_archive(self, folder: str | os.PathLike[str]) -> None:
        """With recall: copies the archive into a new or empty folder."""
        to = path_bytes(folder, "the folder")
        with self._call() as pointer:
            check(lib.LIB.weir_session_copy_archive(pointer, to))

    def reset(self) -> None:
        """Forgets everything: the pinned text, the system message and the rules included."""
        with self._call(ends_answer=True) as pointer:
            check(lib.LIB.weir_session_reset(pointer))
            self._events.callbacks.clear()

    def close(self) -> None:
        """Gives the memory back; later calls raise ClosedError. Views that a policy kept hold it until they are
        gone."""
        if self._handle is None:
            return
        if self._handle._pid == os.getpid():
            with self._model._turn:
                self._answer = None
                self._handle = None
        else:
            self._handle = None

    @property
    def closed(self) -> bool:
        """Whether close() was called, or the `with` block has ended."""
        return self._handle is None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickle("session")

    def __repr__(self) -> str:
        if self.closed:
            return "<weir.Session, closed>"
        return f"<weir.Session pot={self.pot} policy={self.policy!r}>"


def _rules_of(pointer: int) -> list[WatchedRule]:
    out: list[WatchedRule] = []
    while (rule := rule_at(pointer, len(out))) is not None:
        out.append(rule)
    return out


class _Call:
    """Session._call(): a class, because an answer makes one for every token."""

    __slots__ = ("_session", "_ends_answer", "_handle")

    def __init__(self, session: Session, ends_answer: bool) -> None:
        self._session, self._ends_answer = session, ends_answer

    def __enter__(self) -> int:
        session = self._session
        if session._handle is None:
            raise ClosedError("the session was closed")
        session._handle.check_process("session")
        session._model._open_handle()
        turn = session._model._turn
        turn.__enter__()
        try:
            handle = session._handle
            if handle is None:  # meanwhile
                raise ClosedError("the session was closed")
            self._handle = handle  # to the end of the call
            if session._rule is not None:
                session._rule.owner, session._rule.error = handle, None
            if self._ends_answer and session._answer is not None:
                session._answer._finish(handle.pointer)
            return handle.pointer
        except BaseException as error:
            self._end(error)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        rule = self._session._rule
        instead = None
        if rule is not None:
            rule.owner = None
            if isinstance(error, WeirError):
                instead, rule.error = rule.error, None
        self._session._model._turn.__exit__()
        if instead is not None:
            raise instead from None


class _Stop:
    """Which calls should end: those that were made before the latest stop(), numbered from 1. Asked after each chunk.
    No reference to the session: C code holds this one."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.made = self.stopped = 0
        self.running = 1  # the call at work

    def new_call(self) -> int:
        self.made = next(self._numbers)
        return self.made

    def told(self, _n_tokens: int, _user: object) -> int:
        return int(self.running <= self.stopped)


def _milliseconds(t: float | None) -> int:
    if t is None:
        return 0
    t = real(t, "t")
    if not 0 <= t < 1e12:
        raise ValueError(f"t is {t}: a time in the stream is a number of seconds, not negative")
    return round(t * 1000)


def _span(at: str | tuple[int, int], seen: int) -> tuple[int, int]:
    """Tokens from begin to before end."""
    if isinstance(at, tuple):
        begin, end = at
    elif found := re.fullmatch(r"(\d+(?:\.\d+)?)%(?::(\d+(?:\.\d+)?)%)?", at):
        first = float(found[1])
        last = min(100.0, first + 1) if found[2] is None else float(found[2])
        begin, end = int(seen * first // 100), int(-(-seen * last // 100))
    elif found := re.fullmatch(r"(\d*)(:?)(\d*)", at):
        begin = int(found[1] or 0)
        end = int(found[3] or seen) if found[2] else begin + 1
        if not found[0]:
            begin = end = 0
    else:
        raise ValueError(f"{at!r}: write tokens (1000:1200, 1000) or shares (25%, 25%:50%)")
    end = min(end, seen)
    if not 0 <= begin < end:
        raise ValueError(f"{at!r}: no token of the stream of {seen} is in that span")
    return begin, end
