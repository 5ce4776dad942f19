# SPDX-License-Identifier: Apache-2.0
"""Traces: what was forgotten, when and why, as `weir trace` reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


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

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def __repr__(self) -> str:
        return f"<weir.Trace {str(self.path)!r}{', ended' if self._end is None else ''}>"
