#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writing with and without guesses, from the text (`--lookup`) and by a draft (`--draft`), in turns: the same prompts,
the same answers.

    bench/lookup.py -m MODEL.gguf -f BOOK.txt [--lookup 7] [--draft FILE] [-n 192] [--prompts 6] [-r 3] [--temp 0]

Kinds of prompts: `copy` (a passage of the book is to be repeated), `edit` (a function of this project's Python files,
to be written again with another name), `extract` (sentences of a passage), `summary`, and `open`, questions without a
text. A round runs every prompt with guesses and without, in alternating order. Rows, one for each kind: tokens a second
of both, medians over prompts and rounds; the ratio, as the median of the ratios within a pair, with the least and the
largest; the share of guesses that were right, and of the draft's. An answer that differs between the two ends the
program. --json FILE appends rows.

--processor takes the processor's time instead of the clock's: that of a run less that of one that writes a single
token. It says about the same on a machine that others use (threads that wait for each other count as well). --reports
FILE: a file of prompts (JSON lines with `dataset` and `prompt`, as LongBench's, gzip) for `report`: 300 words of each
that asks for a summary are summed up.
"""

import argparse
import gzip
import json
import pathlib
import random
import re
import resource
import statistics
import subprocess
import sys

OPEN = [
    "How does a bicycle stay upright?",
    "Write a short story about a clock that runs backwards.",
    "Explain to a child why the sea is salty.",
    "What should one consider before adopting a dog?",
    "Describe a market in a small town on a rainy morning.",
    "Give five tips for a good night's sleep and say why they help.",
    "Compare travelling by train with travelling by plane.",
    "Write a polite letter that asks a neighbour to play music more quietly.",
]
ROOT = pathlib.Path(__file__).resolve().parents[1]


def functions():
    """Functions of this project's tools, of 8 to 20 lines."""
    out = []
    for path in sorted((ROOT / "tools").rglob("*.py")):
        for match in re.finditer(r"^def (\w+)\(.*?(?=^\S|\Z)", path.read_text(), re.M | re.S):
            text = match.group(0).rstrip()
            if 8 <= text.count("\n") <= 20:
                out.append((match.group(1), text))
    return out


def reports(path, n, rng):
    for line in gzip.open(path):
        row = json.loads(line)
        if row["dataset"] in ("gov_report", "qmsum") and n > 0:
            words = row["prompt"].split()
            at = rng.randrange(50, len(words) - 400)
            n -= 1
            yield f"Summarise this text in three sentences:\n\n{' '.join(words[at : at + 300])}"


def prompts(book, kind, n, rng):
    words = book.split()
    for i in range(n):
        at = rng.randrange(len(words) - 400)
        passage = " ".join(words[at : at + 160])
        if kind == "copy":
            yield f"Repeat this text word for word:\n\n{passage}"
        elif kind == "extract":
            yield f"List the three most important sentences of this text, word for word:\n\n{passage}"
        elif kind == "summary":
            yield f"Summarise this text in three sentences:\n\n{passage}"
        elif kind == "edit":
            name, text = rng.choice(functions())
            order = f"Rename the function {name} to {name}_again. Answer with the whole code only."
            yield f"{order}\n\n```python\n{text}\n```"
        else:
            yield OPEN[i % len(OPEN)]


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write(args, prompt, on, n_tokens=None):
    """The run's row, with `processor_s`, and how many guesses it made."""
    n = args.tokens if n_tokens is None else n_tokens
    command = [args.weir, "run", "-m", args.model, "--chat", "-p", prompt, "-n", str(n), "-o", "json"]
    command += ["-t", str(args.threads), "--lookup", str(args.lookup if on else 0), "--temp", str(args.temp)]
    command += ["--seed", "7", "--pot", str(args.pot), "--policy", args.policy]
    if on and args.draft:
        command += ["--draft", args.draft, "--draft-max", str(args.draft_max), "--draft-p-min", str(args.draft_p_min)]
    before = processor_seconds()
    done = subprocess.run(command, capture_output=True, text=True)
    after = processor_seconds()
    if done.returncode not in (0, 3):
        sys.exit(f"weir run: {done.stderr.strip().splitlines()[-1:]}")
    row = {**json.loads(done.stdout.splitlines()[-1]), "processor_s": after - before}
    guesses = re.search(r"(\d+) of (\d+) guesses right(?: \((\d+) of (\d+) by the draft)?", done.stderr)
    return row, [int(g or 0) for g in guesses.groups()] if guesses else [0, 0, 0, 0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/release/weir", help="the program (default: %(default)s)")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--file", required=True, help="a book in plain text")
    parser.add_argument("--lookup", type=int, default=7)
    parser.add_argument("--draft", help="a draft model")
    parser.add_argument("--draft-max", type=int, default=7)
    parser.add_argument("--draft-p-min", type=float, default=0.6)
    parser.add_argument("--pot", type=int, default=2048)
    parser.add_argument("--policy", default="weir")
    parser.add_argument("--temp", type=float, default=0)
    parser.add_argument("-n", "--tokens", type=int, default=192)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=6, help="of each kind (default: %(default)s)")
    parser.add_argument("--kinds", default="copy,edit,extract,summary,open")
    parser.add_argument("--reports", help="adds the kind `report`")
    parser.add_argument("--processor", action="store_true", help="processor time, not the clock's")
    parser.add_argument("--json", help="append the rows to this file")
    args = parser.parse_args()
    book = pathlib.Path(args.file).read_text(errors="replace")
    print("| prompts | tokens | off t/s | on t/s | on / off | least | largest | guesses right | the draft's |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for kind in args.kinds.split(",") + (["report"] if args.reports else []):
        rng = random.Random(kind)
        off, on, ratios, n_tokens, counts = [], [], [], 0, [0, 0, 0, 0]
        asked = reports(args.reports, args.prompts, rng) if kind == "report" else prompts(book, kind, args.prompts, rng)
        for i, prompt in enumerate(asked):
            for r in range(args.rounds):
                figures = {}
                for guessing in (False, True) if (i + r) % 2 else (True, False):
                    figures[guessing], guesses = write(args, prompt, guessing)
                    counts = [a + b for a, b in zip(counts, guesses)]
                if figures[False]["text"] != figures[True]["text"]:
                    sys.exit(f"{kind}, prompt {i}: the answers differ")
                if figures[False]["tokens_generated"] < 16:
                    continue  # too short to time
                n_tokens += figures[False]["tokens_generated"]
                if args.processor:
                    start = write(args, prompt, False, 1)[0]["processor_s"]
                    rates = [(figures[g]["tokens_generated"] - 1) / (figures[g]["processor_s"] - start) for g in (0, 1)]
                else:
                    rates = [figures[g]["decode_tokens_per_s"] for g in (0, 1)]
                off.append(rates[0])
                on.append(rates[1])
                ratios.append(on[-1] / off[-1])
        if not ratios:
            print(f"| {kind} | 0 | | | | | | | |")
            continue
        right, guessed, drafted_right, drafted = counts
        row = {
            "bench": "lookup",
            "kind": kind,
            "model": args.model.rsplit("/", 1)[-1],
            "policy": args.policy,
            "pot": args.pot,
            "temp": args.temp,
            "tokens": n_tokens,
            "pairs": len(ratios),
            "clock": "processor" if args.processor else "wall",
            "off_tokens_per_s": statistics.median(off),
            "on_tokens_per_s": statistics.median(on),
            "ratio": statistics.median(ratios),
            "least": min(ratios),
            "largest": max(ratios),
            "guessed": guessed,
            "right": right,
            "draft": args.draft and args.draft.rsplit("/", 1)[-1],
            "drafted": drafted,
            "drafted_right": drafted_right,
        }
        print(
            f"| {kind} | {n_tokens} | {row['off_tokens_per_s']:.1f} | {row['on_tokens_per_s']:.1f} "
            f"| {row['ratio']:.2f} | {row['least']:.2f} | {row['largest']:.2f} | {right} of {guessed} "
            f"| {drafted_right} of {drafted} |",
            flush=True,
        )
        if args.json:
            with open(args.json, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
