#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Markdown tables from the JSON lines of `weir eval`: one row per policy (and pot), one column per cell.

    tools/plot/table.py lines.jsonl --column distance
    tools/plot/table.py passkey.jsonl --column length --value gold_nll
    tools/plot/table.py ppl.jsonl --column end_token --task stream --digits 2
    tools/plot/table.py videoqa.jsonl --column kind --where rounds=300 --show peak_bytes
    tools/plot/table.py catp.jsonl --column keep --row method

--column may name several parameters, separated by commas: those a row lacks are omitted from its heading. --show adds
columns of figures that a policy's rows share or, where they differ, of its first row. A cell is the figure and its
standard error, or empty if not measured. The best figure of a column is bold, as are all within one standard error of
it.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.plot.rows import short

LOWER_IS_BETTER = ("perplexity", "gold_nll", "nll")


def read(paths, task):
    rows = []
    for path in paths:
        with sys.stdin if path == "-" else open(path, encoding="utf-8") as file:
            rows += [json.loads(line) for line in file if line.strip()]
    return [row for row in rows if task is None or row.get("task") == task]


def figure(row, value):
    if value == "value":
        return row["value"], row.get("stderr", 0)
    return row[value], row.get(value + "_stderr", 0)


def heading(row, keys):
    """The name of a row's column: the values of its parameters."""
    values = [row[key] for key in keys if key in row]
    if len(keys) == 1 or len(values) == 1:
        return values[0]
    return " ".join(
        f"{key} {row[key]:g}" if isinstance(row[key], (int, float)) else str(row[key]) for key in keys if key in row
    )


def in_order(columns):
    """Sorts numbers by size; keeps words in input order."""
    numbers = all(isinstance(column, (int, float)) for column in columns)
    return sorted(set(columns)) if numbers else list(dict.fromkeys(columns))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="JSON lines; - is standard input")
    parser.add_argument(
        "--column", required=True, help="the parameter across: distance, length, depth, end_token, kind ..."
    )
    parser.add_argument("--row", default="policy", help="what a line stands for (default policy)")
    parser.add_argument("--value", default="value", help="value (the metric), or gold_nll")
    parser.add_argument("--task", help="only rows of this task")
    parser.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="only rows with this value")
    parser.add_argument("--show", default="", metavar="KEY,...", help="more figures of each line")
    parser.add_argument("--digits", type=int, default=2)
    args = parser.parse_args()

    keys, shown = args.column.split(","), [key for key in args.show.split(",") if key]
    wanted = [condition.partition("=")[::2] for condition in args.where]
    rows = [
        row
        for row in read(args.files, args.task)
        if row.get("n", 0) > 0
        and any(key in row for key in keys)
        and args.row in row
        and all(str(row.get(key)) == value for key, value in wanted)
    ]
    if not rows:
        sys.exit(f"table: no rows with {args.column}")
    specs = list(dict.fromkeys(row["policy"] for row in rows))
    pots = {row["pot"] for row in rows if row["policy"].partition(":")[0] != "full"}
    columns = in_order([heading(row, keys) for row in rows])
    cells, names, more = {}, [], {}
    for row in rows:
        name = short(row["policy"], specs) if args.row == "policy" else str(row[args.row])
        if args.row == "policy" and len(pots) > 1 and "pot" not in keys:
            name += f", pot {row['pot']}"
        if name not in names:
            names.append(name)
            more[name] = row
        cells[name, heading(row, keys)] = figure(row, args.value)
    metric = rows[0].get("metric", "") if args.value == "value" else args.value
    lower = any(word in metric for word in LOWER_IS_BETTER)
    best = {}
    for column in columns:
        figures = [cells[name, column] for name in names if (name, column) in cells]
        best[column] = min(figures) if lower else max(figures)

    titles = [f"{c:,}" if isinstance(c, int) else f"{c:g}" if isinstance(c, float) else c for c in columns]
    print(f"| {metric} | " + " | ".join(titles + shown) + " |")
    print("|---|" + "--:|" * (len(columns) + len(shown)))
    for name in names:
        line = []
        for column in columns:
            if (name, column) not in cells:
                line.append("")
                continue
            value, error = cells[name, column]
            text = f"{value:.{args.digits}f} ± {error:.{args.digits}f}"
            top, top_error = best[column]
            line.append(f"**{text}**" if abs(value - top) <= max(error, top_error) else text)
        for key in shown:
            value = more[name].get(key, "")
            line.append(
                f"{value:,.0f}"
                if isinstance(value, (int, float)) and abs(value) >= 1000
                else f"{value:.{args.digits}f}"
                if isinstance(value, float)
                else str(value)
            )
        print(f"| `{name}` | " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
