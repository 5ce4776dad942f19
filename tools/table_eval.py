#!/usr/bin/env python3
"""Markdown tables from the JSON lines of `weir eval`: one row a policy (and pot), one column a cell.

    tools/table_eval.py lines.jsonl --column distance
    tools/table_eval.py passkey.jsonl --column length --value gold_nll
    tools/table_eval.py ppl.jsonl --column end_token --task stream --digits 2

A cell is the figure and its standard error; what was not measured is left empty. The best figure of a column is bold,
with all that lie within one standard error of it.
"""

import argparse
import json
import sys

from eval_rows import short

LOWER_IS_BETTER = ("perplexity", "gold_nll", "nll")


def read(paths, task):
    rows = []
    for path in paths:
        with (sys.stdin if path == "-" else open(path, encoding="utf-8")) as file:
            rows += [json.loads(line) for line in file if line.strip()]
    return [row for row in rows if task is None or row.get("task") == task]


def figure(row, value):
    if value == "value":
        return row["value"], row.get("stderr", 0)
    return row[value], row.get(value + "_stderr", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="JSON lines; - is standard input")
    parser.add_argument("--column", required=True, help="the parameter across: distance, length, depth, end_token ...")
    parser.add_argument("--value", default="value", help="value (the metric), or gold_nll")
    parser.add_argument("--task", help="only rows of this task")
    parser.add_argument("--digits", type=int, default=2)
    args = parser.parse_args()

    rows = [row for row in read(args.files, args.task) if args.column in row and row.get("n", 0) > 0]
    if not rows:
        sys.exit(f"table_eval: no rows with {args.column}")
    specs = list(dict.fromkeys(row["policy"] for row in rows))
    pots = {row["pot"] for row in rows if row["policy"].partition(":")[0] != "full"}
    columns = sorted({row[args.column] for row in rows})
    cells, names = {}, []
    for row in rows:
        name = short(row["policy"], specs)
        if len(pots) > 1:
            name += f", pot {row['pot']}"
        if name not in names:
            names.append(name)
        cells[name, row[args.column]] = figure(row, args.value)
    metric = rows[0].get("metric", "") if args.value == "value" else args.value
    lower = any(word in metric for word in LOWER_IS_BETTER)
    best = {}
    for column in columns:
        figures = [cells[name, column] for name in names if (name, column) in cells]
        best[column] = min(figures) if lower else max(figures)

    print(f"| {metric} | " + " | ".join(f"{column:,}" if isinstance(column, int) else f"{column:g}" for column in columns) + " |")
    print("|---|" + "--:|" * len(columns))
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
        print(f"| `{name}` | " + " | ".join(line) + " |")


if __name__ == "__main__":
    main()
