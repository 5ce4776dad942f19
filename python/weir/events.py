# SPDX-License-Identifier: Apache-2.0
"""Rules of a session, and the events that they bring."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _library as lib
from .errors import NotFoundError, check


@dataclass(frozen=True)
class Evidence:
    """What speaks for an event: tokens begin to before end of the stream, the times in seconds of the pictures among
    them that are still held (the newest 32), and the last of their words (at most 1,024 bytes)."""

    begin: int
    end: int
    frames: tuple[float, ...]
    text: str


@dataclass(frozen=True)
class Event:
    """A rule began to hold, or ceased. id: 1, 2, ... within the stream; began_id: of the event that this one ends.
    rule, when: the rule's id and words. state: "began" or "ended". t: stream time of this check; since: of the first
    check at which it held; in seconds. score: how far log_odds are above the rule's usual ones, in units of their
    spread; peak: the largest score of the event so far."""

    id: int
    began_id: int
    rule: str
    when: str
    state: str
    t: float
    since: float
    score: float
    log_odds: float
    peak: float
    evidence: Evidence


@dataclass(frozen=True)
class WatchedRule:
    """state: "learns" what is usual, "watches", or "holds". score, log_odds: at the last check; None before any."""

    id: str
    when: str
    state: str
    score: float | None
    log_odds: float | None


@dataclass(frozen=True)
class RuleCost:
    """n_checks: of all rules, since the session was opened; n_tokens: read aside for them; seconds: that this took."""

    n_checks: int
    n_tokens: int
    seconds: float


Callback = Callable[[Event], object]


class Listener:
    """Who is told of a session's events. No reference to the session: C code holds this one."""

    def __init__(self, callbacks: dict[tuple[str, str], Callback]) -> None:
        self.callbacks = callbacks  # by a rule's id and words: a state that is restored may use the id for other words
        self.at_once = False  # within the C call, for calls that bring events for as long as they last
        self.error: BaseException | None = None  # of such a callback
        self._waiting: deque[Event] = deque()

    def told(self, event: Any, _user: object) -> int:
        try:
            self._waiting.append(_event_of(event.contents))
            if self.at_once:
                self.deliver()
        except BaseException as error:  # an exception cannot pass through C code
            self.error = self.error or error
            return 1
        return 0

    def deliver(self) -> None:
        """Calls the callbacks of the events that wait, all of them; then raises what the first one raised."""
        raised: BaseException | None = None
        while self._waiting:
            try:
                event = self._waiting.popleft()
            except IndexError:  # another thread was faster
                break
            callback = self.callbacks.get((event.rule, event.when))
            if callback is None:
                continue
            try:
                callback(event)
            except BaseException as error:
                raised = raised or error
        if raised is not None:
            raise raised

    def take_error(self) -> BaseException | None:
        error, self.error = self.error, None
        return error


def _event_of(c: Any) -> Event:
    frames = tuple(c.frames_ms[i] / 1000 for i in range(c.n_frames))
    text = ctypes.string_at(c.text, c.n_bytes).decode("utf-8", "replace") if c.n_bytes else ""
    return Event(
        id=c.id,
        began_id=c.began_id,
        rule=_text(c.rule),
        when=_text(c.when),
        state="began" if c.began else "ended",
        t=c.t_ms / 1000,
        since=c.since_ms / 1000,
        score=c.score,
        log_odds=c.log_odds,
        peak=c.peak,
        evidence=Evidence(c.from_token, c.to_token, frames, text),
    )


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "replace")


def rule_at(pointer: int, i: int) -> WatchedRule | None:
    """The i-th rule of a C session; None if there are not as many."""
    c = lib.CRule()
    try:
        check(lib.LIB.weir_session_rule(pointer, i, ctypes.byref(c)))
    except NotFoundError:
        return None
    seen = bool(c.asked)
    return WatchedRule(
        _text(c.id), _text(c.when), lib.RULE_STATES[c.state], c.score if seen else None, c.log_odds if seen else None
    )
