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
from .events import Event, Evidence, RuleCost, WatchedRule
from .model import Model
from .policy import SLOT, Needs, Policy, View, fill
from .session import Counters, Passage, Remembered, Session
from .trace import Trace

if TYPE_CHECKING:
    from . import plots
    from .evaluate import EvalError
    from .evaluate import evaluate as eval
    from .pot_cache import PotCache


def __getattr__(name: str) -> Any:
    """What few need is imported when it is used: PotCache, for one, needs torch and transformers."""
    if name == "PotCache":
        from .pot_cache import PotCache

        return PotCache
    if name in ("eval", "EvalError"):
        from . import evaluate

        return evaluate.evaluate if name == "eval" else evaluate.EvalError
    if name == "plots":
        import importlib

        return importlib.import_module(".plots", __name__)
    raise AttributeError(f"module 'weir' has no attribute {name!r}")


__all__ = [
    "SLOT",
    "Answer",
    "CancelledError",
    "ClosedError",
    "CorruptError",
    "Counters",
    "EvalError",
    "Event",
    "Evidence",
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
    "RuleCost",
    "Session",
    "Trace",
    "UnsupportedError",
    "View",
    "WatchedRule",
    "WeirError",
    "__version__",
    "eval",
    "fill",
    "plots",
]
