# SPDX-License-Identifier: Apache-2.0
"""Weir: language models that read endless streams in a pot of fixed size.

import weir

with weir.Model("model.gguf").session(pot=1024, pin="You watch a log. Report errors.") as s:
    s.append(open("a.log").read())
    for piece in s.ask("What went wrong?"):
        print(piece, end="", flush=True)
    print(s.seen, s.kept, s.dropped)
"""

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
    "Remembered",
    "Session",
    "Trace",
    "UnsupportedError",
    "View",
    "WeirError",
    "__version__",
    "fill",
]
