#!/usr/bin/env python3
"""Runs the tiny models of tests/golden/models in llama.cpp and compares its logits with the reference's.

    pip install llama-cpp-python
    tools/peer_tiny.py [NAME ...]

What loads there and gives the same leading token at every position is a file both programs understand alike: names, row
order, scaling. Prints one Markdown row a model: the largest difference relative to the largest logit, and at how many
positions the leading token is the same. Models that llama.cpp has no architecture or no key for differ or do not load.
"""

import sys
from pathlib import Path

import llama_cpp
import numpy as np

MODELS = Path(__file__).resolve().parent.parent / "tests/golden/models"


def golden(path):
    data, at, out = path.read_bytes(), 0, {}
    while at < len(data):
        end = data.index(b"\n", at)
        name, rows, cols = data[at:end].split()
        n = int(rows) * int(cols)
        out[name.decode()] = np.frombuffer(data, "<f4", n, end + 1).reshape(int(rows), int(cols))
        at = end + 1 + 4 * n
    return out


def main():
    print("| model | largest difference | same leading token |\n|---|--:|--:|")
    for name in sys.argv[1:] or sorted(p.stem for p in MODELS.glob("*.golden")):
        want = golden(MODELS / f"{name}.golden")
        tokens = [int(t) for t in want["tokens"][:, 0]]
        try:
            llm = llama_cpp.Llama(str(MODELS / f"{name}.gguf"), n_ctx=len(tokens), n_batch=len(tokens), logits_all=True,
                                  verbose=False, flash_attn=False, type_k=0, type_v=0)
        except ValueError as e:
            print(f"| {name} | {e} | |")
            continue
        llm.eval(tokens)
        got, want = np.array(llm.scores[:len(tokens)]), want["logits"]
        same = int((got.argmax(1) == want.argmax(1)).sum())
        print(f"| {name} | {np.abs(got - want).max() / np.abs(want).max():.1e} | {same} of {len(tokens)} |", flush=True)


if __name__ == "__main__":
    main()
