# SPDX-License-Identifier: Apache-2.0
"""Sessions where a benchmark of compressed caches, as kvpress's, expects its pipeline: a context that is read once, and
questions about it that each see the pot as it was then.

    from weir.kvpress import PotPipeline, answer_rows

    pipeline = PotPipeline("model.gguf", pot=1024, policy="snapkv")
    pipeline(context, questions=["Who?", "When?"], max_new_tokens=30)["answers"]
    rows = answer_rows(pipeline, rows)   # with a column predicted_answer, for the benchmark's own metrics

A pot has a size in tokens, not a share of the context: `ratio` of answer_rows() sets one from the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .model import Model


class PotPipeline:
    """model: a path, or a weir.Model. Everything else goes to Model.session().

    Without a chat template (chat=False, or a model that has none) a question and its answer_prefix are read as they
    are, behind the context. With one, the context is part of the user's turn that the question ends, and answer_prefix
    stands on a line of its own behind the question: nothing is put into the model's mouth.
    """

    def __init__(self, model: Any, *, chat: bool | None = None, threads: int = 0, **session: Any) -> None:
        self.model = model if isinstance(model, Model) else Model(model, threads=threads)
        self.chat = self.model.has_chat if chat is None else chat
        self.session = session
        self.kept = self.seen = 0  # of the latest context, when its first question was asked

    def __call__(
        self,
        context: str,
        *,
        question: str | None = None,
        questions: Iterable[str] | None = None,
        answer_prefix: str = "",
        max_new_tokens: int = 50,
        pot: int | None = None,
    ) -> dict[str, Any]:
        """{"answer": ...} for one question or none, {"answers": [...]} for several. pot: for this context alone."""
        if question is not None and questions is not None:
            raise ValueError("one question or several, not both")
        asked = [question or ""] if questions is None else list(questions)
        with self.model.session(**(self.session | ({} if pot is None else {"pot": pot}))) as s:
            if self.chat:
                s.append(context)
            else:
                s.read(context, special=True)
            now = s.counters()
            self.kept, self.seen = now.kept, now.seen
            answers = [self._answer(s, one, answer_prefix, max_new_tokens) for one in asked]
        return {"answer": answers[0]} if questions is None else {"answers": answers}

    def _answer(self, s: Any, question: str, prefix: str, max_tokens: int) -> str:
        with s.fork() as aside:
            if self.chat:
                text = "\n".join(part for part in (question, prefix) if part)
                answer: str = aside.ask(text, max_tokens=max_tokens, temperature=0).read()
                return answer
            aside.read(question + prefix, end_of_prompt=True)
            written: str = aside.generate(max_tokens=max_tokens, temperature=0).read()
            return written


def answer_rows(
    pipeline: PotPipeline, rows: Any, *, ratio: float | None = None, least: int = 64, max_new_tokens: int | None = None
) -> Any:
    """The rows of a data set (a pandas frame, or dicts) with `context`, `question` and, where they have it,
    `answer_prefix` and `max_new_tokens`, and with a new column `predicted_answer`. Rows of one context in a row share
    its reading.

    ratio: the share of a context that is dropped, as compression_ratio of kvpress: the pot then has that much less than
    the context's tokens, and at least `least`; None: the pot of the pipeline.
    """
    frame = rows if hasattr(rows, "to_dict") else None
    dicts: list[Mapping[str, Any]] = frame.to_dict("records") if frame is not None else list(rows)
    if ratio is not None and not 0 <= ratio < 1:
        raise ValueError(f"ratio is {ratio}: the share that is dropped lies between 0 and 1")
    predicted: list[str] = []
    at = 0
    while at < len(dicts):
        first, end = dicts[at], at + 1
        shared = ("context", "answer_prefix", "max_new_tokens")
        while end < len(dicts) and all(dicts[end].get(key) == first.get(key) for key in shared):
            end += 1
        pot = None
        if ratio is not None:
            pot = max(least, round((1 - ratio) * len(pipeline.model.encode(first["context"]))))
        out = pipeline(
            first["context"],
            questions=[row["question"] for row in dicts[at:end]],
            answer_prefix=first.get("answer_prefix") or "",
            max_new_tokens=int(max_new_tokens or first.get("max_new_tokens") or 50),
            pot=pot,
        )
        predicted += out["answers"]
        at = end
    if frame is not None:
        return frame.assign(predicted_answer=predicted)
    return [{**row, "predicted_answer": text} for row, text in zip(dicts, predicted)]
