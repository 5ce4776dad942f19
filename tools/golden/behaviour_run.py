# SPDX-License-Identifier: Apache-2.0
"""Runs the program for record_behaviour.py, and takes out of its output what cannot be the same twice."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

# Times, rates and the memory of the process as the kernel counts it; the figures of the ledger stay.
VOLATILE_FIELDS = (
    "tokens_per_s",
    "decode_tokens_per_s",
    "answer_tokens_per_s",
    "ttft_ms",
    "seconds",
    "resident_bytes",
    "ms_per_token",
    "ms_per_token_stderr",
    "latency_ratio",
    "frames_per_s",
    "prompt_ms",
    "prompt_per_second",
    "predicted_ms",
    "predicted_per_second",
    "created",
    "idle_s",
)
BENCH_FIELDS = ("stddev", "median", "gb_per_s", "ratio")
# How far the decoder is ahead of the model, and what it holds while it is.
WATCH_FIELDS = ("frames_arrived", "frames_waiting", "session_bytes")
LIMIT_S = 3600


def field_pattern(names: tuple[str, ...]) -> re.Pattern[bytes]:
    return re.compile(rb'"(%s)":\s*(-?[0-9][0-9.eE+-]*|null)' % "|".join(names).encode())


PATTERNS = {
    "rows": field_pattern(VOLATILE_FIELDS),
    "bench": field_pattern(VOLATILE_FIELDS + BENCH_FIELDS),
    "watch": field_pattern(VOLATILE_FIELDS + WATCH_FIELDS),
}


def without_volatile(text: bytes, kind: str = "rows") -> bytes:
    """The same bytes, with a dash for the values of the fields above. Numbers are not parsed: their digits stay."""
    return PATTERNS[kind].sub(rb'"\1":"-"', text)


@dataclass
class Step:
    """One call of the program. `kind`: raw keeps standard output as it is; the others take volatile fields out."""

    arguments: list[str]
    stdin: bytes = b""
    kind: str = "rows"
    program: str = ""  # another one than weir
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Case:
    """Steps that are run in order in one folder; their output is one file, and each of `files` that they leave another.

    `digests` are files of which size and SHA-256 are kept.
    """

    name: str
    steps: list[Step]
    files: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


class Recorder:
    """One recording: the program, where its cases go, and what they are made from."""

    def __init__(self, program: Path, out: Path, inputs: Path, work: Path, threads: int) -> None:
        self.program, self.out, self.inputs, self.work, self.threads = program, out, inputs, work, threads
        self.failures: list[str] = []
        self._lock = threading.Lock()
        self._n_folders = 0

    def folder(self) -> Path:
        """A new folder to run in, with the inputs as `in`."""
        with self._lock:
            self._n_folders += 1
            folder = self.work / str(self._n_folders)
        folder.mkdir()
        (folder / "in").symlink_to(self.inputs)
        return folder

    def models(self, name: str) -> list[str]:
        """The names of the models in a folder of the inputs."""
        return sorted(file.stem for file in (self.inputs / name).glob("*.gguf"))

    def call(self, step: Step, folder: Path) -> tuple[int, bytes]:
        program = step.program or str(self.program)
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "UTC", **step.environment}
        done = subprocess.run(
            [program, *step.arguments],
            cwd=folder,
            input=step.stdin,
            env=environment,
            capture_output=True,
            timeout=LIMIT_S,
        )
        out = done.stdout if step.kind == "raw" else without_volatile(done.stdout, step.kind)
        if done.returncode:
            with self._lock:
                told = done.stderr[-200:].decode(errors="replace")
                self.failures.append(f"{done.returncode}: {' '.join(step.arguments)}: {told}")
        return done.returncode, out

    def run_case(self, case: Case, out: Path) -> None:
        folder = self.folder()
        text = b""
        for step in case.steps:
            code, output = self.call(step, folder)
            settings = "".join(f"{key}={value} " for key, value in step.environment.items())
            name = Path(step.program).name or "weir"
            text += f"$ {settings}{name} {' '.join(step.arguments)}\n".encode() + output + f"[exit {code}]\n".encode()
        for file in case.digests:
            data = (folder / file).read_bytes() if (folder / file).exists() else b""
            text += f"[file {file}: {len(data)} bytes, {hashlib.sha256(data).hexdigest()}]\n".encode()
        target = out / case.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
        for file in case.files:
            if (folder / file).exists():
                (folder / file).rename(target.with_name(f"{target.name}.{file}"))
