# SPDX-License-Identifier: Apache-2.0
"""Runs of the program in which a call fails: it does what it does without, or ends with one line that says why."""

import dataclasses
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.faults.control import Control

FACT = "The harpoon lay in the attic."
ROUNDS = FACT + "\n" + "the man and the sea, " * 60 + "\nWhere is the harpoon?\n"
SECONDS = 30
# As ever; with an error; as ever but for what is said to be missing; not answered, and the session has ended (requests
# only).
GOOD = ["same", "refused", "told", "closed", "ended"]


@dataclasses.dataclass
class Verdict:
    kind: str  # of GOOD; or a fault: crash, hang, wrong, file
    detail: str = ""

    @property
    def fault(self) -> bool:
        return self.kind not in GOOD


@dataclasses.dataclass
class Run:
    code: int
    out: bytes
    err: str


@dataclasses.dataclass
class Scenario:
    name: str
    words: list[str]  # of the command line; {folder} is a folder of its own
    text: str = ""  # on standard input
    prepare: Callable[[Path], None] = lambda folder: None  # before any fault
    file: str = ""  # that it writes whole, or leaves as it was


def scenarios(program: str, model: str, old: Path) -> list[Scenario]:
    """`old`: a folder with the session and the archive that the later ones find."""
    sure = ["--temp", "0", "--seed", "1", "--ignore-eos", "-n", "4", "--pot", "96", "-t", "1"]
    chat = [program, "chat", "-m", model, "--policy", "streaming_llm", *sure]
    session = ["--session", "{folder}/talk.weir"]
    recall = ["--recall", "words:gate=0,passages=1", "--recall-dir", "{folder}/archive", "--recall-tokens", "120"]

    def found(folder: Path) -> None:
        shutil.copytree(old, folder, dirs_exist_ok=True)

    again = "the man?\n"
    go_on = [program, "chat", "-m", model, "--temp", "0", "-n", "4", "--ignore-eos", "-t", "1", *session]
    return [
        Scenario("weir run", [program, "run", "-m", model, "-p", "the man", *sure]),
        Scenario("weir run, two threads", [program, "run", "-m", model, "-p", "the man", *sure[:-1], "2"]),
        Scenario("weir chat that saves", chat + session, ROUNDS, file="talk.weir"),
        Scenario("weir chat that goes on", go_on, again, found, "talk.weir"),
        Scenario("weir chat with an archive", chat + recall, ROUNDS),
        Scenario("weir recall", [program, "recall", "{folder}/archive", "harpoon"], "", found),
    ]


def make_old(program: str, model: str, folder: Path) -> None:
    """What scenarios() find: a session, and an archive of another one."""
    none = Path("/nonexistent")
    for scenario in scenarios(program, model, none):
        if scenario.name in ("weir chat that saves", "weir chat with an archive"):
            run = start(scenario, folder, None)
            if run.code != 0:
                raise SystemExit(f"{scenario.name}: {run.err}")


def start(scenario: Scenario, folder: Path, control: Control | None) -> Run:
    words = [word.replace("{folder}", str(folder)) for word in scenario.words]
    if control is not None:
        control.next_program()
    run = subprocess.run(
        words,
        input=scenario.text.encode(),
        capture_output=True,
        timeout=SECONDS,
        env=None if control is None else control.environment(),
        check=False,
    )
    return Run(run.returncode, run.stdout, run.stderr.decode(errors="replace"))


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


class Rehearsal:
    """A scenario, and what it does when nothing fails."""

    def __init__(self, scenario: Scenario, control: Control, scratch: Path):
        self.scenario, self.control, self.scratch = scenario, control, scratch
        control.count()
        self.good = self.play()
        self.calls = control.calls()
        if self.good.code != 0:
            raise SystemExit(f"{scenario.name}: {self.good.err}")
        self.after = content(scratch / scenario.file) if scenario.file else None

    def play(self) -> Run:
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        self.scenario.prepare(self.scratch)
        self.before = content(self.scratch / self.scenario.file) if self.scenario.file else None
        return start(self.scenario, self.scratch, self.control)

    def restores(self) -> bool:
        """One of an earlier round goes on, too."""
        words = [*self.scenario.words[:4], "--session", str(self.scratch / self.scenario.file)]
        return subprocess.run(words, input=b"", capture_output=True, timeout=SECONDS, check=False).returncode == 0

    def verdict(self, kind: str, nth: int, error: int, n: int) -> Verdict:
        self.control.fail(kind, nth, error, n)
        try:
            run = self.play()
        except subprocess.TimeoutExpired:
            return Verdict("hang", f"more than {SECONDS} s")
        finally:
            failed = self.control.get("failed")
            self.control.set("kind", 0)
        if run.code < 0:
            return Verdict("crash", f"signal {-run.code}: {run.err[-300:]}")
        if self.scenario.file:
            now = content(self.scratch / self.scenario.file)
            if now not in (self.before, self.after) and not self.restores():
                return Verdict("file", f"{self.scenario.file} is no session; exit {run.code}")
            if run.code == 0 and now != self.after:
                return Verdict("file", f"exit 0, but {self.scenario.file} is not the new one")
            part = self.scratch / (self.scenario.file + ".part")
            if part.exists() and kind != "name":
                return Verdict("file", f"{part.name} is left; exit {run.code}: {run.err[-200:]}")
        said = [line for line in run.err.splitlines() if line.startswith("weir: ")]
        if run.code == 0:
            if run.out == self.good.out:
                return Verdict("same")
            told = [line for line in run.err.splitlines() if "warning: " in line or "cannot " in line]
            if failed and told:
                return Verdict("told", told[0])
            return Verdict("wrong", f"exit 0, other output and no word about it: {run.err[-300:]}")
        errors = [line for line in said if line.startswith("weir: error: ")]
        many = n > 1 and len(errors) > 0  # each round says that it cannot be saved
        if not many and (len(errors) != 1 or run.err.rstrip("\n").splitlines()[-1] != errors[0]):
            return Verdict("wrong", f"exit {run.code} without one line of error: {run.err[-300:]}")
        return Verdict("refused", errors[0])
