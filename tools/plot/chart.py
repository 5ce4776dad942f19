#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a table or a chart from the JSON lines that `weir eval` and `weir bench` write.

    tools/plot/chart.py ROWS.jsonl... --table > table.md
    tools/plot/chart.py ROWS.jsonl... -x pot -y value --series policy [--where task=needle] -o chart.svg

Input has one JSON object per line; any other line is an error. Error bars come from `stderr` (eval) or
`stddev` (bench) when every drawn row has one. The table shows every row, including the worst. Charts need matplotlib.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.plot.rows import pyplot, read, text_of


def table(rows, columns):
    """Markdown; a column that is the same in every row is printed once, above."""
    columns = columns or list(dict.fromkeys(k for r in rows for k in r))
    fixed = [c for c in columns if len(rows) > 1 and len({json.dumps(r.get(c)) for r in rows}) == 1]
    out = []
    if fixed:
        out += [
            "All rows: " + ", ".join(f"{c} {text_of(rows[0].get(c))}" for c in fixed if rows[0].get(c) is not None),
            "",
        ]
    columns = [c for c in columns if c not in fixed]
    number = [all(isinstance(r.get(c), (int, float, type(None))) for r in rows) for c in columns]
    out.append("| " + " | ".join(columns) + " |")
    out.append("|" + "|".join("--:" if right else "---" for right in number) + "|")
    out += ["| " + " | ".join(text_of(r.get(c)) for c in columns) + " |" for r in rows]
    return "\n".join(out)


def chart(rows, args):
    plt = pyplot()
    for key in (args.x, args.y):
        if not all(isinstance(r.get(key), (int, float)) for r in rows):
            sys.exit(f"chart: not every row has a number `{key}`; choose rows with --where")
    fig, ax = plt.subplots(figsize=(7, 4.2), constrained_layout=True)
    bar = next((b for b in ("stderr", "stddev") if all(isinstance(r.get(b), (int, float)) for r in rows)), None)
    for name in dict.fromkeys(str(r.get(args.series)) for r in rows):
        mine = sorted((r for r in rows if str(r.get(args.series)) == name), key=lambda r: r[args.x])
        ax.errorbar(
            [r[args.x] for r in mine],
            [r[args.y] for r in mine],
            yerr=[r[bar] for r in mine] if bar else None,
            marker="o",
            markersize=3.5,
            capsize=2,
            label=name,
        )
    if args.log_x:
        ax.set_xscale("log", base=2)
    ax.set_xlabel(args.x_label or args.x)
    ax.set_ylabel(args.y_label or args.y)
    ax.set_ylim(bottom=0)
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    if args.title:
        ax.set_title(args.title)
    fig.savefig(args.out, metadata={"Date": None} if args.out.endswith(".svg") else None)


def main():
    p = argparse.ArgumentParser(description="Draws a table or a chart from the rows of `weir eval` and `weir bench`.")
    p.add_argument("files", nargs="+", metavar="ROWS.jsonl", help="- is standard input")
    p.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="keep rows with this value")
    p.add_argument("--table", action="store_true", help="print a Markdown table")
    p.add_argument("--columns", help="columns of the table, comma-separated (default: all)")
    p.add_argument("-x", default="pot")
    p.add_argument("-y", default="value")
    p.add_argument("--series", default="policy", help="one line per value of this key (default policy)")
    p.add_argument("--log-x", action="store_true")
    p.add_argument("--x-label")
    p.add_argument("--y-label")
    p.add_argument("--title")
    p.add_argument("-o", "--out", help="chart to write: .svg, .png or .pdf")
    args = p.parse_args()
    rows = read(args.files)
    for condition in args.where:
        key, _, value = condition.partition("=")
        rows = [r for r in rows if text_of(r.get(key)) == value or str(r.get(key)) == value]
    if not rows:
        sys.exit("chart: no row is left to draw")
    if args.table:
        print(table(rows, args.columns.split(",") if args.columns else None))
    if args.out:
        chart(rows, args)
    if not args.table and not args.out:
        p.error("choose --table, -o FILE or both")


if __name__ == "__main__":
    main()
