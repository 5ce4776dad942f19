# SPDX-License-Identifier: Apache-2.0
"""Where the program `weir` is."""

from __future__ import annotations

import os
from pathlib import Path

from . import _library


def find_program() -> Path:
    """WEIR_PROGRAM, or the one in this package, or the one beside the library: a build has both in one folder.
    FileNotFoundError if there is none."""
    if given := os.environ.get("WEIR_PROGRAM"):
        return Path(given)
    for place in (Path(__file__).parent / "_bin" / "weir", Path(_library.PATH).parent / "weir"):
        if place.is_file():
            return place
    raise FileNotFoundError(
        "this copy of the package has no program in it; set WEIR_PROGRAM to the `weir` of a build (build/release/weir)"
    )
