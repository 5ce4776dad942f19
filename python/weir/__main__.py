# SPDX-License-Identifier: Apache-2.0
"""`weir` and `python -m weir`: the program of this package."""

import os
import sys

from ._program import find_program


def main() -> None:
    """Becomes the program, with this process's arguments."""
    try:
        program = find_program()
    except FileNotFoundError as error:
        sys.exit(f"weir: {error}")
    os.execv(program, ["weir", *sys.argv[1:]])


if __name__ == "__main__":
    main()
