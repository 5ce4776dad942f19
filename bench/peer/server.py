#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Chats at once beside llama-server: the same file, the same prompts, the same threads, in turns.

    bench/peer/server.py --peer PATH/llama-server -m MODEL.gguf [-n 8] [--tokens 128] [-t 2] [-r 3] [-- WEIR-FLAG...]

llama-server is yours; nothing of llama.cpp is built or fetched here. A round starts weir and then llama-server without
and with flash attention. Each answers one prompt to warm up, then one alone, then N at once, greedily and as long as
asked for. Only writing is timed: from the first token of an answer (of several: from the last answer's first token) to
the end. A row has the medians over the rounds, and the ratio to the better of llama-server's two as the median of the
ratios within a round, with the least and the largest.
"""

import argparse
import statistics
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.dont_write_bytecode = True

from deploy.fleet.servers import free_port  # noqa: E402
from tools.load.throughput import at_once, in_turn, prompts_of  # noqa: E402


def wait_for(port, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).status == 200:
                return
        except OSError:
            time.sleep(0.1)
    sys.exit("a server does not serve")


@contextmanager
def serving(command):
    """The port of a server that runs meanwhile."""
    port = free_port(["127.0.0.1"])
    server = subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        yield port
    finally:
        server.kill()
        server.wait()


def rates(command, args):
    """Tokens a second of one answer, and of n at once."""
    with serving(command) as port:
        prompts = prompts_of(args.n, args.prompt_words)
        in_turn(port, prompts[:1], 8)
        one = in_turn(port, prompts[:1], args.tokens)[1]
        return one, at_once(port, prompts, args.tokens)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/release/weir")
    parser.add_argument("--peer", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-n", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt-words", type=int, default=200)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=2048, help="of each chat's cache")
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:at])
    threads = ["-t", str(args.threads)]
    weir = [args.weir, "serve", "-m", args.model, "--answer-pots", str(args.n), "--pot", str(args.slots)]
    peer = [args.peer, "-m", args.model, "-np", str(args.n), "-c", str(args.n * args.slots)]
    found = {"weir": [], "llama-server": [], "with flash attention": []}
    for _ in range(args.rounds):
        found["weir"].append(rates([*weir, *threads, *words[at + 1 :]], args))
        for name, flash in (("llama-server", "off"), ("with flash attention", "on")):
            found[name].append(rates([*peer, *threads, "-fa", flash], args))
    print("| chats | weir, tokens/s | llama-server | with flash attention | ratio |\n|---|--:|--:|--:|--:|")
    for k, chats in enumerate((1, args.n)):
        ours, *theirs = ([pair[k] for pair in pairs] for pairs in found.values())
        ratios = [own / max(a, b) for own, a, b in zip(ours, *theirs)]
        medians = " | ".join(f"{statistics.median(values):.0f}" for values in (ours, *theirs))
        print(f"| {chats} | {medians} | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")


if __name__ == "__main__":
    main()
