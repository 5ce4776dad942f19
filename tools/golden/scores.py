#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/scores/published.jsonl: made answers, scored by the published programs.

    tools/golden/scores.py --ruler FOLDER --infinitebench FOLDER --helmet FOLDER --ovo FOLDER [--out FILE]

The folders are checkouts of NVIDIA/RULER, OpenBMB/InfiniteBench, princeton-nlp/HELMET and JoeLeelyf/OVO-Bench. Their
functions are taken out of their files by name, so that none of the packages that these import is needed. A line is one
reply: metric (of src/eval/text_tasks.h), reply, answers and score. Replies are made of the answers: alone, in
sentences, in other case, with marks, in part, in the wrong place, and of other words.
"""

import argparse
import ast
import collections
import json
import re
import string
from pathlib import Path


def functions(path, *names):
    """Functions of these names, wherever they stand in a file, and those of its top level."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    wanted = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in names]
    top = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node not in wanted]
    for node in [*top, *wanted]:
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
    space = dict(re=re, string=string, Counter=collections.Counter, json=json)
    exec(compile(ast.Module([*top, *wanted], []), str(path), "exec"), space)  # noqa: S102
    return [space[name] for name in names]


def replies(answers):
    """Made replies to a question with these right answers."""
    first, last = answers[0], answers[-1]
    yield from ("", " ", "I do not know.", first, last, f" {first}\n", first.lower(), first.upper())
    yield f"The answer is: {first}."
    yield f"answer is {first}, not another"
    yield f'"{first}"'
    yield f"It is the {first}!\nQuestion: {last}?"
    yield ", ".join(answers) + "."
    yield " and ".join(answers[: len(answers) // 2 + 1])
    yield f"{first[: len(first) // 2]} {first[len(first) // 2 :]}"
    yield f"7 {first} 12"
    yield f"none of a, an, the ... {last};"
    yield "A dog. B: a cat, option is C"
    yield "answer: D"
    yield "Yes, I think. No?"
    yield "Y"
    yield "N"


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/scores/published.jsonl.")
    for name in ("ruler", "infinitebench", "helmet", "ovo"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=root / "tests/golden/scores/published.jsonl")
    args = parser.parse_args()
    match_all, match_part = functions(
        args.ruler / "scripts/eval/synthetic/constants.py", "string_match_all", "string_match_part"
    )
    bench = "get_score_one_"
    passkey, kv, dialogue, choice, qa = functions(
        args.infinitebench / "src/compute_scores.py",
        *(
            bench + n
            for n in ("passkey", "kv_retrieval", "longdialogue_qa_eng", "longbook_choice_eng", "longbook_qa_eng")
        ),
    )
    normalise, exact = functions(args.helmet / "utils.py", "normalize_answer", "drqa_exact_match_score")
    letter, digits, yes_no = functions(
        args.ovo / "utils/OVOBenchScore.py", "get_score", "get_score_REC", "get_score_SSR_CRR"
    )
    words = (["4821907"], ["brave-apple", "calm-basket", "dusty-candle"], ["Denver Broncos", "the Broncos"], ["A cat"])
    numbers, names, letters, says = (["12345"], ["71"], ["7"]), (["ALICE"], ["BOB", "Bob"]), "ABCD", (["Yes"], ["No"])
    options = {letter: f"the {word} house" for letter, word in zip(letters, ("red", "blue", "old", "last"))}
    chosen = [[letter, text] for letter, text in options.items()]
    in_turn = (
        # RULER gives percent, rounded to hundredths.
        ("all", words, lambda reply, answers: match_all([reply], [answers]) / 100),
        ("part", words, lambda reply, answers: match_part([reply], [answers]) / 100),
        ("em", words, lambda reply, answers: max(exact(reply, a) for a in answers)),
        ("sub_em", words, lambda reply, answers: max(normalise(a) in normalise(reply) for a in answers)),
        ("first_number", numbers, lambda reply, answers: passkey(reply, answers, "")),
        ("word", (["4821907"], ["d2a8f1"]), lambda reply, answers: kv(reply, answers[0], "")),
        ("upper_word", names, lambda reply, answers: dialogue(reply, answers, "")),
        ("book_choice", chosen, lambda reply, answers: choice(reply, answers, "")),
        ("qa_f1", words, lambda reply, answers: qa(reply, answers, "")),
        ("letter", [[one] for one in letters], lambda reply, answers: letter(reply, answers[0])),
        ("digits", numbers, lambda reply, answers: digits(reply, answers[0])),
        ("yes_no", says, lambda reply, answers: reply == answers[0][0] or yes_no(reply, answers[0])),
    )
    args.out.parent.mkdir(parents=True, exist_ok=True)
    n = 0
    with args.out.open("w", encoding="utf-8") as file:
        for metric, cases, score in in_turn:
            for answers in cases:
                for reply in replies(answers):
                    row = dict(metric=metric, reply=reply, answers=answers, score=float(score(reply, answers)))
                    file.write(json.dumps(row) + "\n")
                    n += 1
    print(f"{args.out}: {n} replies")


if __name__ == "__main__":
    main()
