#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lm_eval in process (weir.lm_eval) against lm_eval through the server, with the tasks of lm_eval_client.py.

    tests/clients/lm_eval_in_process.py PROGRAM [MODEL]

The share of right endings must be the same to 1e-3, and the log-likelihood of each to 0.2: activations round to 8 bits
in groups that depend on how many tokens are read at once. A whole text must be as likely when it is read at once as
token by token, to 1 %, and an answer must end before its stop text. The library is the one beside the program. Needs
the Python packages `lm_eval[api]` and `numpy`; exits with 77 (skipped) where one is missing.
"""

import os
import sys
import tempfile
from pathlib import Path

from server import model_or_skip, skip

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = sys.argv[1]
os.environ.setdefault("WEIR_LIBRARY", str(Path(PROGRAM).resolve().parent / "libweir.so"))
sys.path.insert(0, str(ROOT / "python"))

from lm_eval_client import SENTENCES, by_lm_eval  # noqa: E402  (skips without lm_eval)

try:
    import lm_eval
    from lm_eval.api.instance import Instance
    from lm_eval.tasks import TaskManager
    from weir.lm_eval import WeirLM
except ImportError as error:
    skip(str(error))


def ask(kind, *arguments):
    return Instance(kind, {}, arguments, 0)


def check_texts(lm):
    text = " ".join(text + answer + "." for text, answer, _ in SENTENCES)
    ids = lm.tok_encode(text)
    (whole,) = lm.loglikelihood_rolling([ask("loglikelihood_rolling", text)])
    ((stepwise, _),) = lm._loglikelihood_tokens([((), [lm.eot_token_id], ids)])
    print(f"a text of {len(ids)} tokens: {whole:.2f} at once, {stepwise:.2f} token by token")
    if abs(whole - stepwise) > 0.01 * abs(stepwise):
        raise SystemExit("WRONG the likelihood of a text depends on how it is read")
    options = {"until": ["."], "max_gen_toks": 20}
    (answer,) = lm.generate_until([ask("generate_until", "The capital of France is", options)])
    if "Paris" not in answer or "." in answer:
        raise SystemExit(f"WRONG the capital of France is{answer}")


def endings(lm, folder):
    out = lm_eval.simple_evaluate(
        model=lm,
        tasks=["weir_endings"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        log_samples=True,
        bootstrap_iters=0,
    )
    samples = sorted(out["samples"]["weir_endings"], key=lambda sample: sample["doc_id"])
    likelihoods = [[float(one[0][0]) for one in sample["resps"]] for sample in samples]
    return out["results"]["weir_endings"]["acc,none"], likelihoods


def main():
    model = model_or_skip(sys.argv[2] if len(sys.argv) > 2 else None)
    with tempfile.TemporaryDirectory() as name:
        theirs = by_lm_eval(PROGRAM, model, Path(name))  # which also writes the task
        lm = WeirLM(model, pot=1024, policy="full")
        check_texts(lm)
        ours = endings(lm, Path(name))
    apart = max(abs(a - b) for one, other in zip(ours[1], theirs[1]) for a, b in zip(one, other))
    print(f"in process {ours[0]:.4f}, server {theirs[0]:.4f}; log-likelihoods differ by at most {apart:.2g}")
    if abs(ours[0] - theirs[0]) > 1e-3 or apart > 0.2:
        raise SystemExit("WRONG in process and on the server they differ")


if __name__ == "__main__":
    main()
