# SPDX-License-Identifier: Apache-2.0
"""`weir` and `python -m weir`: the program of this package."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Becomes the program, with this process's arguments."""
    program = Path(__file__).parent / "_bin" / "weir"
    if not program.is_file():
        sys.exit("weir: this copy of the package has no program in it; build/release/weir of a checkout is one")
    os.execv(program, ["weir", *sys.argv[1:]])


if __name__ == "__main__":
    main()
