#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tiny models of the goldens in llama.cpp and compares its logits with the reference's, its answers with
weir's.

    pip install llama-cpp-python
    tools/peer/tiny.py [--weir build/release/weir] [--folder FOLDER] [NAME ...]

A file that loads there and gives the same top token at every position is read the same way by both programs: names, row
order, scaling. Prints one Markdown row per model: the largest difference relative to the largest logit, and at how many
positions the top token is the same. With --weir both programs also generate, each from its own output: the number of
equal tokens before they diverge, and the gap of llama.cpp's top two logits there, relative to the largest.
Models for which llama.cpp has no architecture or key differ or do not load. Some families load there only as variants
that are too large to commit: --folder has those that `tools/golden/tiny_models.py` wrote in place of the goldens.
"""

import argparse
import json
import subprocess
from pathlib import Path

import llama_cpp
import numpy as np

GOLDEN = Path(__file__).resolve().parents[2] / "tests/golden"
PROMPT = 8


def golden(path):
    data, at, out = path.read_bytes(), 0, {}
    while at < len(data):
        end = data.index(b"\n", at)
        name, rows, cols = data[at:end].split()
        n = int(rows) * int(cols)
        out[name.decode()] = np.frombuffer(data, "<f4", n, end + 1).reshape(int(rows), int(cols))
        at = end + 1 + 4 * n
    return out


def load(path, n_ctx, all_rows):
    return llama_cpp.Llama(
        str(path), n_ctx=n_ctx, n_batch=n_ctx, logits_all=all_rows, verbose=False, flash_attn=False, type_k=0, type_v=0
    )


def reading(path, want):
    """The largest difference relative to the largest logit, and at how many positions the top token is the same."""
    tokens = [int(t) for t in want["tokens"][:, 0]]
    llm = load(path, len(tokens), True)
    llm.eval(tokens)
    got, want = np.array(llm.scores[: len(tokens)]), want["logits"]
    same = int((got.argmax(1) == want.argmax(1)).sum())
    return f"{np.abs(got - want).max() / np.abs(want).max():.1e} | {same} of {len(tokens)}"


def writing(path, weir, tokens, n):
    """How many of n tokens are the same, and the peer's relative gap where they diverge."""
    out = subprocess.run(
        [
            weir,
            "eval",
            "greedy",
            "-m",
            path,
            "--policy",
            "full",
            "-c",
            str(len(tokens) + n + 1),
            "-ctk",
            "f32",
            "-ctv",
            "f32",
            "-n",
            str(n),
            "--ids",
            ",".join(map(str, tokens)),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    ours = json.loads(out.stdout.strip().splitlines()[-1])["ids"]
    llm = load(path, 2 * (len(tokens) + n), False)
    llm.eval(tokens)
    for i in range(n):
        logits = np.ctypeslib.as_array(llm._ctx.get_logits_ith(-1), shape=(llm.n_vocab(),))
        order = np.argsort(-logits, kind="stable")
        if order[0] != ours[i]:
            gap = (logits[order[0]] - logits[ours[i]]) / np.abs(logits).max()
            return f"{i} of {n}, then {gap:.1e} apart"
        llm.eval([int(order[0])])
    return f"{n} of {n}, {len(set(ours))} different ones"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; none: all")
    parser.add_argument("--weir", help="the program, to write beside llama.cpp")
    parser.add_argument("--folder", type=Path, help="models and their numbers, in place of the goldens")
    parser.add_argument("-n", type=int, default=128, help="tokens to write")
    args = parser.parse_args()
    models = sorted((args.folder or GOLDEN / "models").glob("*.gguf"))
    if args.folder is None:
        models += [GOLDEN / f"vision/{name}.gguf" for name in ("llava", "qwen2vl", "smolvlm")]
    print("| model | largest difference | same leading token |" + (" same tokens written |" if args.weir else ""))
    print("|---|--:|--:|" + ("--:|" if args.weir else ""))
    for path in models:
        if args.names and path.stem not in args.names:
            continue
        numbers = path.with_suffix(".golden")
        want = golden(numbers) if numbers.exists() and path.parent.name != "vision" else None
        try:
            row = [reading(path, want) if want else " | "]
            if args.weir:
                start = range(5, 5 + PROMPT) if want is None else want["tokens"][:PROMPT, 0]
                row.append(writing(path, args.weir, [int(t) for t in start], args.n))
        except ValueError as e:
            row = [str(e)]
        print(f"| {path.stem} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
