# SPDX-License-Identifier: Apache-2.0
"""CATP (arXiv 2404.08567)."""

from tools.papers.entry import DRAWING, MADE, MISSING, Entry, Setting, Step


def pruned(s: Setting) -> list[Step]:
    """Tables 1 and 2 and figure 5 are one run: every vote, every layer, both baselines."""
    return [s.world("catp", "catp"), s.table("catp", "keep", "--row", "method")]


MODEL = "a Q-Former with cross-attention in every block, trained on a generated world; exact match instead of VQA's"
ENTRIES = [
    Entry("catp/figure-1", "BLIP-2, illustrated", DRAWING),
    Entry("catp/figure-2", "the vote, illustrated", DRAWING),
    Entry("catp/figure-3", "the Q-Former, illustrated", DRAWING),
    Entry(
        "catp/table-1",
        "accuracy with a half, a quarter, an eighth of the query tokens",
        MADE,
        MODEL,
        pruned,
        vision=True,
    ),
    Entry(
        "catp/figure-4",
        "answers about one picture before and after pruning",
        MISSING,
        "an example, not a measurement; `weir run --image PICTURE --prune catp:keep=0.25` gives one",
    ),
    Entry("catp/table-2", "votes weighted by the encoder's own attention", MADE, MODEL, pruned, vision=True),
    Entry("catp/figure-5", "votes of one cross-attention layer at a time", MADE, MODEL, pruned, vision=True),
]
