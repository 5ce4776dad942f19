# SPDX-License-Identifier: Apache-2.0
"""Mutation testing: changes one operator, constant or condition of the library at a time, and runs the tests that
should notice.

    python3 tools/mutants/run.py --n 500 --seed 1 --out build/mutants.jsonl
    python3 tools/mutants/run.py --out build/mutants.jsonl --report build/mutants.md     # what there is so far

Works in a checkout and a build folder of its own below --tree, so that a run that is killed leaves nothing behind in
yours. A mutant is killed by a test that fails, crashes or takes ten times as long; it survives if none does. Tests run
in this order: the one beside the source, those of its folder, those of tests/conformance, the shortest first, until one
fails or --most-seconds are over. What the compiler refuses does not count. Folders take turns; within one, every
possible mutant is as likely. The same seed draws the same mutants from the same sources; those that --out has already
are not run again.
"""

import argparse
import collections
import json
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.mutants.mutate import Mutant, mutants_of  # noqa: E402

FOLDERS = ["policy", "kv", "engine", "io", "text", "ops"]


def run(*command: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(command, text=True, stdin=subprocess.DEVNULL, capture_output=True, **options)


class Tree:
    """A checkout with a build folder, and its tests."""

    def __init__(self, folder: Path, jobs: int, models: bool):
        self.source, self.build, self.jobs, self.models = folder / "source", folder / "build", jobs, models
        head = run("git", "-C", str(ROOT), "rev-parse", "HEAD", check=True).stdout.strip()
        if not self.source.exists():
            folder.mkdir(parents=True, exist_ok=True)
            run("git", "-C", str(ROOT), "worktree", "prune", check=True)
            run("git", "-C", str(ROOT), "worktree", "add", "--detach", str(self.source), head, check=True)
        run("git", "-C", str(self.source), "checkout", "--quiet", "--force", "--detach", head, check=True)
        self.head = head
        # Without optimisation it compiles sooner, but the tests of whole models take too long.
        made = run(
            "cmake", "-G", "Ninja", "-S", str(self.source), "-B", str(self.build), "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
            "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1", f"-DPython3_EXECUTABLE={sys.executable}",
        )  # fmt: skip
        if made.returncode != 0:
            sys.exit(f"mutants: error: cmake failed: {made.stderr[-2000:]}")
        listed = run("ctest", "--test-dir", str(self.build), "--show-only=json-v1", check=True)
        # A program has the name of its test.
        self.tests = []
        for test in json.loads(listed.stdout)["tests"]:
            labels = [p["value"] for p in test["properties"] if p["name"] == "LABELS"]
            if test["name"].endswith("_test") and not any("slow" in found for found in labels):
                self.tests.append(test["name"])
        if not self.tests:
            sys.exit("mutants: error: the build has no tests")
        self.usual = {}  # seconds that a test takes, as it is

    def tests_of(self, path: Path) -> list[list[str]]:
        """Names, in the groups in which they are built and run."""
        folder, stem = path.parts[1], path.stem
        beside = [name for name in self.tests if name == f"{folder}_{stem}_test"]
        same = [name for name in self.tests if name.startswith(f"{folder}_") and name not in beside]
        whole = [name for name in self.tests if name.startswith("conformance_") and self.models]
        return [beside, same, whole]

    def make(self, names: list[str]) -> bool:
        return run("cmake", "--build", str(self.build), "-j", str(self.jobs), "--target", *names).returncode == 0

    def passes(self, name: str, most_seconds: float) -> bool:
        [program] = [path for path in (self.build / name, self.build / "tests" / name) if path.exists()]
        try:
            return run(str(program), cwd=self.build, timeout=most_seconds).returncode == 0
        except subprocess.TimeoutExpired:
            return False

    def measure(self, names: list[str]) -> None:
        """The time of tests that were not run before, without a mutant; those that fail then are left out."""
        new = [name for name in names if name not in self.usual]
        if new and not self.make(new):
            sys.exit(f"mutants: error: the tests do not compile as they are: {' '.join(new)}")
        for name in new:
            start = time.monotonic()
            if self.passes(name, 1800):
                self.usual[name] = time.monotonic() - start
            else:
                print(
                    f"mutants: {name} fails without a mutant, or takes more than half an hour: left out",
                    file=sys.stderr,
                )
                self.usual[name] = None

    def verdict(self, path: Path, mutant: Mutant, most_seconds: float) -> tuple[str, str]:
        """killed, survived or refused; and the test that noticed."""
        file = self.source / path
        text = file.read_text()
        left = most_seconds
        for names in self.tests_of(path):
            self.measure(names)
            names = sorted((name for name in names if self.usual[name] is not None), key=lambda name: self.usual[name])
            if not names:
                continue
            try:
                file.write_text(mutant.apply(text))
                if not self.make(names):
                    return "refused", ""
                for name in names:
                    if self.usual[name] > left:
                        break
                    left -= self.usual[name]
                    if not self.passes(name, 10 * self.usual[name] + 10):
                        return "killed", name
            finally:
                file.write_text(text)
        return "survived", ""


def draw(tree: Tree, folders: list[str], seed: int):
    """Mutants without end, of one folder after the other."""
    rng = random.Random(seed)
    queues = []
    for folder in folders:
        queue = []
        for file in sorted((tree.source / "src" / folder).rglob("*.cc")):
            if not file.stem.endswith("_test"):
                path = file.relative_to(tree.source)
                queue += [(path, m) for m in mutants_of(file.read_text()) if m.old != m.new]
        rng.shuffle(queue)
        queues.append(queue)
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.pop()


def read_rows(out: Path) -> list[dict]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


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
    lines += ["", "Survivors:", ""]
    for row in rows:
        if row["verdict"] == "survived":
            lines.append(f"- `{row['path']}:{row['line']}`: `{row['old']}` to `{row['new']}` in `{row['text']}`")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=0, help="mutants that count, with those that --out has")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folders", default=",".join(FOLDERS), help="of src/ (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=ROOT / "build/mutants.jsonl", help="one line a mutant; is added to")
    parser.add_argument("--report", type=Path, help="writes a table and the survivors here")
    parser.add_argument("--tree", type=Path, default=ROOT / "build/mutants", help="its checkout and build")
    parser.add_argument("--most-seconds", type=float, default=120, help="for the tests of one mutant")
    parser.add_argument(
        "--no-models", action="store_true", help="leaves out tests/conformance, which take most of the time"
    )
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()

    rows = read_rows(args.out)
    if args.n > 0:
        tree = Tree(args.tree.resolve(), args.jobs, not args.no_models)
        known = {(row["head"], row["path"], row["line"], row["column"], row["new"]) for row in rows}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with args.out.open("a") as out:
            for path, mutant in draw(tree, args.folders.split(","), args.seed):
                if sum(row["verdict"] != "refused" for row in rows) >= args.n:
                    break
                if (tree.head, str(path), mutant.line, mutant.column, mutant.new) in known:
                    continue
                text = (tree.source / path).read_text().split("\n")[mutant.line - 1].strip()
                verdict, test = tree.verdict(path, mutant, args.most_seconds)
                row = {"head": tree.head, "path": str(path), "line": mutant.line, "column": mutant.column}
                row |= {"old": mutant.old, "new": mutant.new, "kind": mutant.kind, "text": text}
                row |= {"verdict": verdict, "test": test}
                rows.append(row)
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(f"{verdict:8} {path}:{mutant.line} {mutant.old} -> {mutant.new} {test}", file=sys.stderr)
    if args.report:
        args.report.write_text(report(rows))
    else:
        print(report(rows), end="")


if __name__ == "__main__":
    main()
