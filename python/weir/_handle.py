# SPDX-License-Identifier: Apache-2.0
"""Owners of the C API's handles, and the rule that one thread at a time computes with a model."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from .errors import ClosedError, InvalidArgumentError


class Handle:
    """Closes its C object when nothing refers to it any more: views of a session's memory do, too. turn: of the model
    that the object is a session of."""

    __slots__ = ("pointer", "parent", "_close", "_turn", "_pid", "_getpid", "__weakref__")

    def __init__(
        self, pointer: int, close: Callable[[int], None], parent: Any = None, turn: Turn | None = None
    ) -> None:
        self.pointer, self.parent = pointer, parent
        self._close, self._turn, self._pid, self._getpid = close, turn, os.getpid(), os.getpid

    def check_process(self, what: str) -> None:
        if self._getpid() != self._pid:
            raise ClosedError(
                f"this {what} was made before fork(): its threads are not in this process; open another one"
            )

    def __del__(self) -> None:
        # A forked process lacks the threads that closing would wait for; its copy ends with it.
        if self._getpid() != self._pid:
            return
        if self._turn is None:
            self._close(self.pointer)
        else:
            self._turn.close(self._close, self.pointer, self.parent)


def array_at(address: int | None, kind: Any, n: int, dtype: Any, owner: Handle) -> npt.NDArray[Any]:
    """A read-only view of n C values. It refers to a buffer and the buffer to `owner`, whose memory cannot go before
    it."""
    if not address or n == 0:
        return np.zeros(0, dtype)
    buffer: Any = (kind * n).from_address(address)
    buffer._owner = owner
    out: npt.NDArray[Any] = np.frombuffer(buffer, dtype)
    out.flags.writeable = False
    return out


class Turn:
    """Whose turn it is to compute with a model. Waiting for it can be interrupted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._to_close: deque[tuple[Callable[[int], None], int, Any]] = deque()

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner == me:
            raise InvalidArgumentError(
                "a policy or a callback called its model's session, which is in the middle of a call"
            )
        self._lock.acquire()
        self._owner = me

    def __exit__(self, *error: object) -> None:
        self._owner = 0
        self._lock.release()
        if self._to_close:
            self._close_all()

    def close(self, close: Callable[[int], None], pointer: int, parent: Any) -> None:
        """Closes a session that nobody uses any more, now or when the turn of another one has ended. An object's end
        may come at any place, in any thread, also in that of the turn: nobody waits here. parent: what the session
        needs to the last."""
        self._to_close.append((close, pointer, parent))
        self._close_all()

    def _close_all(self) -> None:
        # Whoever has the turn looks again after it has ended.
        while self._to_close and self._lock.acquire(blocking=False):
            try:
                while self._to_close:
                    close, pointer, _parent = self._to_close.popleft()
                    close(pointer)
            finally:
                self._lock.release()


@contextmanager
def ctrl_c(stop: Callable[[], None]) -> Iterator[None]:
    """While the block runs, Ctrl-C calls `stop`; what it does otherwise (KeyboardInterrupt) happens after the block.

    An exception that a signal's handler raises inside a callback of C code would be lost, so none is raised there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return
    caught: list[tuple[int, Any]] = []

    def note(number: int, frame: Any) -> None:
        caught.append((number, frame))
        stop()

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            before(*caught[0])


def refuse_pickle(what: str) -> NoReturn:
    raise TypeError(
        f"a {what} cannot be pickled or copied: its memory is the library's; save() writes a session to a file"
    )
