# SPDX-License-Identifier: Apache-2.0
"""Every table and figure of the four papers: which command makes it here, and what differs. `scripts/paper --list`.

One paper is one file with its ENTRIES; entry.py says what an entry is, run.py runs it. docs/results/papers.md has a row
for each; papers_test.py holds the two together.
"""

from tools.papers import a_vl, catp, inf_mllm, infinipot

PAPERS = (inf_mllm, infinipot, a_vl, catp)
ENTRIES = [entry for paper in PAPERS for entry in paper.ENTRIES]
