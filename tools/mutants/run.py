# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one operator, constant, condition or statement of the library at a time, and runs the tests
that should notice.

    python3 tools/mutants/run.py --n 600 --seed 1 --out build/mutants.jsonl
    python3 tools/mutants/run.py --out build/mutants.jsonl --report build/mutants.md     # what there is so far
    python3 tools/mutants/run.py --n 600 --seed 1 --out build/mutants.jsonl --again      # survivors, with new tests
    python3 tools/mutants/run.py --at src/policy/a_vl.cc:241                             # those of one line

One build holds all mutants that were drawn (mutate.py): a copy of the tree in build/mutants, with a build folder of its
own. There WEIR_MUTANT=n says which one holds, for a test and for every `weir` that it starts. Each case of each test
program runs once with none, which tells how long it takes and which mutants it reaches. Then each mutant gets the
cases that reach it: two that have killed mutants of the same source before, those of the source's folder, then the
others, quick programs first; until one fails, crashes or takes ten times as long, or --most-seconds of them have
passed, a quarter of it in one program. Time is processor time; of a program that takes more than
--most-seconds-of-one, evenly spread cases run, as many as fit. A mutant that no case reaches survives without a run.

Folders take turns; within one, every possible mutant is as likely. The same seed draws the same mutants, whatever
changed elsewhere; those that --out has already are not run again. What does not compile is left out.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TREE = ROOT / "build/mutants/tree"
BUILD = TREE / "build/release"
sys.path.insert(0, str(ROOT))

try:
    from tools.mutants.mutate import HEADER, SOURCE, Mutant, flags_of, mutants_of, on_line, with_mutants
except ImportError:
    sys.exit("mutants: error: apt-get install python3-clang-14, and run this with /usr/bin/python3 (WEIR_PYTHON)")

FOLDERS = ["policy", "kv", "engine", "io", "text", "ops"]
MOST_BYTES = 12 << 30  # of a test's address space
MOST_CASES = 400  # that are named in one command


def run(*command: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL, capture_output=True, **options)


def say(words: str) -> None:
    print(f"mutants: {words}", file=sys.stderr, flush=True)


# The tree that holds the mutants.


def write_if_other(path: Path, content: bytes, mode: int) -> None:
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)


def copy_tree(mutated: dict[str, bytes]) -> None:
    """The checkout's files, with what is not committed; files that stay the same are not touched, so that only others
    are compiled again."""
    listed = run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", check=True)
    names = {name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()}
    for name in sorted(names):
        file = ROOT / name
        write_if_other(TREE / name, mutated.get(name) or file.read_bytes(), file.stat().st_mode)
    for name, content in mutated.items():
        if name not in names:
            write_if_other(TREE / name, content, 0o644)
    for file in [file for file in (TREE / "src").rglob("*") if file.is_file()]:
        if (name := str(file.relative_to(TREE))) not in names and name not in mutated:
            file.unlink()


def configure() -> None:
    options = [f"-DPython3_EXECUTABLE={sys.executable}"]
    if shutil.which("ld.lld"):  # every program is linked, and lld is fast
        options += ["-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld", "-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld=lld"]
    told = run("cmake", "--preset", "release", *options, cwd=TREE)
    if told.returncode != 0:
        sys.exit(f"mutants: error: the build cannot be configured: {told.stderr[-2000:]}")


def places_in(name: str, flags: list[str], known: dict) -> list[Mutant]:
    """Of one source; `known` is what an earlier run found in the same text."""
    text = (ROOT / name).read_bytes()
    digest = hashlib.sha256(text + (ROOT / "tools/mutants/mutate.py").read_bytes()).hexdigest()
    if known.get("digest") != digest:
        found = [dataclasses.asdict(m) for m in mutants_of(TREE / name, flags, text)]
        known.update(digest=digest, mutants=found)
    return [Mutant(**m) for m in known["mutants"]]


def all_places(names: list[str], jobs: int) -> dict[str, list[Mutant]]:
    cache = TREE.parent / "places.json"
    known = json.loads(cache.read_text()) if cache.exists() else {}
    flags = {}
    for command in json.loads((BUILD / "compile_commands.json").read_text()):
        if found := re.search(r"CMakeFiles/weir_(\w+)\.dir/", command["command"]):
            flags.setdefault(found[1], flags_of(command["command"]))
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        asked = [pool.submit(found_in, name, flags[name.split("/")[1]], known.get(name, {})) for name in names]
        for name, one in zip(names, asked, strict=True):
            known[name] = one.result()
    cache.write_text(json.dumps(known))
    return {name: places_in(name, [], known[name]) for name in names}


def found_in(name: str, flags: list[str], known: dict) -> dict:
    places_in(name, flags, known)
    return known


def line_of(name: str, line: int) -> str:
    return (ROOT / name).read_text().split("\n")[line - 1].strip()


def draw(folders: list[str], seed: int, n: int, jobs: int) -> list[tuple[str, Mutant]]:
    """By a hash of what is changed, so that what happens elsewhere changes nothing."""
    names = [
        str(file.relative_to(ROOT))
        for folder in folders
        for file in sorted((ROOT / "src" / folder).rglob("*.cc"))
        if not file.stem.endswith("_test")
    ]
    queues, times = collections.defaultdict(list), collections.Counter()
    for name, mutants in all_places(names, jobs).items():
        lines = (ROOT / name).read_text().split("\n")
        for m in mutants:
            what = f"{seed}:{name}:{lines[m.line - 1].strip()}:{m.column}:{m.kind}:{m.old}:{m.new}"
            times[what] += 1
            key = hashlib.sha256(f"{what}:{times[what]}".encode()).digest()
            queues[name.split("/")[1]].append((key, name, m))
    ordered = [sorted(queue, key=lambda row: row[0]) for queue in queues.values()]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*ordered))
    return [(name, m) for _, name, m in itertools.islice(filter(None, turns), n)]


def build(drawn: dict[int, tuple[str, Mutant]], targets: list[str], jobs: int) -> set[int]:
    """Compiles what the tests need; tells which mutants were left out because the compiler refuses them."""
    cache = TREE.parent / "refused.json"  # of an earlier run
    refused = {tuple(key) for key in json.loads(cache.read_text())} if cache.exists() else set()
    out = {n for n, (name, mutant) in drawn.items() if (name, *dataclasses.astuple(mutant)) in refused}
    while True:
        of_file = collections.defaultdict(dict)
        for n, (name, mutant) in drawn.items():
            if n not in out:
                of_file[name][n] = mutant
        mutated = {name: with_mutants((ROOT / name).read_bytes(), mutants) for name, mutants in of_file.items()}
        mutated["src/base/weir_mutant.h"] = HEADER.encode()
        mutated["src/base/weir_mutant.cc"] = (SOURCE % (max(drawn, default=0) + 1)).encode()
        copy_tree(mutated)
        configure()
        say(f"builds with {len(drawn) - len(out)} mutants in {len(of_file)} sources")
        told = run("ninja", "-C", str(BUILD), "-j", str(jobs), "-k", "0", *targets)
        if told.returncode == 0:
            cache.write_text(
                json.dumps([(name, *dataclasses.astuple(mutant)) for n, (name, mutant) in drawn.items() if n in out])
            )
            return out
        errors = re.findall(r"(\S*src/\w[\w/.-]*\.cc):(\d+):\d+: (?:\S*\[\w*)*(?:fatal )?error", told.stdout)
        errors = {(path[path.index("src/") :], int(line)) for path, line in errors}
        found = set()
        for name, line in errors:
            if name in of_file:
                found |= on_line(mutated[name], line) or set(of_file[name])
        if not found:
            sys.exit(f"mutants: error: the build fails, and no mutant says why:\n{told.stdout[-3000:]}")
        out |= found


# The tests, and what they reach.


@dataclasses.dataclass
class Case:
    test: str  # as CTest calls it
    name: str  # a case of GoogleTest; empty: all of the test
    seconds: float = 0
    passes: bool = False
    seen: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return f"{self.test} {self.name}".strip()


def listed(chosen: str, without: str) -> dict[str, tuple[list[str], dict]]:
    """The command and properties of each test that runs what the build made; no command for what is not made yet."""
    out = {}
    for test in json.loads(run("ctest", "--test-dir", str(BUILD), "--show-only=json-v1", check=True).stdout)["tests"]:
        of = {p["name"]: p["value"] for p in test["properties"]}
        command = test.get("command", [])
        ours = any(str(BUILD) in word for word in command + of.get("ENVIRONMENT", [])) or not command
        named = re.search(chosen, test["name"]) and not (without and re.search(without, test["name"]))
        if ours and named and "slow" not in of.get("LABELS", []):
            out[test["name"]] = (command, of)
    return out


def targets(tests: dict[str, tuple[list[str], dict]]) -> list[str]:
    """Of the build, for these tests: a test program has the name of its test."""
    out = set()
    for name, (command, _) in tests.items():
        out |= {name} if not command or Path(command[0]).name == name else {"weir", "weir_shared"}
    return sorted(out)


class Tests:
    def __init__(self, listed: dict[str, tuple[list[str], dict]], n_mutants: int, most_seconds_of_one: float):
        self.n_mutants, self.most_seconds_of_one = n_mutants, most_seconds_of_one
        self.listed = {name: told for name, told in listed.items() if told[0]}
        self.cases: list[Case] = []

    def run_cases(self, cases: list[Case], environment: dict[str, str], most_seconds: float) -> tuple[str, float]:
        """Of one test: which case fails first ("": none does), and the processor time of all with their children."""
        command, of = self.listed[cases[0].test]
        environment = os.environ | dict(pair.split("=", 1) for pair in of.get("ENVIRONMENT", [])) | environment
        if cases[0].name:
            command = [*command, "--gtest_fail_fast", "--gtest_filter=" + ":".join(case.name for case in cases)]
        with tempfile.TemporaryDirectory(prefix="weir_mutant_", ignore_cleanup_errors=True) as where:
            with open(f"{where}/out", "wb") as out:
                process = subprocess.Popen(
                    command, cwd=of.get("WORKING_DIRECTORY", BUILD), stdin=subprocess.DEVNULL, stdout=out,
                    stderr=subprocess.DEVNULL, env=environment | {"TMPDIR": where, "TEST_TMPDIR": f"{where}/"},
                    preexec_fn=lambda: limit(most_seconds), start_new_session=True,
                )  # fmt: skip
                status, seconds = wait(process, 3 * most_seconds + 30)
            end_group(process.pid)  # servers that it left
            if status in (0, of.get("SKIP_RETURN_CODE", 0)):
                return "", seconds
            told = Path(where, "out").read_text(errors="replace")
        failed = re.search(r"^\[  FAILED  \] ([^\s,]+)", told, re.MULTILINE)  # those behind it are begun and skipped
        begun = re.findall(r"^\[ RUN      \] (\S+)", told, re.MULTILINE)
        name = failed[1] if failed else begun[-1] if begun else cases[0].name or cases[0].test
        return name, seconds

    def names_of(self, test: str) -> list[str]:
        """The cases of a test program; one without a name for other tests."""
        command, _ = self.listed[test]
        if len(command) > 1 or Path(command[0]).name != test:
            return [""]
        told = run(command[0], "--gtest_list_tests", cwd=BUILD)
        out, suite = [], ""
        for line in told.stdout.splitlines():
            line = line.split("#")[0].rstrip()
            if line.startswith("  ") and "DISABLED_" not in suite + line:
                out.append(suite + line.strip())
            elif not line.startswith("  "):
                suite = line
        return out

    def record(self, jobs: int) -> None:
        """What each case reaches; of programs that are as they were, an earlier run has told."""
        cache = TREE.parent / "seen.json"
        known = json.loads(cache.read_text()) if cache.exists() else {}
        shared = digest_of(BUILD / "weir") + digest_of(BUILD / "libweir.so")
        digests = {}
        for test, (command, _) in self.listed.items():
            starts = test.startswith(("cli_", "serve_http_", "serve_client_")) or Path(command[0]).name != test
            digests[test] = digest_of(Path(command[0])) + (shared if starts else "") + f"{self.most_seconds_of_one}"
        pool = concurrent.futures.ThreadPoolExecutor(jobs)
        for i, test in enumerate(sorted(self.listed)):
            if known.get(test, {}).get("digest") != digests[test]:
                names, rows = self.names_of(test), []
                for some in spread(names):
                    rows += pool.map(lambda name, test=test: self.look(Case(test, name)), some)
                    took = sum(row["seconds"] for row in rows)
                    if took > self.most_seconds_of_one / 2:  # the next ones are as many again
                        break
                known[test] = {"digest": digests[test], "cases": rows}
                cache.write_text(json.dumps(known))
                say(f"{i + 1} of {len(self.listed)}: {test}, {len(rows)} of {len(names)} cases, {took:.0f} s")
            for row in known[test]["cases"]:
                self.cases.append(Case(test, row["name"], row["seconds"], row["passes"], frozenset(row["seen"])))
        for case in self.cases:
            if not case.passes:
                say(f"{case} fails without a mutant: left out")

    def look(self, case: Case) -> dict:
        with tempfile.NamedTemporaryFile(prefix="weir_seen_") as marks:
            marks.write(bytes(self.n_mutants + 1))
            marks.flush()
            failed, seconds = self.run_cases([case], {"WEIR_MUTANT_SEEN": marks.name}, 600)
            marks.seek(0)
            seen = [n for n, byte in enumerate(marks.read()) if byte]
        return {"name": case.name, "seconds": round(seconds, 3), "passes": not failed, "seen": seen}


def spread(names: list[str]) -> list[list[str]]:
    """All of them in parts, the first with a few that are far from each other, each next one with as many again."""
    step, parts, seen = 1 << max(len(names) // 8, 1).bit_length(), [], set()
    while step:
        parts.append([name for name in names[::step] if name not in seen])
        seen.update(parts[-1])
        step //= 2
    return parts


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def limit(seconds: float) -> None:
    """Of this process: processor time, which says more than the clock on a machine with other work."""
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds), math.ceil(seconds)))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def wait(process: subprocess.Popen, most_seconds: float) -> tuple[int, float]:
    """Its status and processor time. What waits for ever is ended; time in which this process itself was stopped does
    not count."""
    passed, pause = 0.0, 0.001
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode, usage.ru_utime + usage.ru_stime
        if passed > most_seconds:
            end_group(process.pid)
        before = time.monotonic()
        time.sleep(pause)
        passed += min(time.monotonic() - before, 2 * pause)
        pause = min(2 * pause, 0.05)


def end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


# The mutants, one after the other.


class Trial:
    def __init__(self, tests: Tests, most_seconds: float):
        self.tests, self.most_seconds = tests, most_seconds
        self.killers = collections.defaultdict(collections.Counter)  # of a source's mutants
        self.sound = {}  # whether a case passes when it is asked again without a mutant
        self.reaching = collections.defaultdict(list)
        for at, case in enumerate(tests.cases):
            for n in case.seen if case.passes else ():
                self.reaching[n].append(at)

    def order(self, n: int, name: str) -> list[list[int]]:
        """Places in the list of cases that are run at once: of one test each."""
        cases, near = self.tests.cases, f"{name.split('/')[1]}_"
        reach = set(self.reaching[n])
        first = [at for at, _ in self.killers[name].most_common() if at in reach][:2]
        of_test = collections.defaultdict(list)
        for at in sorted(reach - set(first), key=lambda at: cases[at].seconds):
            of_it = of_test[cases[at].test]
            if len(of_it) < MOST_CASES and sum(cases[other].seconds for other in of_it) <= self.most_seconds / 4:
                of_it.append(at)
        seconds = {test: sum(cases[at].seconds for at in of_it) for test, of_it in of_test.items()}
        later = sorted(of_test, key=lambda test: (not test.startswith(near), seconds[test]))
        return [[at] for at in first] + [of_test[test] for test in later]

    def verdict(self, n: int, name: str) -> dict:
        """killed, survived or unreached; the case that noticed, and how many ran."""
        left, ran = self.most_seconds, 0
        for places in self.order(n, name):
            cases = [self.tests.cases[at] for at in places]
            seconds = sum(case.seconds for case in cases)
            if seconds > left:
                continue
            left -= seconds
            ran += len(cases)
            failed, _ = self.tests.run_cases(cases, {"WEIR_MUTANT": str(n)}, 10 * seconds + 5)
            at = next((at for at, case in zip(places, cases, strict=True) if case.name == failed), places[0])
            if failed and self.is_sound(at):
                self.killers[name][at] += 1
                return {
                    "verdict": "killed",
                    "test": str(self.tests.cases[at]),
                    "reach": len(self.reaching[n]),
                    "ran": ran,
                }
        verdict = "survived" if self.reaching[n] else "unreached"
        return {"verdict": verdict, "test": "", "reach": len(self.reaching[n]), "ran": ran}

    def is_sound(self, at: int) -> bool:
        if at not in self.sound:
            case = self.tests.cases[at]
            self.sound[at] = not self.tests.run_cases([case], {}, 10 * case.seconds + 30)[0]
            if not self.sound[at]:
                say(f"{case} fails without a mutant: does not count")
        return self.sound[at]


def read_rows(out: Path) -> dict[tuple, dict]:
    """The last one of each mutant."""
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    return {key_of(row): row for row in rows}


def key_of(row: dict) -> tuple:
    return tuple(row[part] for part in ("path", "line", "text", "column", "kind", "old", "new"))


def report(rows: list[dict]) -> str:
    counts = collections.Counter((row["path"].split("/")[1], row["verdict"]) for row in rows)
    lines = ["| folder | mutants | killed | survived | never reached | killed, % |", "|---|--:|--:|--:|--:|--:|"]
    for folder in [*(folder for folder in FOLDERS if any(folder == of for of, _ in counts)), "all"]:
        n = {
            verdict: sum(c for (of, v), c in counts.items() if v == verdict and folder in (of, "all"))
            for verdict in ("killed", "survived", "unreached")
        }
        if total := sum(n.values()):
            share = f"{100 * n['killed'] / total:.1f}"
            lines.append(f"| {folder} | {total} | {n['killed']} | {n['survived']} | {n['unreached']} | {share} |")
    lines += ["", "Survivors:", ""]
    for row in sorted(rows, key=lambda row: (row["path"], row["line"], row["column"])):
        if row["verdict"] != "killed":
            of = "" if row["verdict"] == "survived" else " (never reached)"
            change = f"`{row['old']}` to `{row['new']}`" if row["new"] else f"without `{row['old']}`"
            lines.append(f"- `{row['path']}:{row['line']}`{of}: {change} in `{row['text']}`")
    return "\n".join(lines) + "\n"


def try_mutants(args: argparse.Namespace, rows: dict[tuple, dict]) -> None:
    copy_tree({})
    configure()
    if args.at:
        name, line = args.at.rsplit(":", 1)
        found = [(name, m) for m in all_places([name], 1)[name] if m.line == int(line)]
    else:
        found = draw(args.folders.split(","), args.seed, args.n, args.jobs)
    drawn = dict(enumerate(found, 1))
    out = build(drawn, targets(listed(args.tests, args.without)), args.jobs)
    say(f"{len(out)} of {len(drawn)} do not compile")
    tests = Tests(listed(args.tests, args.without), len(drawn), args.most_seconds_of_one)
    tests.record(args.jobs)
    trial = Trial(tests, args.most_seconds)
    head = run("git", "-C", str(ROOT), "rev-parse", "HEAD", check=True).stdout.strip()
    queue, lock, until = iter(drawn.items()), threading.Lock(), time.monotonic() + 60 * args.minutes
    args.out.parent.mkdir(parents=True, exist_ok=True)

    def work() -> None:
        while time.monotonic() < until:
            with lock:
                n, (name, mutant) = next(queue, (0, ("", None)))
            if n == 0:
                return
            row = {"path": name, "line": mutant.line, "column": mutant.column, "kind": mutant.kind}
            row |= {"old": mutant.old, "new": mutant.new, "text": line_of(name, mutant.line), "n": n, "head": head}
            known = rows.get(key_of(row))
            if n in out or (known and (known["verdict"] == "killed" or not args.again)):
                continue
            row |= trial.verdict(n, name)
            with lock:
                rows[key_of(row)] = row
                with args.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                say(f"{n} {row['verdict']} {name}:{row['line']} {row['old']} -> {row['new']} {row['test']}")

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for worker in [pool.submit(work) for _ in range(args.jobs)]:
            worker.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=0, help="mutants that are drawn; a few do not compile")
    parser.add_argument("--at", help="PATH:LINE: every mutant of one line")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folders", default=",".join(FOLDERS), help="of src/ (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutants.jsonl", help="one line a mutant; is added to")
    parser.add_argument("--report", type=Path, help="writes a table and the survivors here")
    parser.add_argument("--again", action="store_true", help="runs those that survived again")
    parser.add_argument("--most-seconds", type=float, default=60, help="for the tests of one mutant")
    parser.add_argument("--most-seconds-of-one", type=float, default=30, help="of longer programs some cases run")
    parser.add_argument("--tests", default="", help="an expression, as of ctest -R: only tests whose names match run")
    parser.add_argument("--without", default="", help="as of ctest -E: tests whose names match are left out")
    parser.add_argument("--minutes", type=float, default=1e9, help="no mutant is begun after so many")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()

    rows = read_rows(args.out)
    if args.n > 0 or args.at:
        try_mutants(args, rows)
    told = report(list(rows.values()))
    if args.report:
        args.report.write_text(told)
    else:
        print(told, end="")


if __name__ == "__main__":
    main()
