#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a turn of a growing chat, with and without prefix reuse.

    weir serve -m MODEL.gguf --pot 8192 --port 8080 &
    bench/chat_turns.py http://127.0.0.1:8080 --text BOOK.txt [--turns 10] [--words 300] [-r 3]

Every turn sends the whole chat so far, --words more words of the book and a question. It is asked twice, with
`cache_prompt` true and false, in alternating order; greedy answers of 48 tokens must be equal. A row has the prompt's
tokens, those that were not read again, the milliseconds to the first token of both (medians over the rounds) and the
median of the ratios within a turn. Fields are llama-server's, so its figures can be taken with the same program (there,
equal answers are not promised: --may-differ).
"""

import argparse
import json
import statistics
import sys
import urllib.request


def ask(url, messages, cache):
    body = {"messages": messages, "temperature": 0, "max_tokens": 48, "cache_prompt": cache}
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="of a server that runs")
    parser.add_argument("--text", required=True, help="file that the turns take their words from")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--words", type=int, default=300, help="of the text in every turn")
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--may-differ", action="store_true", help="answers need not be equal")
    args = parser.parse_args()
    with open(args.text, encoding="utf-8", errors="replace") as file:
        words = file.read().split()
    if len(words) < args.turns * args.words:
        sys.exit(f"{args.text} has {len(words)} words, {args.turns} turns of {args.words} need more")
    turns = [[] for _ in range(args.turns)]
    for n in range(args.rounds):
        messages = [{"role": "system", "content": f"You answer in one sentence. Chat {n}."}]
        for turn, rows in enumerate(turns):
            text = " ".join(words[turn * args.words : (turn + 1) * args.words])
            messages.append({"role": "user", "content": text + " What happens here?"})
            answers = {
                cache: ask(args.url, messages, cache) for cache in ((True, False) if (turn + n) % 2 else (False, True))
            }
            said = {cache: answers[cache]["choices"][0]["message"]["content"] for cache in answers}
            if said[True] != said[False] and not args.may_differ:
                sys.exit(f"turn {turn + 1}: the answers differ:\n{said[True]}\n{said[False]}")
            usage = answers[True]["usage"]
            rows.append(
                (
                    usage["prompt_tokens"],
                    usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
                    answers[True]["timings"]["prompt_ms"],
                    answers[False]["timings"]["prompt_ms"],
                )
            )
            messages.append({"role": "assistant", "content": said[True]})
    print(
        "| turn | prompt, tokens | not read again | ms, going on | ms, anew | anew / going on "
        "|\n|--:|--:|--:|--:|--:|--:|"
    )
    for turn, rows in enumerate(turns):
        tokens, cached, on, anew = (statistics.median(row[i] for row in rows) for i in range(4))
        ratio = statistics.median(row[3] / row[2] for row in rows)
        print(f"| {turn + 1} | {tokens:,.0f} | {cached:,.0f} | {on:,.0f} | {anew:,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
