#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `weir eval ppl` measured along a stream: resident memory and perplexity against tokens read.

    weir eval ppl -m MODEL -f BOOKS.txt --policy "streaming_llm;window" --pot 1024 > streams.jsonl
    tools/plot/stream.py streams.jsonl --memory memory.svg --perplexity perplexity.svg --kv-bytes 23040
    tools/plot/stream.py "4 sinks=sinks.jsonl" "8 sinks=more.jsonl" --perplexity perplexity.svg
    tools/plot/stream.py streams.jsonl --ratio ratio.svg --against streaming_llm

A file may hold several runs; NAME= renames the one it holds. --memory draws the first run. --ratio divides every run's
cumulative perplexity, beyond the first --skip tokens, by that of the run whose name begins with --against; --top is the
upper limit of the chart.
--kv-bytes: bytes of keys and values per token (`weir plan`: keys and values / slots); the memory chart then shows,
dashed, what a cache that never forgets would need on top of the same weights. That line is calculated, not measured.
Needs matplotlib.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.plot.rows import pyplot, short

GIB = 1 << 30
BESIDE = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}  # keeps the legend off the lines


def read(arguments):
    """Runs of all [NAME=]FILEs: legend names and rows."""
    found = []
    for argument in arguments:
        name, _, path = ("", "", argument) if os.path.exists(argument) else argument.rpartition("=")
        with open(path, encoding="utf-8") as f:
            rows = [row for row in (json.loads(line) for line in f if line.strip()) if row["task"] == "stream"]
        runs = {}
        for row in rows:
            runs.setdefault((row["policy"], row["pot"]), []).append(row)
        if not runs or (name and len(runs) > 1):
            sys.exit(f"stream: {path} holds {len(runs)} runs")
        found += [(name, key, rows) for key, rows in runs.items()]
    policies = [policy for _, (policy, _), _ in found]
    one_pot = len(found) > 1 and len({pot for _, (_, pot), _ in found}) == 1
    return [
        (name or short(policy, policies) + ("" if one_pot else f", pot {pot:,}"), rows)
        for name, (policy, pot), rows in found
    ]


def so_far(rows, skip):
    """Tokens read, and the log of the perplexity of those beyond `skip`."""
    out, total, n = {}, 0.0, 0
    for row in sorted(rows, key=lambda r: r["end_token"]):
        if row["first_token"] >= skip:
            total += row["n"] * math.log(row["value"])
            n += row["n"]
            out[row["end_token"]] = total / n
    return out


def figure(xlabel, ylabel):
    fig, ax = pyplot().subplots(figsize=(8, 3.6))
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:,.0f}K")
    return fig, ax


def log_scale(ax):
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    ax.yaxis.set_minor_formatter(lambda y, _: f"{y:g}")


def save(fig, path):
    fig.tight_layout()
    fig.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", metavar="[NAME=]FILE")
    parser.add_argument("--memory")
    parser.add_argument("--perplexity")
    parser.add_argument("--ratio")
    parser.add_argument("--against", default="streaming_llm")
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--top", type=float, help="largest ratio that the chart shows")
    parser.add_argument("--kv-bytes", type=float, default=0)
    args = parser.parse_args()
    runs = read(args.rows)
    if args.memory:
        fig, ax = figure("tokens read", "memory of the process, GiB")
        name, rows = runs[0]
        x = [r["end_token"] for r in rows]
        ax.plot(x, [r["resident_bytes"] / GIB for r in rows], lw=2.2, label=f"weir, {name} (measured)")
        if args.kv_bytes:
            base = rows[0]["resident_bytes"] - rows[0]["budget_bytes"]
            ax.plot(
                [0, x[-1]],
                [base / GIB, (base + args.kv_bytes * x[-1]) / GIB],
                "--",
                color="tab:red",
                lw=1.5,
                label="a cache that never forgets (calculated)",
            )
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
        save(fig, args.memory)
    if args.perplexity:
        fig, ax = figure("tokens read", "perplexity of the segment")
        for name, rows in runs:
            ax.plot([r["end_token"] for r in rows], [r["value"] for r in rows], lw=1.3, label=name)
        log_scale(ax)
        ax.legend(frameon=False, **(BESIDE if len(runs) > 3 else {}))
        save(fig, args.perplexity)
    if args.ratio:
        base = next((so_far(rows, args.skip) for name, rows in runs if name.startswith(args.against)), None)
        if base is None:
            sys.exit(f"stream: no run is called {args.against}")
        fig, ax = figure("tokens read", f"perplexity so far, over {args.against}'s")
        least = 1.0
        for i, (name, rows) in enumerate(runs):
            mine = so_far(rows, args.skip)
            x = [t for t in mine if t in base]
            if not x:
                sys.exit(f"stream: {name} and {args.against} were not measured at the same places")
            y = [math.exp(mine[t] - base[t]) for t in x]
            least = min([least] + y)
            above = " (above the chart)" if args.top and min(y) > args.top else ""
            ax.plot(x, y, lw=1.5, ls=("-", "--")[i // 10 % 2], label=name + above)
        if args.top:
            ax.set_ylim(least - 0.05 * (args.top - least), args.top)
        else:
            log_scale(ax)
        ax.legend(frameon=False, fontsize=8, **BESIDE)
        save(fig, args.ratio)


if __name__ == "__main__":
    main()
