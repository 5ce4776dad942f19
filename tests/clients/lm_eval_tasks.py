#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tasks like lm_eval's `lambada` and `wikitext`, in process (weir.lm_eval) and through the server.

    tests/clients/lm_eval_tasks.py PROGRAM [MODEL]

`lambada` asks for the last word of a passage: its likelihood, and whether greedy decoding writes it. `wikitext` asks
how likely whole texts are: perplexity of words and bytes. Their data are made here, so that nothing is fetched. With
the tests' small model, in F32, the figures must be the same to 1e-4; with MODEL, or WEIR_MODEL, of whatever weights,
the shares of right words must be the same and perplexities to 1 %: activations round to 8 bits in groups that depend on
how many tokens are read at once. The library is the one beside the program. Needs the Python packages `lm_eval[api]`
and `numpy`; exits with 77 (skipped) where one is missing.
"""

import os
import random
import sys
import tempfile
from pathlib import Path

from server import Server, skip

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "golden" / "models" / "llama.gguf"
PROGRAM = sys.argv[1]
os.environ.setdefault("WEIR_LIBRARY", str(Path(PROGRAM).resolve().parent / "libweir.so"))
sys.path.insert(0, str(ROOT / "python"))

from lm_eval_client import SENTENCES, lines  # noqa: E402  (skips without lm_eval)

try:
    import lm_eval
    from lm_eval.tasks import TaskManager
    from weir.lm_eval import WeirLM
except ImportError as error:
    skip(str(error))

TASKS = """
task: weir_lambada
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/passages.jsonl
test_split: test
output_type: loglikelihood
doc_to_text: "{{{{text.split(' ')[:-1]|join(' ')}}}}"
doc_to_target: "{{{{' '+text.split(' ')[-1]}}}}"
metric_list:
  - metric: perplexity
    aggregation: perplexity
    higher_is_better: false
  - metric: acc
    aggregation: mean
    higher_is_better: true
---
task: weir_wikitext
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/texts.jsonl
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""
NAMES = ["weir_lambada", "weir_wikitext"]


def write_tasks(folder):
    rng = random.Random(3)
    sentences = [text + answer for text, answer, _ in SENTENCES]

    def passage(n):
        return ". ".join(rng.sample(sentences, n))

    (folder / "passages.jsonl").write_text(lines({"text": passage(rng.randint(1, 6))} for _ in range(40)))
    (folder / "texts.jsonl").write_text(lines({"text": passage(rng.randint(3, 12)) + "."} for _ in range(12)))
    for name, text in zip(NAMES, TASKS.format(folder=folder).split("---\n")):
        (folder / f"{name}.yaml").write_text(text)


def figures(model, folder, **options):
    out = lm_eval.simple_evaluate(
        model=model,
        tasks=NAMES,
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        **options,
    )
    return {
        f"{name} {metric.split(',')[0]}": value
        for name in NAMES
        for metric, value in out["results"][name].items()
        if metric.endswith(",none") and "_stderr" not in metric
    }


def of_server(model, folder, prefix):
    with Server(PROGRAM, model, ["--pot", "1024", "--policy", "full"]) as server:
        return figures(
            "local-completions",
            folder,
            model_args={
                "base_url": server.url + "/v1/completions",
                "model": "weir",
                "tokenizer_backend": "remote",
                "tokenized_requests": True,
                "num_concurrent": 1,
                "max_retries": 1,
                "max_length": 1024,
                "custom_prefix_token_id": prefix,  # lm_eval takes a BOS whose id is 0 for none
            },
        )


def compare(model, folder, bound):
    lm = WeirLM(model, pot=1024, policy="full")
    ours, theirs = figures(lm, folder), of_server(model, folder, lm.eot_token_id)
    if set(ours) != set(theirs) or len(ours) != 5:
        raise SystemExit(f"WRONG these are not the same figures: {ours} and {theirs}")
    for name, value in ours.items():
        print(f"{Path(model).name}: {name}: in process {value:.6f}, server {theirs[name]:.6f}")
        right = value == theirs[name] if name.endswith(" acc") else abs(value / theirs[name] - 1) <= bound
        if not right:
            raise SystemExit("WRONG in process and on the server they differ")


def main():
    model = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("WEIR_MODEL")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tasks(folder)
        compare(str(TINY), folder, 1e-4)
        if model:
            compare(model, folder, 0.01)


if __name__ == "__main__":
    main()
