# SPDX-License-Identifier: Apache-2.0
"""python3 -m unittest tools.mutants.mutants_test; needs Debian's python3-clang-14."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

if not importlib.util.find_spec("clang"):
    raise unittest.SkipTest("no clang.cindex")

from tools.mutants.mutate import HEADER, SOURCE, Mutant, mutants_of, on_line, with_mutants
from tools.mutants.run import spread

MAIN = """
int main() {
  int sum = n_called = 0;
  for (int a = 0; a < 6; a++) {
    for (int b = 1; b < 4; b++) sum = sum * 7 + F(a, b, false) + n_called;
  }
  return sum & 127;
}
"""
SOURCE_TEXT = """\
// a < b
#include <algorithm>
#define IS(x) ((x) < 1)
constexpr int kMost = 3 + 1;
int n_called = 0;
constexpr int Twice(int n) { return 2 * n; }
bool Next(int n) { n_called += 1; return n > 1; }
int F(int a, int b, bool on) {
  if (a < b && !on) return 0;
  while (on) on = Next(a);
  if (const int n = Twice(b); n > 2) Next(n);
  int many[3] = {std::min(a, b), "1 < 2"[0], IS(a)};
  switch (a) { case 5: return many[0] + kMost; }
  return on ? a : b * (a - b);
}
"""


def all_of(text: str) -> list:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.cc")
        return mutants_of(path, ["-std=c++20"], text.encode())


class MutantsTest(unittest.TestCase):
    def test_places(self):
        found = {(m.line, m.old, m.new) for m in all_of(SOURCE_TEXT)}
        for place in [
            (9, "<", "<="), (9, "<", ">="), (9, "&&", "||"), (9, "!", ""), (9, "a < b && !on", "!(a < b && !on)"),
            (9, "0", "1"), (10, "on", "!(on)"), (10, "on = Next(a)", ""), (11, ">", ">="), (11, "2", "3"),
            (11, "Next(n)", ""), (12, "std::min", "std::max"),
            (13, "+", "-"), (14, "on", "!(on)"), (14, "*", "/"), (14, "-", "+"),
            (7, "+=", "-="), (7, "n_called += 1", ""), (7, "1", "0"), (7, "1", "2"),
        ]:  # fmt: skip
            self.assertIn(place, found)
        # No text, macro or constant expression.
        self.assertFalse({line for line, *_ in found} & {1, 3, 4, 6})
        self.assertFalse({old for line, old, _ in found if line in (12, 13)} & {"<", "1", "5"})

    def test_one_of_many_holds(self):
        mutants = dict(enumerate(all_of(SOURCE_TEXT), 1))
        text = with_mutants(SOURCE_TEXT.encode(), mutants)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "base").mkdir()
            (folder / "base/weir_mutant.h").write_text(HEADER)
            (folder / "mutant.cc").write_text(SOURCE % (len(mutants) + 1))
            compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("clang++")
            left = dict(mutants)
            while True:
                (folder / "x.cc").write_bytes(with_mutants(SOURCE_TEXT.encode(), left) + MAIN.encode())
                words = [compiler, "-std=c++20", "-w", f"-I{folder}", "x.cc", "mutant.cc", "-o", "x"]
                told = subprocess.run(words, cwd=folder, capture_output=True, text=True)
                if told.returncode == 0:
                    break
                lines = [
                    int(row.split(":")[1])
                    for row in told.stderr.splitlines()
                    if row.startswith("x.cc:") and "error" in row
                ]
                gone = set().union(*(on_line(text, line) for line in lines))
                self.assertTrue(gone, told.stderr)
                left = {n: m for n, m in left.items() if n not in gone}
                text = with_mutants(SOURCE_TEXT.encode(), left)

            def ends(**environment: str) -> int:
                return subprocess.run([folder / "x"], env=environment, timeout=20).returncode

            as_it_is = ends()
            self.assertEqual(ends(WEIR_MUTANT=str(len(mutants) + 1)), as_it_is)
            number = {(m.line, m.old, m.new): n for n, m in left.items()}
            for place in [(9, "<", ">="), (14, "-", "+"), (11, "Next(n)", ""), (7, "n_called += 1", "")]:
                self.assertNotEqual(ends(WEIR_MUTANT=str(number[place])), as_it_is, place)
            marks = folder / "marks"
            marks.write_bytes(bytes(len(mutants) + 1))
            self.assertEqual(ends(WEIR_MUTANT_SEEN=str(marks)), as_it_is)
            seen = marks.read_bytes()
            self.assertEqual(seen[number[9, "<", "<="]], 1)
            self.assertEqual(seen[number[10, "on = Next(a)", ""]], 0)  # it is never on

    def test_places_inside_each_other(self):
        outer = Mutant(0, 5, 1, 3, "operator", "<", "<=", "", "a <= b")
        inner = Mutant(4, 5, 1, 5, "constant", "b", "c", "", "c")
        left_out = Mutant(0, 5, 1, 1, "statement", "a < b", "", "void", "void()")
        self.assertEqual(
            with_mutants(b"a < b;", {1: left_out, 2: outer, 3: inner}),
            b"(::weir_mutant::On(1) ? (void()) : void((::weir_mutant::On(2) ? (a <= b) : "
            b"(a < (::weir_mutant::On(3) ? (c) : (b))))));",
        )
        self.assertEqual(on_line(b"x\n::weir_mutant::On(4) ?\n1\n", 3), {4})

    def test_spread(self):
        names = [str(n) for n in range(100)]
        parts = spread(names)
        self.assertEqual(sorted(sum(parts, [])), sorted(names))
        self.assertEqual(parts[0], names[::16])
        self.assertEqual(spread(["a"]), [["a"], []])
        self.assertEqual(spread([]), [[], []])


if __name__ == "__main__":
    unittest.main()
