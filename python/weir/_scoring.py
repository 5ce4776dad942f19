# SPDX-License-Identifier: Apache-2.0
"""How likely a continuation is, for the adapters of benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .session import Session


def score(session: Session, continuation: Sequence[int]) -> tuple[float, bool]:
    """log P of token ids behind what the session has read, which it reads; and whether greedy decoding would have
    written them."""
    total, greedy = 0.0, True
    for token in continuation:
        logits = session.logits().astype(np.float64)
        peak = float(logits.max())
        total += float(logits[token]) - peak - float(np.log(np.exp(logits - peak).sum()))
        greedy = greedy and int(logits.argmax()) == token
        session.read([token])
    return total, greedy
