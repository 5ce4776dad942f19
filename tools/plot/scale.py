#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws fleets that tools/scale/fleet.py simulated: the 99th percentile of a turn, and what a million tokens cost.

    tools/scale/fleet.py MEASURED.json ... --table --saves 0 --json without.json
    tools/scale/fleet.py MEASURED.json ... --table --saves 1 --json with.json
    tools/plot/scale.py "nothing saved=without.json" "every answer saved=with.json" -o scale.svg

Needs matplotlib.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.plot.rows import pyplot


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="NAME=FILE")
    parser.add_argument("-o", "--out", required=True)
    args = parser.parse_args()
    fig, panels = pyplot().subplots(1, 2, figsize=(9, 3.4))
    for table in args.tables:
        name, _, path = table.rpartition("=")
        rows = json.loads(Path(path).read_text())
        for ax, key in zip(panels, ("p99", "cost")):
            ax.plot([row["nodes"] for row in rows], [row[key] for row in rows], "o-", ms=3.5, label=name or path)
    for ax, title in zip(panels, ("p99 of a turn, s", "price of 10^6 tokens")):
        ax.set(xscale="log", yscale="log", xlabel="nodes", title=title)
        ax.grid(True, alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    fig.tight_layout()
    fig.savefig(args.out, metadata={"Date": None})


if __name__ == "__main__":
    main()
