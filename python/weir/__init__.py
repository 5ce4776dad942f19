# SPDX-License-Identifier: Apache-2.0
"""Weir: language models that read endless streams in a pot of fixed size.

import weir

with weir.Model("model.gguf").session(pot=1024, pin="You watch a log. Report errors.") as s:
    s.append(open("a.log").read())
    for piece in s.ask("What went wrong?"):
        print(piece, end="", flush=True)
    print(s.seen, s.kept, s.dropped)
"""

from typing import TYPE_CHECKING, Any

from ._library import __version__
from .answer import Answer
from .errors import (
    CancelledError,
    ClosedError,
    CorruptError,
    InternalError,
    InvalidArgumentError,
    IoError,
    NotFoundError,
    OverBudgetError,
    UnsupportedError,
    WeirError,
)
from .model import Model
from .policy import SLOT, Needs, Policy, View, fill
from .session import Counters, Passage, Remembered, Session
from .trace import Trace

if TYPE_CHECKING:
    from .pot_cache import PotCache


def __getattr__(name: str) -> Any:
    """PotCache needs torch and transformers, which nothing else here does."""
    if name == "PotCache":
        from .pot_cache import PotCache

        return PotCache
    raise AttributeError(f"module 'weir' has no attribute {name!r}")


__all__ = [
    "SLOT",
    "Answer",
    "CancelledError",
    "ClosedError",
    "CorruptError",
    "Counters",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "Model",
    "Needs",
    "NotFoundError",
    "OverBudgetError",
    "Passage",
    "Policy",
    "PotCache",
    "Remembered",
    "Session",
    "Trace",
    "UnsupportedError",
    "View",
    "WeirError",
    "__version__",
    "fill",
]
