#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares greedy continuations and perplexity of weir with llama.cpp on the same model file.

    pip install llama-cpp-python
    tools/peer/parity.py --weir build/release/weir -m MODEL.gguf --prompts PROMPTS.txt [--text wiki.test.raw]

Greedy: both continue each prompt (one per line of the file) by 128 tokens with the full cache. Where they diverge, the
top two logits at that step are printed for llama.cpp and weir: a divergence is excused when both gaps are below 0.05.
On files with quantised weights both programs round activations to 8 bits, and a difference in the last bit of one sum
changes logits by some tenths; --control compares llama.cpp with itself (flash attention on and off) to show how much.
Perplexity: windows of 512 tokens, second half counted, both programs on the same tokens.
Prints one JSON line per prompt and per figure, then a summary; exits 1 when a bound is broken.
"""

import argparse
import json
import math
import subprocess
import sys

import numpy as np

MAX_GAP = 0.05


def weir_greedy(args, tokens, n):
    """weir's continuation of `tokens`: ids and the top two logits of every step."""
    out = subprocess.run(
        [
            args.weir,
            "eval",
            "greedy",
            "-m",
            args.model,
            "-t",
            str(args.threads),
            "--policy",
            "full",
            "-c",
            str(len(tokens) + n + 1),
            "-ctk",
            args.cache,
            "-ctv",
            args.cache,
            "-n",
            str(n),
            "--ids",
            ",".join(map(str, tokens)),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return json.loads(out.strip().splitlines()[-1])


def make_peer(llama_cpp, args, n_ctx, flash_attn, logits_all=False):
    types = {"f32": 0, "f16": 1, "q8_0": 8}
    return llama_cpp.Llama(
        args.model,
        n_ctx=n_ctx,
        n_batch=512,
        n_threads=args.threads,
        n_threads_batch=args.threads,
        logits_all=logits_all,
        verbose=False,
        flash_attn=flash_attn,
        type_k=types[args.cache],
        type_v=types[args.cache],
    )


def peer_greedy(llm, tokens, n):
    llm.reset()
    llm.eval(tokens)
    ids, top = [], []
    for _ in range(n):
        logits = np.ctypeslib.as_array(llm._ctx.get_logits_ith(-1), shape=(llm.n_vocab(),))
        order = np.argsort(-logits, kind="stable")[:2]
        ids.append(int(order[0]))
        top.append([float(logits[order[0]]), float(logits[order[1]])])
        llm.eval([ids[-1]])
    return ids, top


def peer_perplexity(llm, tokens, n_ctx, max_windows, first):
    """If `first` is given, it replaces the first token of every window (as in llama-perplexity)."""
    nll, count = 0.0, 0
    windows = len(tokens) // n_ctx
    if max_windows:
        windows = min(windows, max_windows)
    for w in range(windows):
        window = tokens[w * n_ctx : (w + 1) * n_ctx]
        if first is not None:
            window = [first, *window[1:]]
        llm.reset()
        llm.eval(window)
        logits = np.array(llm.scores[:n_ctx], dtype=np.float64)
        for i in range(n_ctx // 2, n_ctx - 1):
            row = logits[i]
            m = row.max()
            nll += m + math.log(np.exp(row - m).sum()) - row[window[i + 1]]
            count += 1
    return math.exp(nll / count), count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--prompts", help="text file, one prompt a line")
    parser.add_argument("--text", help="text for the perplexity")
    parser.add_argument("-n", type=int, default=128)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument(
        "--cache", default="f16", choices=["f32", "f16", "q8_0"], help="type of keys and values in both programs"
    )
    parser.add_argument(
        "--control",
        action="store_true",
        help="llama.cpp with flash attention against llama.cpp without, instead of weir",
    )
    parser.add_argument("--windows", type=int, default=0, help="windows of the text to read; 0 = all")
    args = parser.parse_args()
    import llama_cpp

    failed = False
    if args.prompts:
        llm = make_peer(llama_cpp, args, 2048, False)
        other = make_peer(llama_cpp, args, 2048, True) if args.control else None
        same = parted = 0
        for line in open(args.prompts, encoding="utf-8"):
            prompt = line.rstrip("\n")
            if not prompt:
                continue
            tokens = llm.tokenize(prompt.encode(), add_bos=True, special=False)
            ids, top = peer_greedy(llm, tokens, args.n)
            if other:
                other_ids, other_top = peer_greedy(other, tokens, args.n)
                ours = {"ids": other_ids, "top": other_top}
            else:
                ours = weir_greedy(args, tokens, args.n)
            at = next((i for i in range(args.n) if ids[i] != ours["ids"][i]), args.n)
            row = {"prompt": prompt, "same": at}
            if at == args.n:
                same += 1
            else:
                parted += 1
                row["peer_gap"] = top[at][0] - top[at][1]
                row["other_gap" if other else "weir_gap"] = ours["top"][at][0] - ours["top"][at][1]
                gap = ours["top"][at][0] - ours["top"][at][1]
                row["excused"] = row["peer_gap"] < MAX_GAP and gap < MAX_GAP
                failed = failed or not row["excused"]
            print(json.dumps(row, ensure_ascii=False), flush=True)
        print(json.dumps({"greedy_same": same, "greedy_parted": parted}))
    if args.text:
        llm = make_peer(llama_cpp, args, 512, False, logits_all=True)
        text = open(args.text, "rb").read()
        tokens = llm.tokenize(text, add_bos=True, special=False)
        vocab = llama_cpp.llama_model_get_vocab(llm._model.model)
        first = llm.token_bos() if llama_cpp.llama_vocab_get_add_bos(vocab) else None
        peer, count = peer_perplexity(llm, tokens, 512, args.windows, first)
        out = subprocess.run(
            [
                args.weir,
                "eval",
                "ppl",
                "-m",
                args.model,
                "-t",
                str(args.threads),
                "--policy",
                "full",
                "-ctk",
                args.cache,
                "-ctv",
                args.cache,
                "-f",
                args.text,
                "--window",
                "512",
                "-n",
                str(args.windows * 512),
            ],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        ours = json.loads(out.strip().splitlines()[-1])
        ratio = ours["value"] / peer
        print(
            json.dumps(
                {
                    "peer_perplexity": peer,
                    "peer_n": count,
                    "weir_perplexity": ours["value"],
                    "weir_n": ours["n"],
                    "ratio": ratio,
                }
            )
        )
        failed = failed or abs(ratio - 1) > 0.005 or ours["n"] != count
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
