# SPDX-License-Identifier: Apache-2.0
"""Models of the tests of the package weir, and streams for them.

From the root of a checkout: WEIR_LIBRARY=build/release/libweir.so PYTHONPATH=python python3 -m unittest
tests.python.package_test
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "golden" / "models" / "llama.gguf"
LLAVA = ROOT / "tests" / "golden" / "vision" / "llava.gguf"
CLIP = ROOT / "tests" / "golden" / "vision" / "clip.gguf"
WORDS = "the man and the sea, the boat and the river, a house by the road; "


def ids(n, first=0):
    """Token ids of a small vocabulary, in no simple order."""
    return [5 + (first + i) * (first + i + 3) % 97 for i in range(n)]


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
