# SPDX-License-Identifier: Apache-2.0
"""The list of tables and figures, the page with their figures, and the program's flags agree."""

import contextlib
import io
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

from tools.papers import ENTRIES
from tools.papers.entry import DRAWING, MADE, MISSING, PARTLY, ROOT, STATES, Setting
from tools.papers.run import make

PAGE = (ROOT / "docs/results/papers.md").read_text(encoding="utf-8")
WEIR = os.environ.get("WEIR", "")


def setting(given):
    paths = {"model": "/m.gguf", "mmproj": "/p.gguf", "text": __file__, "data": "/d"}
    return Setting(weir=WEIR or "weir", out=Path("/nowhere"), **paths, n=2, threads=1, model_given=given)


class EntriesTest(unittest.TestCase):
    def test_the_page_has_a_row_for_each(self):
        rows = dict(re.findall(r"^\| ([a-z0-9-]+/[a-z0-9.-]+) \| ([a-z ]+) \|", PAGE, re.MULTILINE))
        self.assertEqual(rows, {entry.name: entry.state for entry in ENTRIES})
        self.assertEqual(len(ENTRIES), len({entry.name for entry in ENTRIES}))

    def test_states_say_what_they_promise(self):
        for entry in ENTRIES:
            with self.subTest(entry.name):
                self.assertIn(entry.state, STATES)
                self.assertEqual(entry.steps is not None, entry.state in (MADE, PARTLY))
                if entry.state in (PARTLY, MISSING):
                    self.assertTrue(entry.differs, "what is missing, or why, must be said")
                if entry.state == DRAWING:
                    self.assertFalse(entry.needs)

    def test_links_of_the_page_lead_somewhere(self):
        for target in re.findall(r"\]\(([^)#:]+\.md)\)", PAGE):
            self.assertTrue((ROOT / "docs/results" / target).is_file(), target)

    def test_a_dry_run_runs_nothing(self):
        for entry in ENTRIES:
            for given in (False, True):
                if entry.steps:
                    with contextlib.redirect_stderr(io.StringIO()) as shown:
                        make(entry, setting(given), dry_run=True)
                    self.assertIn("$ ", shown.getvalue())

    @unittest.skipUnless(WEIR, "WEIR names no program")
    def test_the_program_knows_the_commands(self):
        """Every flag and policy: with a model that is not there, that is the only complaint."""
        for entry in ENTRIES:
            for step in entry.steps(setting(True)) if entry.steps else []:
                if step.argv[0] != WEIR or step.argv[1] == "trace":
                    continue
                with self.subTest(entry.name):
                    got = subprocess.run(step.argv, capture_output=True, text=True, check=False)
                    self.assertIn("/m.gguf", got.stderr + got.stdout, step.argv)

    def test_the_script_lists_and_refuses(self):
        def paper(*arguments):
            command = [sys.executable, str(ROOT / "tools/papers/run.py"), *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        listed = paper("--list").stdout
        for entry in ENTRIES:
            self.assertRegex(listed, rf"(?m)^{re.escape(entry.name)} +{entry.state}")
        self.assertIn("--list", paper("inf-mllm/table-9").stderr)
        self.assertIn("--text", paper("inf-mllm/figure-5").stderr)
        self.assertIn("not made", paper("inf-mllm/figure-6").stderr)


if __name__ == "__main__":
    unittest.main()
