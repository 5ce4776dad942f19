#!/usr/bin/env python3
"""Draws what `weir eval ppl` measured along a stream: resident memory and perplexity against tokens read.

    weir eval ppl -m MODEL -f BOOKS.txt --policy streaming_llm --pot 1024 > sinks.jsonl
    tools/plot_stream.py sinks.jsonl [window.jsonl ...] --memory memory.svg --perplexity perplexity.svg --kv-bytes 23040

--kv-bytes: bytes of keys and values per token (`weir plan`: keys and values / slots); the memory chart then shows, dashed,
what a cache that never forgets would need on top of the same weights. That line is calculated, not measured.
"""
import argparse
import json

import matplotlib

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "weir"
import matplotlib.pyplot as plt

GIB = 1 << 30


def read(path):
    with open(path, encoding="utf-8") as f:
        return [row for row in (json.loads(line) for line in f if line.strip()) if row["task"] == "stream"]


def name_of(rows):
    return f'{rows[0]["policy"].split(":")[0]}, pot {rows[0]["pot"]:,}'


def figure(xlabel, ylabel):
    fig, ax = plt.subplots(figsize=(8, 3.6))
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(True, alpha=0.3)
    ax.spines[["top", "right"]].set_visible(False)
    ax.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:,.0f}K")
    return fig, ax


def save(fig, path):
    fig.tight_layout()
    fig.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+")
    parser.add_argument("--memory")
    parser.add_argument("--perplexity")
    parser.add_argument("--kv-bytes", type=float, default=0)
    args = parser.parse_args()
    runs = [read(path) for path in args.rows]
    if args.memory:
        fig, ax = figure("tokens read", "memory of the process, GiB")
        rows = runs[0]
        x = [r["end_token"] for r in rows]
        ax.plot(x, [r["resident_bytes"] / GIB for r in rows], lw=2.2, label=f"weir, {name_of(rows)} (measured)")
        if args.kv_bytes:
            base = rows[0]["resident_bytes"] - rows[0]["budget_bytes"]
            ax.plot([0, x[-1]], [base / GIB, (base + args.kv_bytes * x[-1]) / GIB], "--", color="tab:red", lw=1.5,
                    label="a cache that never forgets (calculated)")
        ax.set_ylim(bottom=0)
        ax.legend(frameon=False)
        save(fig, args.memory)
    if args.perplexity:
        fig, ax = figure("tokens read", "perplexity of the segment")
        for rows in runs:
            ax.plot([r["end_token"] for r in rows], [r["value"] for r in rows], lw=1.3, label=name_of(rows))
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
        ax.yaxis.set_minor_formatter(lambda y, _: f"{y:g}")
        ax.legend(frameon=False)
        save(fig, args.perplexity)


if __name__ == "__main__":
    main()
