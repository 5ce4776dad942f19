#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How often an answer begins with the same tokens when only a part of a picture's keys and values is used.

    tools/papers/first_tokens.py --weir WEIR -m MODEL --mmproj MMPROJ --data FOLDER [--policy NAME] [-n 50]

Asks the questions of FOLDER/questions.jsonl or streams.jsonl (docs/evaluation.md), each about its own pictures,
greedily, once with the whole cache and once with --policy, and prints the share of questions whose first --tokens
tokens are the same, with its standard error. An answer that ends earlier is compared as far as it goes. A-VL's talk
reports 99 % for three tokens and 30 % of the picture.
"""

import argparse
import json
import math
import subprocess
from pathlib import Path


def first_tokens(args, question, policy):
    """The text of the answer's first tokens: equal texts of at most so many tokens."""
    images = [part for name in question["shown"] for part in ("--image", name)]
    command = [args.weir, "run", "-m", args.model, "--mmproj", args.mmproj, *images, "-p", question["question"]]
    command += ["--policy", policy, "-n", str(args.tokens), "--temp", "0", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=args.data, check=False)
    if done.returncode:
        raise SystemExit(f"first_tokens: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])["text"]


def read(folder):
    """Questions with the pictures they are about: their own, or those of the last question that showed some."""
    path = next((folder / name for name in ("questions.jsonl", "streams.jsonl") if (folder / name).is_file()), None)
    if path is None:
        raise SystemExit(f"first_tokens: {folder} has neither questions.jsonl nor streams.jsonl")
    shown, questions = [], []
    for line in filter(str.strip, path.read_text(encoding="utf-8").splitlines()):
        question = json.loads(line)
        own = next((question[key] for key in ("frames", "images", "image") if question.get(key)), [])
        shown = ([own] if isinstance(own, str) else own) or shown
        if shown and question.get("distance", 0) == 0:
            questions.append({**question, "shown": shown})
    return questions


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True, type=lambda path: str(Path(path).absolute()))
    parser.add_argument("-m", "--model", required=True, type=lambda path: str(Path(path).absolute()))
    parser.add_argument("--mmproj", required=True, type=lambda path: str(Path(path).absolute()))
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--policy", default="a_vl:S=0.3,C=0.3")
    parser.add_argument("--tokens", type=int, default=3)
    parser.add_argument("-n", type=int, default=50)
    args = parser.parse_args()
    questions = read(args.data)[: args.n]
    if not questions:
        raise SystemExit(f"first_tokens: {args.data} has no question about a picture")
    same = sum(first_tokens(args, q, "full") == first_tokens(args, q, args.policy) for q in questions)
    share = same / len(questions)
    error = math.sqrt(share * (1 - share) / len(questions))
    print(f"{args.policy}: {share:.3f} ± {error:.3f} begin with the same {args.tokens} tokens, n = {len(questions)}")


if __name__ == "__main__":
    main()
