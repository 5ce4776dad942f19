# SPDX-License-Identifier: Apache-2.0
"""Eviction policies in Python: which slots stay when a pot is full.

    class Newest(weir.Policy):
        def select(self, view, n_keep):
            return weir.fill(view, n_keep, range(view.n_slots - 1, -1, -1))

    session = model.session(pot=1024, policy=Newest())

A policy sees the metadata of the pot and the statistics that its `needs` declare, never keys or values. The engine
checks every answer: exactly n_keep different slots, every pinned one among them. An exception in a policy ends the call
that needed room; nothing was forgotten then, and the session goes on.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _library as lib
from ._handle import Handle, array_at
from ._inputs import c_text, whole

# One stored token, as weir_slot of weir.h.
SLOT = np.dtype(
    [
        ("seq", np.int64),
        ("t_ms", np.int64),
        ("token_id", np.int32),
        ("modality", np.uint8),
        ("pinned", np.bool_),
        ("row", np.uint16),
    ]
)


@dataclass(frozen=True)
class Needs:
    """What a policy is shown and how the pot is numbered; statistics that are not declared cost nothing.

    like: a built-in policy, "h2o" or "h2o:recent=0.5". It declares everything here in your stead and says when to
        select, and which of the stored slots a step reads; what stays is your choice alone. The other fields are then
        ignored. "a_vl" and "fastv" also drop tokens at the end of each prompt: a policy like them does so with
        after_prompt().
    share: what shares a decision: the whole pot ("all"), a layer, or a KV "head". Attention and vectors need one of the
        last two.
    rows: whose attention `view.scores` holds: None; "last", the newest `n_last` rows of a prompt; "all", every row
        since a slot was stored; "probe", the rows of the text `probe`, which is read before each selection and removed
        again.
    row_reduce: "sum" or "max" over rows. head_reduce: "mean", "max" or "sum" over the query heads.
    vector: in `scores` instead: "key_diff" or "value_norm"; for share="head".
    nll: -log P of every token when it was read.
    positions: "cache", a token's position is its slot; "reset", the same, in whole distillations; "abs", its place in
        the stream.
    min_tokens: the smallest pot that the policy can work with.
    """

    share: str = "all"
    rows: str | None = None
    n_last: int = 1
    row_reduce: str = "sum"
    head_reduce: str = "mean"
    vector: str | None = None
    nll: bool = False
    probe: str | None = None
    positions: str = "cache"
    min_tokens: int = 2
    like: str | None = None


class View:
    """One metadata group at a selection: read-only views of the session's own memory, [n_slots] each, oldest first.

    Copy what you keep: after the call the numbers change as the pot does.
    """

    __slots__ = ("_c", "_owner", "_slots")

    def __init__(self, c: Any, owner: Handle) -> None:
        self._c, self._owner = c, owner
        self._slots: npt.NDArray[Any] | None = None

    def _floats(self, address: int | None) -> npt.NDArray[np.float32] | None:
        return array_at(address, ctypes.c_float, self._c.n_slots, np.float32, self._owner) if address else None

    @property
    def slots(self) -> npt.NDArray[Any]:
        """Everything about the stored tokens: a structured array of `weir.SLOT`."""
        if self._slots is None:
            self._slots = array_at(self._c.slots, lib.Slot, self._c.n_slots, SLOT, self._owner)
        return self._slots

    @property
    def seq(self) -> npt.NDArray[np.int64]:
        """Places in the stream; 0 is the first token ever read."""
        return self.slots["seq"]

    @property
    def t_ms(self) -> npt.NDArray[np.int64]:
        """Stream times in milliseconds."""
        return self.slots["t_ms"]

    @property
    def token_id(self) -> npt.NDArray[np.int32]:
        """Below 0: a row of a picture that has -token_id % 131072 columns (weir_slot in weir.h)."""
        return self.slots["token_id"]

    @property
    def modality(self) -> npt.NDArray[np.uint8]:
        """0 text, 1 picture, 2 frame of a video."""
        return self.slots["modality"]

    @property
    def pinned(self) -> npt.NDArray[np.bool_]:
        """Slots that must be kept."""
        return self.slots["pinned"]

    @property
    def frame(self) -> npt.NDArray[np.int64]:
        """Equal for the rows of one picture or frame."""
        out: npt.NDArray[np.int64] = self.slots["seq"] - self.slots["row"]
        return out

    @property
    def scores(self) -> npt.NDArray[np.float32] | None:
        """The declared attention or vector statistic."""
        return self._floats(self._c.scores)

    @property
    def nll(self) -> npt.NDArray[np.float32] | None:
        """-log P of each token when it was read; +inf for the first of the stream, 0 for rows of pictures."""
        return self._floats(self._c.nll)

    @property
    def novelty(self) -> npt.NDArray[np.float32] | None:
        """Of policies like "infinipot_v"."""
        return self._floats(self._c.novelty)

    @property
    def visual(self) -> npt.NDArray[np.float32] | None:
        """Of policies like "weir", once the stream has contained a picture."""
        return self._floats(self._c.visual)

    @property
    def scenes(self) -> npt.NDArray[np.float32] | None:
        """Of policies like "weir", once the stream has contained a picture: 0 for text, else the number of the scene
        that a row belongs to, negative where the scene's first frame showed the same."""
        return self._floats(self._c.scenes)

    @property
    def n_slots(self) -> int:
        """Slots in use."""
        return int(self._c.n_slots)

    @property
    def layer(self) -> int:
        """-1: all of them."""
        return int(self._c.layer)

    @property
    def head(self) -> int:
        """KV head; -1: all of them."""
        return int(self._c.head)

    @property
    def n_layers(self) -> int:
        """Of the model."""
        return int(self._c.n_layers)

    @property
    def n_kv_heads(self) -> int:
        """Of a layer."""
        return int(self._c.n_kv_heads)

    @property
    def n_rows(self) -> int:
        """Query rows that voted in `scores`: the divisor of a mean."""
        return int(self._c.n_rows)

    @property
    def n_unscored(self) -> int:
        """The newest slots, read after `scores` were collected: theirs are 0."""
        return int(self._c.n_unscored)

    @property
    def n_seen(self) -> int:
        """Tokens of the stream so far."""
        return int(self._c.n_seen)

    @property
    def n_seen_visual(self) -> int:
        """Of these, rows of pictures."""
        return int(self._c.n_seen_visual)


class Policy:
    """The base class of policies. Override select(), and `needs` where the newest tokens are not all there is to it.

    Its answers should depend on the view alone: one object may serve many sessions, and a saved session goes on with
    whatever object it is given under the same `name`.
    """

    needs: Needs = Needs()

    @property
    def name(self) -> str:
        """In messages, traces and saved sessions."""
        return type(self).__name__

    def select(self, view: View, n_keep: int) -> Any:
        """The slots of one group to keep: n_keep different ones in any order, or a mask of n_slots booleans; every
        pinned slot among them. With fewer than n_keep slots, all of them."""
        raise NotImplementedError(f"{type(self).__name__} has no select()")

    def select_all(self, views: Sequence[View], n_keep: int) -> Sequence[Any]:
        """One answer for each group. Override it to decide for all groups at once, or where heads share a budget:
        n_keep slots each on average."""
        return [self.select(view, n_keep) for view in views]

    # def target(self, n_slots: int, n_coming: int) -> int
    #     Optional: how many slots to keep when the pot of n_slots needs room for n_coming tokens, from 0 to
    #     n_slots - n_coming. Without it a sixteenth of the pot is freed at once, or what a policy like `needs.like`
    #     frees.

    # def after_prompt(self, views: Sequence[View]) -> Sequence[Any]
    #     Optional, for policies like "a_vl" and "fastv": what stays of each group at the end of a prompt, any number of
    #     slots. Without it nothing is dropped there.


def fill(view: View, n_keep: int, *tiers: Any) -> npt.NDArray[np.bool_]:
    """A keep-set as a mask: the pinned slots, then those of each tier in its order until n_keep are taken. A tier is a
    sequence of slots without repeats; what an earlier one took costs nothing in a later one.

    ValueError if the tiers do not have enough slots.
    """
    out = view.pinned.copy()
    room = min(n_keep, view.n_slots) - int(np.count_nonzero(out))
    for tier in tiers:
        if room <= 0:
            break
        slots = np.asarray(tier, np.intp)
        slots = slots[~out[slots]][:room]
        out[slots] = True
        room -= len(slots)
    if room > 0:
        raise ValueError(f"the tiers lack {room} of {n_keep} slots")
    return out


def chosen(answer: Any, n_slots: int) -> npt.NDArray[np.int32]:
    """A policy's answer as ascending slots."""
    array = np.asarray(answer)
    if array.dtype == np.bool_:
        if array.shape != (n_slots,):
            raise ValueError(f"select() returned a mask of shape {list(array.shape)} for {n_slots} slots")
        return np.flatnonzero(array).astype(np.int32)
    if array.size == 0:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"select() returned {array.dtype} of shape {list(array.shape)}, not a list of slots")
    if array.min() < 0 or array.max() >= n_slots:
        raise ValueError(f"select() returned slot {array.min() if array.min() < 0 else array.max()} of {n_slots}")
    return np.sort(array).astype(np.int32)


class Rule:
    """A policy as the C API calls it; shared by a session and its forks."""

    def __init__(self, policy: Policy) -> None:
        needs = policy.needs
        if not isinstance(needs, Needs):
            raise TypeError(f"{type(policy).__name__}.needs must be a weir.Needs, not {type(needs).__name__}")
        self.policy = policy
        self.error: BaseException | None = None
        self.owner: Handle | None = None  # of the memory that views show: the session whose call is under way
        target = getattr(policy, "target", None)
        after_prompt = getattr(policy, "after_prompt", None)
        self.c = lib.CPolicy(
            name=c_text(policy.name, "a policy's name"),
            select=lib.SelectCallback(self._select),
            target=lib.TargetCallback() if target is None else lib.TargetCallback(self._target),
            like=c_text(needs.like, "needs.like"),
            share=_index(lib.SHARES, needs.share, "share"),
            positions=_index(lib.POSITIONS, needs.positions, "positions"),
            rows=_index(lib.ROWS, needs.rows, "rows"),
            n_last=whole(needs.n_last, "needs.n_last"),
            row_reduce=_index(lib.REDUCES, needs.row_reduce, "row_reduce"),
            head_reduce=_index(lib.REDUCES, needs.head_reduce, "head_reduce"),
            vector=_index(lib.VECTORS, needs.vector, "vector"),
            nll=bool(needs.nll),
            probe=c_text(needs.probe, "needs.probe"),
            min_tokens=whole(needs.min_tokens, "needs.min_tokens"),
            trim=lib.TrimCallback() if after_prompt is None else lib.TrimCallback(self._trim),
        )

    def _select(self, views: Any, n_views: int, n_keep: int, _user: object) -> int:
        return self._choose(views, n_views, "select_all()", lambda shown: self.policy.select_all(shown, n_keep))

    def _trim(self, views: Any, n_views: int, _user: object) -> int:
        return self._choose(views, n_views, "after_prompt()", self.policy.after_prompt)  # type: ignore[attr-defined]

    def _choose(self, views: Any, n_views: int, name: str, choose: Callable[[list[View]], Sequence[Any]]) -> int:
        if self.error is not None:  # of target(), which cannot say so itself
            return 1
        try:
            assert self.owner is not None
            # Copies of the structs: the engine's own may be gone before a view that is kept.
            shown = [View(lib.CView.from_buffer_copy(views[i].contents), self.owner) for i in range(n_views)]
            answers = choose(shown)
            if len(answers) != n_views:
                raise ValueError(f"{name} returned {len(answers)} answers for {n_views} groups")
            for i, (view, answer) in enumerate(zip(shown, answers)):
                keep = chosen(answer, view.n_slots)
                if len(keep) > view.n_slots:
                    raise ValueError(f"{len(keep)} slots of {view.n_slots} were chosen")
                ctypes.memmove(view._c.keep, keep.ctypes.data, keep.nbytes)
                views[i].contents.n_kept = len(keep)
        except BaseException as error:  # also KeyboardInterrupt: the caller raises it
            self.error = error
            return 1
        return 0

    def _target(self, n_slots: int, n_coming: int, _user: object) -> int:
        try:
            n = operator.index(self.policy.target(n_slots, n_coming))  # type: ignore[attr-defined]
            if not 0 <= n <= n_slots - n_coming:
                raise ValueError(f"target() returned {n}; 0 to {n_slots - n_coming} can be kept")
            return n
        except BaseException as error:
            self.error = error
            return n_slots - n_coming


def _index(names: tuple[str | None, ...], name: str | None, field: str) -> int:
    if name not in names:
        raise ValueError(f"needs.{field} is {name!r}; there are {', '.join(map(repr, names))}")
    return names.index(name)
