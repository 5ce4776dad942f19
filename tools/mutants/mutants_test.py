# SPDX-License-Identifier: Apache-2.0
"""python3 -m unittest tools.mutants.mutants_test"""

import unittest

from tools.mutants.mutate import mutants_of, without_text
from tools.mutants.run import cases_that_fit

SOURCE = """\
// a < b
int32_t kMost = 3;
int F(std::vector<int>* v, const T& t, bool on) {
  if (v->empty() && !on) return 0;
  while (Next(t)) v->push_back("1 < 2"[0] + 1);
  if (const int n = G(); n > 2) return n * 2;
  return on ? true : v->size() <= 1;
}
"""


class MutantsTest(unittest.TestCase):
    def changed(self) -> set[str]:
        out = set()
        for mutant in mutants_of(SOURCE):
            if mutant.old != mutant.new:
                out.add(mutant.apply(SOURCE).split("\n")[mutant.line - 1].strip())
        return out

    def test_one_place_of_one_line(self):
        changed = self.changed()
        for line in [
            "if (v->empty() || !on) return 0;",
            "if (v->empty() && on) return 0;",
            "if (v->empty() && !on) return 1;",
            "if (!(v->empty() && !on)) return 0;",
            'while (!(Next(t))) v->push_back("1 < 2"[0] + 1);',
            'while (Next(t)) v->push_back("1 < 2"[0] - 1);',
            "if (const int n = G(); n >= 2) return n * 2;",
            "if (const int n = G(); n > 2) return n / 2;",
            "return on ? false : v->size() <= 1;",
            "return on ? true : v->size() < 1;",
            "return on ? true : v->size() <= 0;",
        ]:
            self.assertIn(line, changed)

    def test_no_text_no_types_no_comments(self):
        for line in self.changed():
            self.assertNotIn("a <=", line)
            self.assertNotIn("kMost", line)
            self.assertNotIn('"1 <= 2"', line)
            self.assertNotIn("!(const int", line)

    def test_blanks_keep_places(self):
        self.assertEqual(
            [len(line) for line in without_text(SOURCE).split("\n")], [len(line) for line in SOURCE.split("\n")]
        )

    def test_of_long_programs_the_cases_that_fit(self):
        cases = [f"Folder/PolicyTest.Pins/{policy}_F16_{i}" for policy in ("h2o", "weir") for i in range(50)]
        named, takes = cases_that_fit(cases, "h2o", 100, 60)
        self.assertEqual((named, takes), (cases[:50], 50))
        spread, takes = cases_that_fit(cases, "attend", 100, 10)  # no case has this name
        self.assertEqual((spread, takes), (cases[::10], 10))
        self.assertEqual(cases_that_fit(cases, "h2", 100, 1000), (cases, 100))
        self.assertEqual(cases_that_fit([], "h2", 100, 10), ([], 0))


if __name__ == "__main__":
    unittest.main()
