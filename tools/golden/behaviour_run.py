# SPDX-License-Identifier: Apache-2.0
"""Runs the program for record_behaviour.py, and removes from its output what is not reproducible."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

# Times, rates and process memory as the kernel reports it; the ledger's figures are kept.
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
# How far the decoder is ahead of the model, and what it buffers.
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
    """Replaces the values of the fields above with a dash. Numbers are not parsed, so their digits are kept."""
    return PATTERNS[kind].sub(rb'"\1":"-"', text)


@dataclass
class Step:
    """One call of the program. `kind`: raw keeps standard output unchanged; the others remove volatile fields."""

    arguments: list[str]
    stdin: bytes = b""
    kind: str = "rows"
    program: str = ""  # a program other than weir
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class Case:
    """Steps run in order in one folder; their output is one file, and so is each of the `files` they write.

    `digests` are files whose size and SHA-256 are recorded.
    """

    name: str
    steps: list[Step]
    files: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


class Recorder:
    """One recording: the program, the output folder and the inputs."""

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
