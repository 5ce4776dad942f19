# SPDX-License-Identifier: Apache-2.0
"""One table or figure of a paper, and the steps that make it.

A step is a command, and the file that its standard output goes to, if any. Steps are made for a Setting: the user's
models and data where they are given, ours otherwise. Nothing is run here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MADE = "made"  # the published protocol, apart from the model and the data
PARTLY = "partly"  # less than was published, or something else in its place; `differs` says what
MISSING = "not made"  # `differs` says why
DRAWING = "drawing"  # explains the method; nothing was measured
STATES = (MADE, PARTLY, MISSING, DRAWING)


@dataclass(frozen=True)
class Step:
    argv: list[str]
    rows: Path | None = None  # where standard output goes; a step whose file exists is not run again
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """Inputs of the runs. `model_given`: the model is the user's, and of published size."""

    weir: str
    out: Path
    model: str = ""
    mmproj: str = ""
    data: str = ""
    text: str = ""
    n: int = 0  # trials per cell; 0: the entry's own number
    threads: int = 0
    model_given: bool = False

    def trials(self, ours: int) -> str:
        return str(self.n or ours)

    def size(self, ours, theirs) -> str:
        """A size as published for the user's model, a smaller one for ours."""
        return str(theirs if self.model_given else ours)

    def rows(self, name: str) -> Path:
        return self.out / f"{name}.jsonl"

    def eval(self, name: str, suite: str, *flags: str) -> Step:
        argv = [self.weir, "eval", suite, "-m", self.model, *flags]
        return Step([*argv, "-t", str(self.threads)] if self.threads else argv, self.rows(name))

    def world(self, name: str, suite: str, *flags: str) -> Step:
        """`scripts/eval-world`: our pictures and streams, or --data, with our small models or the user's."""
        env = {"ROWS": str(self.rows(name)), "WEIR": self.weir}
        if self.model_given:
            env |= {"MODEL": self.model, "MMPROJ": self.mmproj}
        if self.data:
            env["DATA"] = self.data
        threads = ["-t", str(self.threads)] if self.threads else []
        return Step([str(ROOT / "scripts" / "eval-world"), suite, *threads, *flags], env=env)

    def table(self, name: str, column: str, *flags: str) -> Step:
        return Step([python(), str(ROOT / "tools/plot/table.py"), str(self.rows(name)), "--column", column, *flags])

    def draw(self, name: str, kind: str, *flags: str) -> Step:
        picture = str(self.out / f"{name}.svg")
        return Step([python(), str(ROOT / "tools/plot/eval.py"), kind, str(self.rows(name)), "-o", picture, *flags])


def python() -> str:
    return os.environ.get("WEIR_PYTHON") or "/usr/bin/python3"


@dataclass(frozen=True)
class Entry:
    name: str  # "inf-mllm/table-2"
    what: str  # one line
    state: str
    differs: str = ""  # from the paper; of what is not made, why
    steps: Callable[[Setting], list[Step]] | None = None
    # Inputs that no default can stand for: "text", "data", "longbench".
    needs: tuple[str, ...] = ()
    vision: bool = False  # runs with a vision model
