#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what `weir eval` measured: curves, heat maps, bars. One chart per call; every row names its policy and
pot.

    tools/plot/eval.py curve ROWS.jsonl... -o chart.svg [-x distance|tokens_back|length|...] [-y value|gold_nll]
    tools/plot/eval.py heat  ROWS.jsonl... -o chart.svg [-x length] [-r depth]
    tools/plot/eval.py bars  ROWS.jsonl... -o chart.svg [-x task]

--where KEY=VALUE keeps rows with that value; may be repeated. Bars on curves are one standard error. Dotted lines mark
the ends of the pots when the axis counts tokens back. All rows are drawn alike, best or worst. Needs matplotlib.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.plot.rows import pyplot, read, short, text_of

# Okabe and Ito's colours, safe for colour-blind readers. Shapes and dashes distinguish the lines in greyscale.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8A7B00"]
MARKERS = "osD^vPX*"
DASHES = ["-", "--", "-.", (0, (1, 1)), (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (5, 5)), (0, (1, 3))]
ERRORS = {"value": "stderr", "gold_nll": "gold_nll_stderr"}
LABELS = {
    "value": None,
    "gold_nll": "-log P of the right answer, per token",
    "tokens_back": "tokens between fact and question",
    "length": "tokens before the question",
    "distance": "distance",
    "depth": "depth of what is hidden",
    "end_token": "tokens read",
}
TOKEN_AXES = ("tokens_back", "length", "key_at", "end_token")


def number(row, key):
    value = row.get(key)
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def run_of(row, axis):
    """The label of a line: a policy and its pot, or the policy alone where pots are the axis."""
    return row["policy"], 0 if axis == "pot" else row["pot"]


def short_names(rows, axis):
    """Names of runs: the policy, the options in which runs differ, and the pot if there are several."""
    keys = list(dict.fromkeys(run_of(r, axis) for r in rows))
    policies = [policy for policy, _ in keys]
    many_pots = len({n for _, n in keys}) > 1
    return {(policy, pot): short(policy, policies) + (f", pot {pot:,}" if many_pots else "") for policy, pot in keys}


def label(key, rows):
    if key == "value":
        return "/".join(dict.fromkeys(str(r["metric"]) for r in rows))
    return LABELS.get(key) or key


def runs_of(rows, axis):
    groups = {}
    for r in rows:
        groups.setdefault(run_of(r, axis), []).append(r)
    return groups


def curve(plt, rows, args):
    fig, ax = plt.subplots(figsize=(7.6, 4.4), constrained_layout=True)
    names = short_names(rows, args.x)
    for i, (run, mine) in enumerate(runs_of(rows, args.x).items()):
        mine = sorted(mine, key=lambda r: r[args.x])
        error = ERRORS.get(args.y)
        bars = [r.get(error, 0) for r in mine] if error else None
        ax.errorbar(
            [r[args.x] for r in mine],
            [r[args.y] for r in mine],
            yerr=bars,
            capsize=2.5,
            lw=1.6,
            ms=5,
            color=COLOURS[i % len(COLOURS)],
            marker=MARKERS[i % len(MARKERS)],
            ls=DASHES[i % len(DASHES)],
            label=names[run],
        )
    if args.x == "tokens_back":
        for pot in sorted({r["pot"] for r in rows if r["policy"].split(":")[0] != "full"}):
            ax.axvline(pot, color="0.45", ls=":", lw=1.2, zorder=0)
            ax.annotate(
                f"pot {pot:,}",
                (pot, 1),
                xycoords=("data", "axes fraction"),
                xytext=(3, -10),
                textcoords="offset points",
                color="0.35",
                fontsize=8,
            )
    values = [r[args.x] for r in rows]
    if args.log_x or (min(values) > 0 and max(values) >= 16 * min(values)):
        ax.set_xscale("log", base=2)
        ticks = sorted(set(values)) if len(set(values)) <= 12 else None
        if ticks:
            ax.set_xticks(ticks, minor=False)
            ax.set_xticks([], minor=True)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}" if x == int(x) or x > 10 else f"{x:g}")
    ax.set_xlabel(label(args.x, rows) + (" (lines)" if args.x == "distance" and rows[0]["suite"] == "lines" else ""))
    ax.set_ylabel(label(args.y, rows))
    accuracy = args.y == "value" and all(r["metric"] == "accuracy" for r in rows)
    ax.set_ylim(*((-0.03, 1.06) if accuracy else (0, None)))
    ax.grid(alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def heat(plt, rows, args):
    groups, names = runs_of(rows, args.x), short_names(rows, args.x)
    n_columns = min(len(groups), 3)
    n_rows = -(-len(groups) // n_columns)
    xs, ys = sorted({r[args.x] for r in rows}), sorted({r[args.r] for r in rows})
    fig, axes = plt.subplots(
        n_rows,
        n_columns,
        squeeze=False,
        sharey=True,
        constrained_layout=True,
        figsize=(1.6 + n_columns * max(2.2, 0.62 * len(xs)), 0.9 + n_rows * max(1.8, 0.45 * len(ys))),
    )
    accuracy = args.y == "value" and all(r["metric"] == "accuracy" for r in rows)
    top = 1 if accuracy else max(r[args.y] for r in rows)
    image = None
    for ax in list(axes.flat)[len(groups) :]:
        ax.set_visible(False)
    for ax, (run, mine) in zip(axes.flat, groups.items()):
        grid = [[float("nan")] * len(xs) for _ in ys]
        for r in mine:
            grid[ys.index(r[args.r])][xs.index(r[args.x])] = r[args.y]
        image = ax.imshow(grid, vmin=0, vmax=top, cmap="cividis", aspect="auto")
        for i, line in enumerate(grid):
            for j, v in enumerate(line):
                if v == v:
                    ax.text(
                        j,
                        i,
                        f"{v:.2f}",
                        ha="center",
                        va="center",
                        fontsize=7,
                        color="white" if v < top / 2 else "black",
                    )
        ax.set_xticks(
            range(len(xs)), [f"{x:,.0f}" if args.x in TOKEN_AXES else f"{x:g}" for x in xs], rotation=35, fontsize=8
        )
        ax.set_yticks(range(len(ys)), [f"{y:g}" for y in ys], fontsize=8)
        ax.set_title(names[run], fontsize=9)
        ax.set_xlabel(label(args.x, rows), fontsize=8)
    for line in axes:
        line[0].set_ylabel(label(args.r, rows), fontsize=8)
    fig.colorbar(image, ax=axes, shrink=0.9).set_label(label(args.y, rows), fontsize=8)
    return fig


def bars(plt, rows, args):
    groups, names = runs_of(rows, args.x), short_names(rows, args.x)
    xs = list(dict.fromkeys(str(r[args.x]) for r in rows))
    fig, ax = plt.subplots(figsize=(max(6.0, 0.35 * len(xs) * len(groups) + 3), 4.2), constrained_layout=True)
    width = 0.8 / len(groups)
    for i, (run, mine) in enumerate(groups.items()):
        error = ERRORS.get(args.y)
        at = [xs.index(str(r[args.x])) + (i - (len(groups) - 1) / 2) * width for r in mine]
        ax.bar(
            at,
            [r[args.y] for r in mine],
            width * 0.92,
            yerr=[r.get(error, 0) for r in mine] if error else None,
            capsize=2,
            color=COLOURS[i % len(COLOURS)],
            hatch=["", "//", "..", "xx"][i // len(COLOURS) % 4],
            label=names[run],
            error_kw={"lw": 1, "ecolor": "0.25"},
        )
    ax.set_xticks(range(len(xs)), xs, rotation=30 if len(xs) > 4 else 0, ha="right" if len(xs) > 4 else "center")
    ax.set_ylabel(label(args.y, rows))
    ax.set_ylim(bottom=0)
    ax.grid(axis="y", alpha=0.25)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return fig


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("chart", choices=["curve", "heat", "bars"])
    p.add_argument("files", nargs="+", metavar="ROWS.jsonl", help="- is standard input")
    p.add_argument("-o", "--out", required=True, help="chart to write: .svg, .png or .pdf")
    p.add_argument("-x", help="key along the axis (curve: tokens_back, heat: length, bars: task)")
    p.add_argument("-y", default="value", help="key that is drawn (default value)")
    p.add_argument("-r", default="depth", help="heat: key of the rows (default depth)")
    p.add_argument("--where", action="append", default=[], metavar="KEY=VALUE", help="keep rows with this value")
    p.add_argument("--log-x", action="store_true")
    p.add_argument("--title")
    args = p.parse_args()
    args.x = args.x or {"curve": "tokens_back", "heat": "length", "bars": "task"}[args.chart]
    rows = read(args.files)
    for condition in args.where:
        key, _, value = condition.partition("=")
        rows = [r for r in rows if text_of(r.get(key)) == value or str(r.get(key)) == value]
    needed = [args.y] + ([args.x] if args.chart != "bars" else []) + ([args.r] if args.chart == "heat" else [])
    left = [r for r in rows if all(number(r, k) for k in needed) and args.x in r and "policy" in r and "pot" in r]
    if len(left) < len(rows):
        print(f"eval: {len(rows) - len(left)} rows have no {' or '.join(needed)} and are not drawn", file=sys.stderr)
    if not left:
        sys.exit("eval: no row is left to draw")
    plt = pyplot()
    fig = {"curve": curve, "heat": heat, "bars": bars}[args.chart](plt, left, args)
    if args.title:
        fig.suptitle(args.title, fontsize=11)
    fig.savefig(args.out, metadata={"Date": None} if args.out.endswith(".svg") else None)


if __name__ == "__main__":
    main()
