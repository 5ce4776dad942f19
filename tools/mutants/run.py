# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one operator, constant or condition of the library at a time, and runs the tests that
should notice.

    scripts/build release all
    python3 tools/mutants/run.py --n 500 --seed 1 --out build/mutants.jsonl
    python3 tools/mutants/run.py --out build/mutants.jsonl --report build/mutants.md     # what there is so far
    python3 tools/mutants/run.py --at src/policy/a_vl.cc:241                             # those of one line

Neither the checkout nor the build folder is changed: of a mutant one object is compiled, and linked before the
libraries into a copy of each test program, where its functions stand in place of theirs (they are position-independent,
so that none was compiled into a caller). A mutant is killed by a test that fails, crashes or takes ten times as long;
it survives if none does. What the compiler refuses does not count, nor what it compiles to the same code. Tests run in
this order, each in that of the time they take: the one beside the source, those of its folder, those of
tests/conformance (those with the folder's name first), those of the folders that use it (SEEN_BY); until one fails
or --most-seconds are over. A test that has killed a mutant of the same source before comes first. Of a program that
takes longer than --most-seconds-of-one so many cases run as fit, spread evenly: those named after the source, or of all
of them. Programs that start `weir` are left out: they would start it as it is. Folders take turns;
within one, every possible mutant is as likely. The same seed draws the same mutants from the same sources; those that
--out has already are not run again.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import math
import os
import random
import re
import resource
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.mutants.mutate import Mutant, mutants_of  # noqa: E402

FOLDERS = ["policy", "kv", "engine", "io", "text", "ops"]
# Beside those of the folder and tests/conformance: the tests that can see what a folder does.
SEEN_BY = {
    "ops": ("backend_",),
    "io": ("store_", "text_", "chat_", "recall_", "serve_"),
    "text": ("chat_", "recall_", "rules_", "serve_"),
    "kv": ("engine_", "recall_", "chat_"),
    "engine": ("recall_", "chat_", "rules_", "capi_"),
    "policy": ("eval_",),
}
START_WEIR = ("serve_http_", "serve_client_", "cli_")
MOST_BYTES = 24 << 30  # of a test's address space


def run(*command: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL, capture_output=True, **options)


def limit(seconds: float) -> None:
    """Of this process: processor time, which says more than the clock on a machine with other work."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@dataclasses.dataclass(frozen=True)
class Test:
    name: str  # of the program
    seconds: float
    cases: str = ""  # a filter of googletest; empty: all of them


def cases_that_fit(cases: list[str], stem: str, seconds: float, most: float) -> tuple[list[str], float]:
    """Of a program that takes so many seconds with all its cases: those that run in `most`, and what they take."""
    named = [case for case in cases if re.search(rf"(^|[/._]){re.escape(stem)}(_|$)", case, re.IGNORECASE)]
    each = seconds / max(len(cases), 1)
    chosen = named or cases
    step = max(1, math.ceil(len(chosen) * each / most))
    chosen = chosen[::step]
    return chosen, each * len(chosen)


class Build:
    """A build folder that is up to date, and its test programs."""

    def __init__(self, folder: Path, most_seconds_of_one: float, without: tuple[str, ...] = ()):
        self.folder, self.most_seconds_of_one = folder, most_seconds_of_one
        commands = folder / "compile_commands.json"
        if not commands.exists():
            sys.exit(f"mutants: error: {folder} is no build folder: scripts/build release all")
        self.commands = json.loads(commands.read_text())
        listed = json.loads(run("ctest", "--test-dir", str(folder), "--show-only=json-v1", check=True).stdout)
        self.programs = {}  # a program has the name of its test
        for test in listed["tests"]:
            slow = any(p["name"] == "LABELS" and "slow" in p["value"] for p in test["properties"])
            program = Path(test.get("command", [""])[0])
            left_out = test["name"].startswith(START_WEIR + without)
            if program.name == test["name"] and not slow and not left_out and program.exists():
                self.programs[test["name"]] = program
        if not self.programs:
            sys.exit("mutants: error: the build has no tests: scripts/build release all")
        self.links, self.libraries = {}, {}
        self.read_links()
        self.usual = self.costs()  # seconds that a test takes, as it is
        self.sound = {}  # whether a test passes without a mutant
        self.cases = {}  # of a program
        self.unchanged = {}  # the code of sources as they are
        self.lock = threading.Lock()

    def compile(self, path: Path, text: str, where: Path) -> Path | None:
        """The object of a source with this text; None if the compiler refuses it."""
        exact = [c for c in self.commands if c["file"] == str(ROOT / path)]
        target = f"CMakeFiles/weir_{path.parts[1]}.dir/"
        alike = exact or [c for c in self.commands if target in c["command"]]
        source, out = where / path.name, where / "mutant.o"
        source.write_text(text)
        words, last = [], ""
        for word in shlex.split(alike[0]["command"]):
            if last == "-o":
                word = str(out)
            elif last == "-c":
                word = str(source)
            elif word == "-O3":
                word = "-O1"
            words.append(word)
            last = word if word in ("-o", "-c") else ""
        # Names of files are part of no code, so that two mutants can be compared.
        words += [f"-I{(ROOT / path).parent}", f"-ffile-prefix-map={where}=.", "-w"]
        return out if run(*words, cwd=alike[0]["directory"]).returncode == 0 else None

    def code(self, path: Path, where: Path) -> bytes:
        with self.lock:
            known = self.unchanged.get(path)
        if known is None:
            made = self.compile(path, (ROOT / path).read_text(), where)
            if made is None:
                sys.exit(f"mutants: error: {path} does not compile as it is")
            known = made.read_bytes()
            with self.lock:
                self.unchanged[path] = known
        return known

    def read_links(self) -> None:
        """The words that link each program, and the libraries among them."""
        targets = {str(program.relative_to(self.folder)): name for name, program in self.programs.items()}
        told = run("ninja", "-C", str(self.folder), "-t", "commands", *targets, check=True).stdout
        for line in told.splitlines():
            found = re.search(r"^: && (.*? -o (\S+) .*?) && ", line)
            if found and found[2] in targets:
                words, name = shlex.split(found[1]), targets[found[2]]
                self.links[name] = words
                self.libraries[name] = {m[1] for word in words if (m := re.search(r"libweir_(\w+)\.a$", word))}

    def link(self, name: str, mutant: Path, where: Path) -> Path | None:
        out = where / name
        words, last = [], ""
        for word in self.links[name]:
            words.append(str(out) if last == "-o" else word)
            if last == "-o":
                words += [str(mutant), "-Wl,-z,muldefs", "-fuse-ld=lld"]
            last = word
        return out if run(*words, cwd=self.folder).returncode == 0 else None

    def cases_of(self, name: str) -> list[str]:
        with self.lock:
            if name in self.cases:
                return self.cases[name]
        out, suite = [], ""
        told = run(str(self.programs[name]), "--gtest_list_tests", cwd=self.programs[name].parent)
        for line in told.stdout.splitlines():
            line = line.split("#")[0].rstrip()
            if line.startswith("  "):
                out.append(suite + line.strip())
            else:
                suite = line
        with self.lock:
            self.cases[name] = out
        return out

    def seconds(self, name: str) -> float:
        """What the program takes: as CTest says, or as it takes here without a mutant."""
        with self.lock:
            if name in self.usual:
                return self.usual[name]
        most = 2 * self.most_seconds_of_one
        with tempfile.TemporaryDirectory(prefix="weir_mutant_") as where, open(f"{where}/out", "w+") as out:
            program = self.programs[name]
            process = subprocess.Popen(
                [str(program)], cwd=program.parent, env=self.environment(Path(where)), stdin=subprocess.DEVNULL,
                stdout=out, stderr=subprocess.STDOUT, preexec_fn=lambda: limit(most),
            )  # fmt: skip
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds = usage.ru_utime + usage.ru_stime
            if process.returncode < 0:  # it takes longer: so many cases ended
                out.seek(0)
                ended = out.read().count("[       OK ]")
                seconds *= len(self.cases_of(name)) / max(ended, 0.5)
        with self.lock:
            self.usual[name] = seconds
        return seconds

    def environment(self, where: Path) -> dict[str, str]:
        return os.environ | {"TMPDIR": str(where), "TEST_TMPDIR": f"{where}/"}

    def test(self, name: str, stem: str) -> Test | None:
        """The program, or so many cases of it as fit."""
        seconds = self.seconds(name)
        if seconds <= self.most_seconds_of_one:
            return Test(name, seconds)
        cases, takes = cases_that_fit(self.cases_of(name), stem, seconds, self.most_seconds_of_one)
        return Test(name, takes, ":".join(cases)) if cases and takes <= 2 * self.most_seconds_of_one else None

    def passes(self, test: Test, program: Path, most_seconds: float, where: Path) -> bool:
        environment = self.environment(where)
        if test.cases:
            environment |= {"GTEST_FILTER": test.cases}
        try:
            done = run(
                str(program), cwd=self.programs[test.name].parent, env=environment,
                preexec_fn=lambda: limit(most_seconds),
                timeout=10 * most_seconds + 300,
            )  # fmt: skip
        except (subprocess.TimeoutExpired, UnicodeDecodeError):
            return False
        return done.returncode in (0, 77)

    def costs(self) -> dict[str, float]:
        """As CTest has measured them in this build folder."""
        file = self.folder / "Testing/Temporary/CTestCostData.txt"
        rows = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
        return {row[0]: float(row[2]) for row in rows if len(row) == 3 and float(row[2]) > 0}

    def is_sound(self, test: Test, where: Path) -> bool:
        """Whether the test passes without a mutant: only then its failure says something."""
        with self.lock:
            if test in self.sound:
                return self.sound[test]
        sound = self.passes(test, self.programs[test.name], 10 * test.seconds + 60, where)
        with self.lock:
            self.sound[test] = sound
        if not sound:
            print(f"mutants: {test.name} fails without a mutant: left out", file=sys.stderr)
        return sound

    def tests_of(self, path: Path) -> list[list[str]]:
        """Names, in the groups in which they are run."""
        folder, stem = path.parts[1], path.stem
        names = [name for name in self.links if folder in self.libraries[name]]
        beside = [name for name in names if name == f"{folder}_{stem}_test"]
        same = [name for name in names if name.startswith(f"{folder}_") and name not in beside]
        whole = [name for name in names if name.startswith("conformance_")]
        rest = [name for name in names if name.startswith(SEEN_BY.get(folder, ("",))) and name not in same + whole]
        return [beside, same, whole, rest]


class Runner:
    def __init__(self, build: Build, most_seconds: float):
        self.build, self.most_seconds = build, most_seconds
        self.killers = collections.defaultdict(collections.Counter)  # of a source's mutants
        self.lock = threading.Lock()

    def order(self, path: Path) -> list[str]:
        """Names of programs."""
        out, usual = [], dict(self.build.usual)
        for names in self.build.tests_of(path):
            out += sorted(names, key=lambda name: (path.parts[1] not in name, usual.get(name, 1.0), name))
        with self.lock:
            killed = dict(self.killers[path])
        return sorted(out, key=lambda name: -killed.get(name, 0))

    def verdict(self, path: Path, mutant: Mutant) -> tuple[str, str]:
        """killed, survived, refused or same; and the test that noticed."""
        with tempfile.TemporaryDirectory(prefix="weir_mutant_") as folder:
            where = Path(folder)
            made = self.build.compile(path, mutant.apply((ROOT / path).read_text()), where)
            if made is None:
                return "refused", ""
            left = self.most_seconds
            for name in self.order(path):
                test = self.build.test(name, path.stem)
                if test is None or test.seconds > left:
                    continue
                left -= test.seconds
                program = self.build.link(test.name, made, where)
                if program is None:
                    continue  # this program has the functions under other names
                passed = self.build.passes(test, program, 10 * test.seconds + 20, where)
                program.unlink()
                if not passed and self.build.is_sound(test, where):
                    with self.lock:
                        self.killers[path][test.name] += 1
                    return "killed", test.name
            code = made.read_bytes()
            return ("same" if self.build.code(path, where) == code else "survived"), ""


def mutants_in(folder: str):
    for file in sorted((ROOT / "src" / folder).rglob("*.cc")):
        if not file.stem.endswith("_test"):
            path = file.relative_to(ROOT)
            yield from ((path, m) for m in mutants_of(file.read_text()) if m.old != m.new)


def draw(folders: list[str], seed: int):
    """Mutants without end, of one folder after the other."""
    rng = random.Random(seed)
    queues = [list(mutants_in(folder)) for folder in folders]
    for queue in queues:
        rng.shuffle(queue)
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.pop()


def read_rows(out: Path) -> list[dict]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def counts_of(rows: list[dict]) -> int:
    return sum(row["verdict"] in ("killed", "survived") for row in rows)


def report(rows: list[dict]) -> str:
    counts = collections.Counter((row["path"].split("/")[1], row["verdict"]) for row in rows)
    lines = ["| folder | mutants | killed | survived | killed, % |", "|---|--:|--:|--:|--:|"]
    for folder in [*dict.fromkeys(folder for folder, _ in counts), "all"]:
        n = {
            verdict: sum(c for (of, v), c in counts.items() if v == verdict and folder in (of, "all"))
            for verdict in ("killed", "survived")
        }
        total = n["killed"] + n["survived"]
        if total > 0:
            share = 100 * n["killed"] / total
            lines.append(f"| {folder} | {total} | {n['killed']} | {n['survived']} | {share:.1f} |")
    for verdict, words in [("refused", "did not compile"), ("same", "compile to the same code")]:
        lines += ["", f"{sum(row['verdict'] == verdict for row in rows)} more {words}."]
    lines += ["", "Survivors:", ""]
    for row in rows:
        if row["verdict"] == "survived":
            lines.append(f"- `{row['path']}:{row['line']}`: `{row['old']}` to `{row['new']}` in `{row['text']}`")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=0, help="mutants that count, with those that --out has")
    parser.add_argument("--at", help="PATH:LINE: every mutant of one line")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folders", default=",".join(FOLDERS), help="of src/ (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutants.jsonl", help="one line a mutant; is added to")
    parser.add_argument("--report", type=Path, help="writes a table and the survivors here")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="up to date, with all tests")
    parser.add_argument("--most-seconds", type=float, default=60, help="for the tests of one mutant")
    parser.add_argument("--most-seconds-of-one", type=float, default=12, help="of longer programs some cases run")
    parser.add_argument("--without", default="", help="programs whose names begin so are left out: conformance_,eval_")
    parser.add_argument("--minutes", type=float, default=1e9, help="no mutant is begun after so many")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()

    rows = read_rows(args.out)
    if args.n > 0 or args.at:
        head = run("git", "-C", str(ROOT), "rev-parse", "HEAD", check=True).stdout.strip()
        without = tuple(name for name in args.without.split(",") if name)
        runner = Runner(Build(args.build.resolve(), args.most_seconds_of_one, without), args.most_seconds)
        if args.at:
            at, line = args.at.rsplit(":", 1)
            drawn = ((Path(at), m) for m in mutants_of((ROOT / at).read_text()) if m.old != m.new)
            queue, args.n = iter([(p, m) for p, m in drawn if m.line == int(line)]), 1 << 30
        else:
            queue = draw(args.folders.split(","), args.seed)
        known = {(row["path"], row["line"], row["column"], row["new"], row["text"]) for row in rows}
        lock, until = threading.Lock(), time.monotonic() + 60 * args.minutes
        args.out.parent.mkdir(parents=True, exist_ok=True)

        def work() -> None:
            while True:
                with lock:
                    if counts_of(rows) >= args.n or time.monotonic() > until:
                        return
                    path, mutant = next(queue, (None, None))
                    if path is None:
                        return
                    text = (ROOT / path).read_text().split("\n")[mutant.line - 1].strip()
                    if (str(path), mutant.line, mutant.column, mutant.new, text) in known:
                        continue
                verdict, test = runner.verdict(path, mutant)
                row = {"head": head, "path": str(path), "line": mutant.line, "column": mutant.column}
                row |= {"old": mutant.old, "new": mutant.new, "kind": mutant.kind, "text": text}
                row |= {"verdict": verdict, "test": test}
                with lock:
                    rows.append(row)
                    with args.out.open("a") as out:
                        out.write(json.dumps(row) + "\n")
                    print(f"{verdict:8} {path}:{mutant.line} {mutant.old} -> {mutant.new} {test}", file=sys.stderr)

        with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
            for worker in [pool.submit(work) for _ in range(args.jobs)]:
                worker.result()
    if args.report:
        args.report.write_text(report(rows))
    else:
        print(report(rows), end="")


if __name__ == "__main__":
    main()
