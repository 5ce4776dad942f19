#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time to the first token of short questions to a server, while it does nothing else and while it reads a long text.

    bench/first_token.py -m MODEL.gguf [--weir PROGRAM] [--tokens 100000] [-n 100] [-t 2] [-r 3] [-- SERVE-FLAG...]

A round starts a server, asks n questions, one at a time, each after a pause; then a session reads a text of about
`tokens` tokens, over and over, and n more questions are asked in the meantime. Prints the median, the 99th percentile
and the longest of both, and the ratio of the 99th percentiles: the median of the rounds, with the least and the
largest.
"""

import argparse
import http.client
import json
import statistics
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.dont_write_bytecode = True

from bench.peer.server import serving  # noqa: E402
from tools.load.throughput import Answer, prompts_of  # noqa: E402


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=3600)
    connection.request("POST", path, json.dumps(body))
    response = connection.getresponse()
    text = response.read().decode()
    if response.status not in (200, 201):
        raise SystemExit(f"{path}: {response.status} {text.strip()}")
    return json.loads(text)


class Reader(threading.Thread):
    """A session that reads a text again and again, until the server ends."""

    def __init__(self, port, n_tokens):
        super().__init__(daemon=True)
        self.port = port
        self.session = f"/v1/sessions/{post(port, '/v1/sessions', {})['id']}"
        piece = " ".join(prompts_of(50, 200)) + " "
        a_piece = len(post(port, "/tokenize", {"content": piece})["tokens"])
        self.text = piece * max(1, round(n_tokens / a_piece))

    def run(self):
        with suppress(OSError, http.client.HTTPException):
            while True:
                post(self.port, self.session + "/append", {"text": self.text})


def first_tokens(port, n, pause):
    """Seconds to the first token of n questions; no two begin alike, so that nothing of one is reused by another."""
    out = []
    for k in range(n):
        time.sleep(pause)
        answer = Answer(port, f"{k} {time.monotonic_ns()}: " + prompts_of(1, 20)[0], 4)
        began = time.monotonic()
        answer.run()
        out.append(answer.times[0] - began)
    return out


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def a_round(args, flags):
    with serving([args.weir, "serve", "-m", args.model, "-t", str(args.threads), *flags]) as port:
        first_tokens(port, 5, 0)
        idle = first_tokens(port, args.n, args.pause)
        reader = Reader(port, args.tokens)
        reader.start()
        time.sleep(1)
        busy = first_tokens(port, args.n, args.pause)
        if not reader.is_alive():
            sys.exit("the long text could not be read")
        return idle, busy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/release/weir")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("-n", type=int, default=100)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:at])
    rounds = [a_round(args, words[at + 1 :]) for _ in range(args.rounds)]
    print("| server | first token, ms: p50 | p99 | longest |\n|---|--:|--:|--:|")
    for k, name in enumerate(("does nothing else", "reads a long text")):
        times = [1000 * t for one in rounds for t in one[k]]
        print(f"| {name} | {quantile(times, 0.5):.1f} | {quantile(times, 0.99):.1f} | {max(times):.1f} |")
    ratios = [quantile(busy, 0.99) / quantile(idle, 0.99) for idle, busy in rounds]
    print(f"\nratio of p99: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
