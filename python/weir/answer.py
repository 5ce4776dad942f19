# SPDX-License-Identifier: Apache-2.0
"""Answers, piece by piece."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any

from . import _library as lib
from ._inputs import c_text, real, whole
from ._schema import schema_text
from .errors import WeirError, check

if TYPE_CHECKING:
    from .session import Session

# Of read(): a call takes as many tokens at most, and about as many as fit in the time. So long wait other sessions of
# the model, a stop() and Ctrl-C.
TOKENS_A_CALL, SECONDS_A_CALL = 16, 0.05


class AnswerOptions:
    """How an answer is written, in the C API's struct."""

    def __init__(
        self,
        *,
        max_tokens: int | None = None,
        temperature: float = 0.8,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        seed: int = 0,
        stop: str | list[str] | tuple[str, ...] = (),
        ignore_end: bool = False,
        schema: Any = None,
        grammar: str | None = None,
        regex: str | None = None,
        choices: list[str] | tuple[str, ...] | None = None,
    ) -> None:
        self.value_of: Callable[[str], Any] | None = None
        schema_json: str | None = None
        if schema is not None:
            schema_json, self.value_of = schema_text(schema)
        stops = [stop] if isinstance(stop, str) else list(stop)
        self.c = lib.GenerateOptions(
            max_tokens=-1 if max_tokens is None else whole(max_tokens, "max_tokens", bits=64),
            temperature=real(temperature, "temperature"),
            top_k=whole(top_k, "top_k"),
            top_p=real(top_p, "top_p"),
            min_p=real(min_p, "min_p"),
            seed=whole(seed, "seed", bits=65),
            ignore_end=bool(ignore_end),
            json_schema=c_text(schema_json, "schema"),
            grammar=c_text(grammar, "grammar"),
            regex=c_text(regex, "regex"),
        )
        if choices is not None:
            if isinstance(choices, str) or not choices:
                raise ValueError("choices is a list of texts, at least one")
            self.c.choices, self.c.n_choices = _texts(choices, "a choice")
        if stops:
            self.c.stop_texts, self.c.n_stop_texts = _texts(stops, "a stop text")


def _texts(texts: list[str] | tuple[str, ...], what: str) -> tuple[Any, int]:
    out = (ctypes.c_char_p * len(texts))(*(c_text(text, what) for text in texts))
    return ctypes.cast(out, ctypes.POINTER(ctypes.c_char_p)), len(texts)  # the cast keeps `out` alive


class Answer(Iterator[str], AsyncIterator[str]):
    """An answer that is written while it is iterated, with `for` or `async for`. Nothing is read or written before the
    first step. Leaving it early, close(), or the session's next call ends it; what was written stays in the session.

    text: what has come so far. end: why it ended: "end", "length", "stopped", "pot_full" or "stop_text"; None while it
    is being written. n_tokens: how many tokens it took, once it has ended.
    """

    def __init__(self, session: Session, begin: Callable[[Any], int], options: AnswerOptions) -> None:
        self._session, self._begin, self._options = session, begin, options
        self._begun = False
        self._number = 0  # of the call that began it
        # What a step fills, made once for all of them.
        self._piece, self._n_bytes, self._more = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_int()
        self._out = ctypes.byref(self._piece), ctypes.byref(self._n_bytes), ctypes.byref(self._more)
        self.text = ""
        self.end: str | None = None
        self.n_tokens = 0

    def __iter__(self) -> Answer:
        return self

    def __next__(self) -> str:
        piece = self._step()
        if piece is None:
            raise StopIteration
        return piece

    def __aiter__(self) -> Answer:
        return self

    async def __anext__(self) -> str:
        """Each step runs in a thread; a task that is cancelled stops the reading of the question."""
        try:
            piece = await asyncio.to_thread(self._step)
        except asyncio.CancelledError:
            self._session.stop()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    def read(self) -> str:
        """Writes the answer to its end and returns the whole text."""
        n = 1
        while True:
            start = perf_counter()
            if self._step(n) is None:
                return self.text
            n = max(1, min(TOKENS_A_CALL, int(n * SECONDS_A_CALL / max(perf_counter() - start, 1e-6))))

    def value(self) -> Any:
        """The whole answer as a value: of the schema's class, or what its JSON says. ValueError if it was cut short."""
        if self._options.value_of is None:
            raise TypeError("value() is for answers with a schema")
        self.read()
        if self.end not in ("end", None):
            raise ValueError(f"the answer was cut short ({self.end}): {self.text}")
        return self._options.value_of(self.text)

    def close(self) -> None:
        """Ends the answer where it is."""
        if self.end is None:
            if self._begun:
                with self._session._call() as pointer:
                    if self.end is None:
                        self._finish(pointer)
            else:
                self.end = "stopped"

    def _step(self, n_tokens: int = 1) -> str | None:
        """The next piece that is not empty, of as many tokens or more; None after the last."""
        while self.end is None:
            if not self._begun:
                self._session._start(self)
            piece = ""
            with self._session._call() as pointer:
                if self.end is not None:  # another thread was faster
                    break
                if self._number <= self._session._stop.stopped:
                    self._finish(pointer)
                    self.end = "stopped"
                    break
                piece = self._next(pointer, n_tokens)
            if piece:
                return piece
        return None

    def _next(self, pointer: int, n_tokens: int) -> str:
        piece = ""
        self._n_bytes.value = 0  # a call that is refused leaves what the last one said
        try:
            status = lib.LIB.weir_session_next_tokens(pointer, n_tokens, *self._out)
            n, at = self._n_bytes.value, self._piece.value
            if n and at:
                piece = ctypes.string_at(at, n).decode("utf-8", "replace")
                self.text += piece
            check(status)
        except BaseException:
            with suppress(WeirError):  # the first error is the one to tell
                self._finish(pointer)
            raise
        if not self._more.value:
            self._finish(pointer)
        return piece

    def _finish(self, pointer: int) -> None:
        n, end = ctypes.c_size_t(), ctypes.c_int(2)
        self._session._answer = None
        status = lib.LIB.weir_session_end_answer(pointer, ctypes.byref(n), ctypes.byref(end))
        self.n_tokens, self.end = n.value, lib.ENDS[end.value]
        check(status)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<weir.Answer {self.end or 'being written'}: {self.text!r}>"
