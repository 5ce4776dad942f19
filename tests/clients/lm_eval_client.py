#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""EleutherAI's lm_eval against the real server, with two tasks of its own.

    tests/clients/lm_eval_client.py PROGRAM [MODEL]

The ending of a sentence out of three, by likelihood: lm_eval takes the server's tokenizer (/tokenizer_info) and asks
/v1/completions for the likelihoods of prompts given as token ids (echo, logprobs); `weir eval ppl` reads the sentence
with and without its ending. The score must be the same to 1e-3. An ending's log-likelihood is there the difference of
two readings of different lengths, whose activations round to 8 bits differently: it must agree within 0.2.

Sums in words, as GSM8K asks them: lm_eval asks /v1/chat/completions with three examples as rounds before each, and the
number behind the last "####" counts. The answers must be those that the server gives to the same messages, byte for
byte, and so must the share of right ones.

Needs the Python package `lm_eval[api]`; exits with 77 (skipped) where it is missing.
"""

import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from server import Server, model_or_skip, skip

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OPENAI_API_KEY="secret")
try:
    import lm_eval
    from lm_eval.tasks import TaskManager
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

FLAGS = ["--pot", "1024", "--policy", "full", "--api-key", "secret"]
ENDINGS = """
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


SUMS = """
task: weir_sums
dataset_path: json
dataset_kwargs:
  data_files:
    train: {examples}
    test: {data}
test_split: test
fewshot_split: train
num_fewshot: 3
fewshot_config:
  sampler: first_n
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs:
  until: ["Q:"]
  do_sample: false
  max_gen_toks: 60
filter_list:
  - name: strict-match
    filter:
      - function: regex
        regex_pattern: '#### (-?[0-9]+)'
      - function: take_first
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    regexes_to_ignore: ["(?s).*#### "]
"""


def sums(n):
    """Sums in words, with their answers as GSM8K writes them."""
    rng = random.Random(5)
    out = []
    for _ in range(n):
        have, more = rng.randint(2, 9), rng.randint(2, 9)
        name, thing = rng.choice(["Ada", "Ben", "Cleo"]), rng.choice(["apples", "books", "coins"])
        question = f"{name} has {have} {thing} and buys {more} more. How many {thing} does {name} have?"
        out.append({"question": question, "answer": f"{have} + {more} = {have + more}. #### {have + more}"})
    return out


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def chat_by_lm_eval(program, model, folder):
    """The share of right sums, and whether the server says the same to the same messages."""
    examples, asked = sums(23)[:3], sums(23)[3:]
    (folder / "examples.jsonl").write_text(lines(examples))
    (folder / "sums.jsonl").write_text(lines(asked))
    (folder / "weir_sums.yaml").write_text(SUMS.format(examples=folder / "examples.jsonl", data=folder / "sums.jsonl"))
    with Server(program, model, FLAGS) as server:
        url = server.url + "/v1/chat/completions"
        out = lm_eval.simple_evaluate(
            model="local-chat-completions",
            model_args={"base_url": url, "model": "weir", "num_concurrent": 2, "max_retries": 1, "max_length": 1024},
            tasks=["weir_sums"],
            task_manager=TaskManager(include_path=str(folder), include_defaults=False),
            apply_chat_template=True,
            fewshot_as_multiturn=True,
            log_samples=True,
            bootstrap_iters=0,
        )
        n_right = 0
        for sample in out["samples"]["weir_sums"]:
            messages = json.loads(sample["arguments"][0][0][0])
            if [one["role"] for one in messages] != ["user", "assistant"] * 3 + ["user"]:
                raise SystemExit(f"WRONG the examples are not rounds: {messages}")
            body = {"messages": messages, "max_tokens": 60, "temperature": 0, "stop": ["Q:"]}
            request = urllib.request.Request(
                url,
                data=json.dumps(body).encode(),
                headers={"Authorization": "Bearer secret", "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=300) as answer:
                said = json.load(answer)["choices"][0]["message"]["content"]
            if said != sample["resps"][0][0]:
                raise SystemExit(f"WRONG lm_eval heard {sample['resps'][0][0]!r}, and not {said!r}")
            found = re.findall(r"#### (-?[0-9]+)", said)
            n_right += found[:1] == [sample["doc"]["answer"].split("#### ")[1]]
    return out["results"]["weir_sums"]["exact_match,strict-match"], n_right / len(asked)


def by_lm_eval(program, model, folder):
    """Accuracy, and the log-likelihood of every ending."""
    data = folder / "endings.jsonl"
    data.write_text(
        "".join(
            json.dumps({"text": text, "choices": choices, "label": choices.index(answer)}) + "\n"
            for text, answer, choices in SENTENCES
        )
    )
    (folder / "weir_endings.yaml").write_text(ENDINGS.format(data=data))
    with Server(program, model, FLAGS) as server:
        out = lm_eval.simple_evaluate(
            model="local-completions",
            model_args={
                "base_url": server.url + "/v1/completions",
                "model": "weir",
                "tokenizer_backend": "remote",
                "auth_token": "secret",
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
    with tempfile.TemporaryDirectory() as name:
        score, direct = chat_by_lm_eval(program, model, Path(name))
    print(f"sums in words: lm_eval {score:.4f}, asked directly {direct:.4f}")
    if abs(score - direct) > 1e-3:
        raise SystemExit("WRONG they differ")


if __name__ == "__main__":
    main()
