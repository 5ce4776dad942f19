# SPDX-License-Identifier: Apache-2.0
"""The suites of `weir eval`, run by the program of this package, and their figures as rows.

rows = weir.eval("lines", "model.gguf", policy=["full", "streaming_llm"], pot=[512, 1024], distance=[5, 40], n=20)
weir.plots.curve(rows, x="distance").save("lines.svg")
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from ._program import find_program
from .errors import WeirError
from .model import Model
from .policy import Policy


class EvalError(WeirError):
    """A suite did not run to its end: the program's own line says why. rows: those that were finished."""

    def __init__(self, message: str, rows: list[dict[str, Any]]) -> None:
        super().__init__(message)
        self.rows = rows


def evaluate(
    suite: str,
    model: str | os.PathLike[str] | Model,
    *,
    policy: str | Iterable[str] | None = None,
    frame: bool | None = None,
    on_row: Callable[[dict[str, Any]], object] | None = None,
    **flags: Any,
) -> Any:
    """Runs a suite of `weir eval` and returns its rows: a pandas frame, or a list of dicts where pandas is not there.

    suite: "lines", "passkey", "needle", "streamqa", "ppl", "vqa" or another of `weir eval --help`. model: the path of a
    model file, or an open weir.Model, whose file is loaded once more, by the program. policy: names as in `weir
    policies`, one run each. flags: every flag of `weir eval SUITE --help`, with _ for -: pot=[512, 1024], n=20,
    carry=True. frame: True for a frame, ImportError without pandas; False for dicts. on_row: called with each row, a
    dict, as soon as its cell is finished.

    A row has what docs/evaluation.md says: `value` is the mean of `metric` over `n` trials, `stderr` its standard
    error. Errors: EvalError with the program's reason; FileNotFoundError where the package has no program.
    """
    if frame and importlib.util.find_spec("pandas") is None:
        raise ImportError("frame=True needs pandas: pip install pandas")
    command = [os.fspath(find_program()), "eval", _word(suite, "a suite"), *_flag("model", _path_of(model))]
    if policy is not None:
        names = [policy] if isinstance(policy, (str, Policy)) else list(policy)
        if any(isinstance(name, Policy) for name in names):
            raise TypeError("weir.eval runs the program, which has the built-in policies: a policy is a name here")
        command += _flag("policy", ";".join(names))
    for name, value in flags.items():
        command += _flag(_word(name, "a flag").replace("_", "-"), value)
    rows = _run(command, on_row)
    if frame is None:
        frame = importlib.util.find_spec("pandas") is not None
    if not frame:
        return rows
    import pandas as pd

    return pd.DataFrame(rows)


def _path_of(model: Any) -> str:
    return os.fspath(model.path if isinstance(model, Model) else model)


def _word(text: str, what: str) -> str:
    if not text or not text.replace("_", "").replace("-", "").isalnum() or text.startswith("-"):
        raise ValueError(f"{text!r} is not the name of {what}")
    return text


def _flag(name: str, value: Any) -> list[str]:
    """A flag of the command line. Numbers in a list are separated by commas, texts are flags of their own."""
    if value is None:
        return []
    if isinstance(value, bool):
        return [f"--{name}={str(value).lower()}"]
    if isinstance(value, (str, int, float, os.PathLike)):
        return [f"--{name}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]
    parts = list(value)
    if all(isinstance(part, (int, float)) for part in parts):
        return [f"--{name}={','.join(map(str, parts))}"]
    return [one for part in parts for one in _flag(name, part)]


def _run(command: list[str], on_row: Callable[[dict[str, Any]], object] | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    # What it says meanwhile goes to a file: a pipe that nobody reads would fill up and stop it.
    with tempfile.TemporaryFile("w+") as told:
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=told) as child:
            assert child.stdout is not None
            try:
                for line in child.stdout:
                    rows.append(json.loads(line))
                    if on_row is not None:
                        on_row(rows[-1])
            except BaseException:
                child.kill()
                raise
        if child.returncode != 0:
            told.seek(0)
            last = (told.read().strip().splitlines() or [f"it ended with the status {child.returncode}"])[-1]
            raise EvalError(f"weir eval {command[2]}: {last.removeprefix('weir: ').removeprefix('error: ')}", rows)
    return rows
