# SPDX-License-Identifier: Apache-2.0
"""A model for the vision tasks of lmms_eval, in this process. It is one of lmms_eval's models where that is installed,
and has the same methods where it is not:

    from weir.lmms_eval import WeirLMM

    lmm = WeirLMM("model.gguf", mmproj="mmproj.gguf", pot=1024, policy="infinipot_v")
    lmm.generate_until(requests)

A request's `args` are (text, options, doc_to_visual, doc_id, task, split), as lmms_eval has them; pictures and videos
come from doc_to_visual(task_dict[task][split][doc_id]).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ._scoring import score
from .model import Model

try:
    from lmms_eval.api.model import lmms as _Base
except ImportError:  # its requests can be answered without it
    _Base = object

VIDEOS = (".mp4", ".mkv", ".webm", ".avi", ".mov", ".m4v", ".mpg")
MARKS = ("<image>", "<video>")  # where a text says that a picture comes; the pictures come first here


class WeirLMM(_Base):  # type: ignore[misc]  # lmms_eval is not typed
    """model: a path, with its mmproj, or a weir.Model. fps: frames of each second of a video that are read. Everything
    else goes to Model.session()."""

    def __init__(self, model: Any, *, mmproj: Any = None, fps: float = 1.0, threads: int = 0, **session: Any) -> None:
        super().__init__()
        self.model = model if isinstance(model, Model) else Model(model, mmproj=mmproj, threads=threads)
        if not self.model.has_vision:
            raise ValueError("pictures need a vision encoder: give mmproj")
        self.fps = fps
        self.session = self.model.session(**session)
        if not hasattr(self, "task_dict"):
            self.task_dict: dict[str, Any] = {}

    def generate_until(self, requests: Any) -> list[str]:
        """The answers, with each request's `until`, `max_new_tokens` and `temperature`; greedy unless that is above
        0."""
        out = []
        for request in requests:
            text, options, doc_to_visual, doc_id, task, split = request.args
            until = options.get("until") or []
            self._show(doc_to_visual, doc_id, task, split)
            answer = self.session.ask(
                _without_marks(text),
                max_tokens=int(options.get("max_new_tokens", 128)),
                temperature=float(options.get("temperature") or 0),
                stop=[stop for stop in ([until] if isinstance(until, str) else until) if stop],
            )
            out.append(answer.read())
        return out

    def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
        """-log P of each answer, a loss as lmms_eval wants it, and whether greedy decoding would have written it."""
        out = []
        for request in requests:
            text, doc_to_target, doc_to_visual, doc_id, task, split = request.args
            document = self.task_dict[task][split][doc_id]
            target = doc_to_target if isinstance(doc_to_target, str) else doc_to_target(document)
            self._show(doc_to_visual, doc_id, task, split)
            answer = self.session.ask(_without_marks(text), max_tokens=0)
            answer.read()
            log_p, greedy = score(self.session, self.model.encode(target).tolist())
            out.append((-log_p, greedy))
        return out

    def generate_until_multi_round(self, requests: Any) -> list[str]:
        """Not there: use a session, which is a conversation."""
        raise NotImplementedError("tasks of several rounds are not run here")

    def _show(self, doc_to_visual: Any, doc_id: Any, task: str, split: str) -> None:
        """Begins anew, with the document's pictures and videos."""
        self.session.reset()
        for visual in doc_to_visual(self.task_dict[task][split][doc_id]) or []:
            given = Path(visual) if isinstance(visual, str) else visual
            if isinstance(given, os.PathLike) and os.fspath(given).lower().endswith(VIDEOS):
                self.session.watch(given, fps=self.fps)
            else:
                self.session.append(given)


def _without_marks(text: str) -> str:
    for mark in MARKS:
        text = text.replace(mark, "")
    return text.strip()
