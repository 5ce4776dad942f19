# SPDX-License-Identifier: Apache-2.0
"""Rows of `weir eval` and `weir bench`, and the names of their runs: shared by the tables and the charts."""

import json
import sys
from pathlib import Path


def pyplot():
    """matplotlib with a file-only backend; exits with one line if it is missing."""
    try:
        import matplotlib
    except ImportError as e:
        sys.exit(f"{Path(sys.argv[0]).name}: {e}; charts need it: python3 -m pip install matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "weir"  # the same rows give the same bytes
    import matplotlib.pyplot as plt

    return plt


def read(paths):
    rows = []
    for path in paths:
        with sys.stdin if path == "-" else open(path, encoding="utf-8") as f:
            for n, line in enumerate(f, 1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except ValueError as e:
                    sys.exit(f"{Path(sys.argv[0]).name}: {path}:{n}: not valid JSON: {e}")
                if not isinstance(row, dict):
                    sys.exit(f"{Path(sys.argv[0]).name}: {path}:{n}: expected an object")
                rows.append(row)
    return rows


def text_of(value):
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|")


def split(options):
    """Splits options at commas outside double quotes."""
    parts, quoted, start = [], False, 0
    for at, char in enumerate(options):
        if char == '"' and (at == 0 or options[at - 1] != "\\"):
            quoted = not quoted
        elif char == "," and not quoted:
            parts.append(options[start:at])
            start = at + 1
    return [part for part in parts + [options[start:]] if part]


def short(policy, all_policies):
    """The policy with only those options in which its runs differ."""
    name, _, options = policy.partition(":")
    pairs = dict(part.partition("=")[::2] for part in split(options))
    other = [
        dict(part.partition("=")[::2] for part in split(text.partition(":")[2]))
        for text in all_policies
        if text.partition(":")[0] == name
    ]
    differing = [f"{key}={value}" for key, value in pairs.items() if any(o.get(key) != value for o in other)]
    return name + (":" + ",".join(differing) if differing else "")
