# SPDX-License-Identifier: Apache-2.0
"""python3 -m unittest tools.sbom_test, with WEIR_BUILD: a build folder with the program"""

import os
import re
import subprocess
import unittest
from pathlib import Path

from tools.sbom import ROOT, bom

BUILD = Path(os.environ.get("WEIR_BUILD", ROOT / "build/release"))


class SbomTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.bom = bom(BUILD)
        cls.parts = cls.bom["components"]

    def of(self, how: str) -> list[dict]:
        return [part for part in self.parts if {"name": "weir:how", "value": how} in part["properties"]]

    def test_every_library_that_the_program_loads_is_there(self):
        told = subprocess.run(["readelf", "-d", BUILD / "weir"], capture_output=True, text=True, check=True).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", told))
        ours = set()
        for part in self.of("loaded"):
            ours |= {entry["value"] for entry in part["properties"] if entry["name"] == "weir:library"}
        self.assertTrue(needed)
        self.assertEqual(needed - ours, set())

    def test_versions_are_known_and_right(self):
        for part in [*self.of("linked"), *self.of("headers")]:
            self.assertRegex(part.get("version", ""), r"^\d+(\.\d+)*", part["name"])
        cache = (BUILD / "CMakeCache.txt").read_text()
        [png] = [part for part in self.parts if part["name"] == "libpng"]
        self.assertEqual(png["version"], re.search(r"^LIBPNG_VERSION:INTERNAL=(.+)$", cache, re.M)[1])
        version = subprocess.run([BUILD / "weir", "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(version.split()[-1], self.bom["metadata"]["component"]["version"])

    def test_each_is_named_once_and_what_the_program_needs_hangs_on_it(self):
        refs = [part["bom-ref"] for part in self.parts]
        self.assertEqual(len(refs), len(set(refs)))
        needed = {part["bom-ref"] for part in self.parts if part["scope"] != "excluded"}
        self.assertEqual(set(self.bom["dependencies"][0]["dependsOn"]), needed)
        self.assertIn("numpy", {part["name"] for part in self.of("python")})
        self.assertEqual(self.bom, bom(BUILD))


if __name__ == "__main__":
    unittest.main()
