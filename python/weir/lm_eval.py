# SPDX-License-Identifier: Apache-2.0
"""A model of EleutherAI's lm_eval, in this process:

    import lm_eval
    from weir.lm_eval import WeirLM

    lm_eval.simple_evaluate(model=WeirLM("model.gguf", pot=1024, policy="weir"), tasks=["wikitext"])

A context of any length goes through the pot. loglikelihood_rolling() reads a text as one stream, where other models cut
windows: with a pot as large as their window and shorter texts the figures are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from lm_eval.api.model import TemplateLM

from ._scoring import score
from .model import Model


class WeirLM(TemplateLM):  # type: ignore[misc]  # lm_eval is not typed
    """model: a path, or a weir.Model. Everything else goes to Model.session(). threads: of a model given as a path."""

    def __init__(self, model: Any, *, threads: int = 0, **session: Any) -> None:
        super().__init__()
        self.model = model if isinstance(model, Model) else Model(model, threads=threads)
        self.session = self.model.session(likelihoods=True, **session)

    @property
    def eot_token_id(self) -> int:
        """What stands before an empty context."""
        for token in (self.model.bos_id, self.model.eos_id):
            if token is not None:
                return token
        raise ValueError("this model has no token that begins or ends a text: lm_eval needs one for empty contexts")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Token ids, without special tokens unless they are asked for."""
        ids: list[int] = self.model.encode(string, special=bool(add_special_tokens)).tolist()
        return ids

    def _loglikelihood_tokens(self, requests: Any, **kwargs: Any) -> list[tuple[float, bool]]:
        return [self._score(context, continuation) for _, context, continuation in requests]

    def _score(self, context: list[int], continuation: list[int]) -> tuple[float, bool]:
        """log P of the continuation, and whether greedy decoding would have written it."""
        s = self.session
        s.reset()
        s.read(context)
        return score(s, continuation)

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
        """log P of whole texts, each one stream behind the token that stands before an empty context."""
        out = []
        for request in requests:
            self.session.reset()
            nll = self.session.score([self.eot_token_id, *self.tok_encode(request.args[0])])
            out.append(-float(nll[1:].astype(np.float64).sum()))
        return out

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
        """Answers without a chat template, with the task's stop texts, length and temperature."""
        out = []
        for request in requests:
            context, options = request.args
            until = options.get("until") or []
            self.session.reset()
            self.session.read(self.tok_encode(context))
            answer = self.session.generate(
                max_tokens=int(options.get("max_gen_toks", 256)),
                temperature=float(options.get("temperature", 0)) if options.get("do_sample") else 0.0,
                stop=[until] if isinstance(until, str) else list(until),
            )
            out.append(answer.read())
        return out
