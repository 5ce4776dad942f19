# SPDX-License-Identifier: Apache-2.0
"""Traces: what was forgotten, when and why, as `weir trace` reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt


class Trace:
    """A trace that is being written. path: the file, which is whole after end()."""

    def __init__(self, path: Path, end: Callable[[], None]) -> None:
        self.path = path
        self._end: Callable[[], None] | None = end

    def end(self) -> None:
        """Completes the file. Does nothing the second time."""
        if self._end is not None:
            end, self._end = self._end, None
            end()

    def events(self) -> Iterator[dict[str, Any]]:
        """Ends the trace, then yields its lines: "trace", "tokens", "select", "end" and others by their "type"."""
        self.end()
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    def forgotten_at(self) -> npt.NDArray[np.int64]:
        """For each token of the stream, [n]: how many tokens had been read when the last layer and head dropped it; -1
        for what is still held. Ends the trace. ValueError for one that began in the middle of its stream."""
        none = np.zeros(0, np.int64)
        n_groups = n_read = 0
        last, n_dropped = none, none  # of each token: when it was dropped last, and by how many groups
        held: dict[tuple[int, int], npt.NDArray[np.int64]] = {}  # of each group, after its last selection
        taken: dict[tuple[int, int], int] = {}  # n_read then
        for event in self.events():
            kind = event["type"]
            if kind == "trace":
                n_groups = _n_groups(event)
            elif kind == "restart":
                n_read, last, n_dropped, held, taken = 0, none, none, {}, {}
            elif kind == "tokens":
                if event["seq"] != n_read:
                    raise ValueError(_BEGUN_LATE)
                more = len(event["ids"])
                n_read += more
                last = np.concatenate([last, np.full(more, -1)])
                n_dropped = np.concatenate([n_dropped, np.zeros(more, np.int64)])
            elif kind == "select":
                key = (event["layer"], event["head"])
                slots = np.concatenate([held.get(key, none), np.arange(taken.get(key, 0), n_read)])
                if len(slots) != event["n"]:
                    raise ValueError(_BEGUN_LATE)
                drop = _slots(event["drop"])
                n_dropped[slots[drop]] += 1
                last[slots[drop]] = event["n_seen"]
                held[key], taken[key] = np.delete(slots, drop), n_read
        return np.where(n_dropped == n_groups, last, -1)

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<weir.Trace {str(self.path)!r}{', ended' if self._end is None else ''}>"


_BEGUN_LATE = "this trace began in the middle of its stream: what was held then is not in it"


def _n_groups(head: dict[str, Any]) -> int:
    """How many groups decide for themselves, as the first line says."""
    if head["granularity"] == "global":
        return 1
    if head["granularity"] == "per_layer":
        return int(head["layers"])
    return int(sum(head.get("layer_kv_heads", [head["kv_heads"]] * head["layers"])))


def _slots(spans: list[Any]) -> npt.NDArray[np.int64]:
    """Numbers, and pairs of a first one and a count."""
    pairs = [span if isinstance(span, list) else (span, 1) for span in spans]
    return np.concatenate([np.arange(first, first + n) for first, n in pairs] or [np.zeros(0, np.int64)])
