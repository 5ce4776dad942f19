#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sequential and concurrent answers of a server: throughput in tokens a second, and whether both give the same text.

    tools/load/throughput.py PROGRAM MODEL [-n 8] [--tokens 128] [--prompt-words 200] [--rounds 3] [-- SERVE-FLAG...]

Starts `PROGRAM serve` with N answer pots. Each round asks N different prompts, first in turn and then concurrently,
with greedy answers of a fixed length, so that both halves of a round run under the same conditions. Only writing is
timed: from the first token of an answer (concurrently: from the last answer's first token) to the end.
"""

import argparse
import http.client
import json
import re
import statistics
import subprocess
import sys
import threading
import time


class Answer:
    def __init__(self, port, prompt, n_tokens):
        self.port, self.prompt, self.n_tokens = port, prompt, n_tokens
        self.text, self.times = "", []

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(
            "POST",
            "/v1/completions",
            json.dumps(
                {
                    "prompt": self.prompt,
                    "max_tokens": self.n_tokens,
                    "temperature": 0,
                    "ignore_eos": True,
                    "stream": True,
                }
            ),
        )
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(response.read().decode())
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            choice = json.loads(line[6:])["choices"][0]
            self.text += choice["text"]
            if choice["text"]:
                self.times.append(time.monotonic())

    def tokens_between(self, begin, end):
        """Counts pieces of text as tokens: a token may end in the middle of a character."""
        return sum(begin < t <= end for t in self.times) * self.n_tokens / len(self.times)


def prompts_of(n, n_words):
    words = "the river carries what the rain gives and keeps what it can hold".split()
    return [" ".join(words[(i * (k + 1) + k) % len(words)] for i in range(n_words)) for k in range(n)]


def in_turn(port, prompts, n_tokens):
    """The answers, one after another, and tokens a second while they are written."""
    answers = [Answer(port, prompt, n_tokens) for prompt in prompts]
    for answer in answers:
        answer.run()
    seconds = sum(a.times[-1] - a.times[0] for a in answers)
    return answers, sum(a.tokens_between(a.times[0], a.times[-1]) for a in answers) / seconds


def at_once(port, prompts, n_tokens):
    """The same while all are written."""
    answers = [Answer(port, prompt, n_tokens) for prompt in prompts]
    threads = [threading.Thread(target=a.run) for a in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    begin, end = max(a.times[0] for a in answers), min(a.times[-1] for a in answers)
    return answers, sum(a.tokens_between(begin, end) for a in answers) / (end - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("-n", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt-words", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:at])
    flags = words[at + 1 :]
    server = subprocess.Popen(
        [args.program, "serve", "-m", args.model, "--port", "0", "--answer-pots", str(args.n)] + flags,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = 0
        for line in server.stderr:
            if found := re.search(r"http://[^:]+:(\d+)", line):
                port = int(found[1])
                break
        if not port:
            raise SystemExit("the server does not serve")
        prompts = prompts_of(args.n, args.prompt_words)
        ratios, same = [], 0
        for number in range(args.rounds):
            alone, one = in_turn(port, prompts, args.tokens)
            together, many = at_once(port, prompts, args.tokens)
            ratios.append(many / one)
            same += sum(a.text == b.text for a, b in zip(alone, together))
            print(
                f"round {number + 1}: in turn {one:.1f} tokens/s, {args.n} at once {many:.1f} tokens/s, ratio "
                f"{many / one:.2f}",
                flush=True,
            )
        print(
            f"ratio {statistics.median(ratios):.2f} (median of {args.rounds}, {min(ratios):.2f} to {max(ratios):.2f}); "
            f"{same} of {args.n * args.rounds} answers the same both ways"
        )
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
