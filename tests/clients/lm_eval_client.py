#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""EleutherAI's lm_eval against the real server, and the same score by `weir eval ppl`.

    tests/clients/lm_eval_client.py PROGRAM [MODEL]

A likelihood task of its own: the ending of a sentence out of three. lm_eval asks /v1/completions for the likelihoods of
prompts given as token ids (echo, logprobs); `weir eval ppl` reads the sentence with and without its ending. The score
must be the same to 1e-3. An ending's log-likelihood is there the difference of two readings of different lengths, whose
activations round to 8 bits differently: it must agree within 0.2. Needs the Python packages `lm_eval[api]`,
`transformers` and `gguf`; exits with 77 (skipped) where one is missing.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from server import Server, model_or_skip, skip

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OPENAI_API_KEY="secret")
try:
    import gguf  # noqa: F401  (transformers reads the tokenizer of a GGUF file with it)
    import lm_eval
    from lm_eval.tasks import TaskManager
    from transformers import AutoTokenizer
except ImportError as error:
    skip(f"the Python package {error.name} is not installed")

SENTENCES = [
    ("The sun rises in the", " east", [" east", " west", " kitchen"]),
    ("Fish live in the", " water", [" desert", " water", " sky"]),
    ("A week has seven", " days", [" days", " months", " wheels"]),
    ("The capital of France is", " Paris", [" Madrid", " Berlin", " Paris"]),
    ("To open the door, she turned the", " key", [" key", " soup", " moon"]),
    ("Snow is cold and", " white", [" loud", " white", " spicy"]),
    ("In winter the lake turns to", " ice", [" ice", " gold", " smoke"]),
    ("The baker sells fresh", " bread", [" bread", " bricks", " tyres"]),
    ("Cows give us", " milk", [" petrol", " silk", " milk"]),
    ("He read the last page and closed the", " book", [" book", " river", " horse"]),
    ("Two plus two equals", " four", [" nine", " four", " blue"]),
    ("At night we can see the", " stars", [" stars", " teachers", " recipes"]),
    ("The river flows into the", " sea", [" pencil", " sea", " number"]),
    ("She was tired, so she went to", " bed", [" bed", " fire", " Tuesday"]),
    ("Bees make", " honey", [" paper", " honey", " glass"]),
    ("The opposite of hot is", " cold", [" cold", " fast", " green"]),
]

TASK = """
task: weir_endings
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: label
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""


def by_lm_eval(program, model, folder):
    """Accuracy, and the log-likelihood of every ending."""
    data = folder / "endings.jsonl"
    data.write_text(
        "".join(
            json.dumps({"text": text, "choices": choices, "label": choices.index(answer)}) + "\n"
            for text, answer, choices in SENTENCES
        )
    )
    (folder / "weir_endings.yaml").write_text(TASK.format(data=data))
    tokenizer = folder / "tokenizer"
    AutoTokenizer.from_pretrained(str(Path(model).parent), gguf_file=Path(model).name).save_pretrained(str(tokenizer))
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
    with Server(program, model, ["--pot", "512", "--policy", "full", "--api-key", "secret"]) as server:
        out = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={
                "base_url": server.url + "/v1/completions",
                "model": "weir",
                "tokenizer": str(tokenizer),
                "tokenizer_backend": "huggingface",
                "tokenized_requests": True,
                "num_concurrent": 2,
                "max_retries": 1,
                "max_length": 512,
            },
            tasks=["weir_endings"],
            task_manager=TaskManager(include_path=str(folder), include_defaults=False),
            log_samples=True,
            bootstrap_iters=0,
        )
    samples = sorted(out["samples"]["weir_endings"], key=lambda sample: sample["doc_id"])
    likelihoods = [
        [float(one[0][0] if isinstance(one[0], (list, tuple)) else one[0]) for one in sample["resps"]]
        for sample in samples
    ]
    return out["results"]["weir_endings"]["acc,none"], likelihoods


def log_likelihood(program, model, folder, text):
    """Of all tokens of a text but the first."""
    path = folder / "text.txt"
    path.write_text(text)
    run = subprocess.run(
        [program, "eval", "ppl", "-f", str(path), "-m", model, "--policy", "full", "--pot", "512"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    if run.returncode != 0:
        raise SystemExit(run.stderr)
    row = json.loads(run.stdout.strip().split("\n")[-1])
    return -math.log(row["value"]) * row["n"]


def main():
    program, model = sys.argv[1], model_or_skip(sys.argv[2] if len(sys.argv) > 2 else None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        score, likelihoods = by_lm_eval(program, model, folder)
        n_right, largest = 0, 0.0
        for (text, answer, choices), theirs in zip(SENTENCES, likelihoods):
            before = log_likelihood(program, model, folder, text)
            ours = [log_likelihood(program, model, folder, text + choice) - before for choice in choices]
            n_right += choices[max(range(len(choices)), key=ours.__getitem__)] == answer
            largest = max([largest] + [abs(a - b) for a, b in zip(ours, theirs)])
    direct = n_right / len(SENTENCES)
    print(f"lm_eval {score:.4f}, weir {direct:.4f}; log-likelihoods differ by at most {largest:.2g}")
    if abs(score - direct) > 1e-3 or largest > 0.2:
        raise SystemExit("WRONG they differ")


if __name__ == "__main__":
    main()
