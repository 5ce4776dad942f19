#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The outside way: a search in Python and a server that has the whole prompt in its cache.

    weir eval streamqa -m MODEL.gguf ... --recall words --log stream.log      # what was read and asked
    llama-server -m MODEL.gguf -c 2048 --port 8081 &                          # or: weir serve --policy full --pot 2048
    bench/peer/outside.py stream.log --server http://127.0.0.1:8081 [--pid PID]

Reads the log of `weir eval streamqa --log`. For every question, BM25 (k1 = 1.2, b = 0.75) ranks windows of 48 words, 24
apart, of all that was read before; the two best (--windows) are put before the question, in the order of the text, and
the server continues it (POST /v1/completions, temperature 0). A row for every kind and distance has accuracy, how often
the answer was in the windows, and the seconds of search and answer; --pid is the server's process, for its resident
memory. The index is kept up to date while the text is read; that time is reported apart. --json FILE appends the rows.
"""

import argparse
import collections
import heapq
import json
import math
import re
import resource
import statistics
import time
import urllib.request

STOP = set(
    "a an and are as at be by did do does for from had has have how in is it its of on or that the their they "
    "this to was were what when where which who whose why will with".split()
)
WORDS, STEP, K1, B = 48, 24, 1.2, 0.75


def terms(text):
    return [w[:-2] if w.endswith("'s") else w for w in re.findall(r"[a-z0-9']+", text.lower())]


class Index:
    """Windows of a growing text."""

    def __init__(self):
        self.tail = []  # words that no window has yet
        self.texts, self.lengths = [], []
        self.postings = collections.defaultdict(list)  # term: (window, how often)

    def add(self, text):
        self.tail += re.findall(r"\S+\s*", text)
        while len(self.tail) >= WORDS:
            self._window(self.tail[:WORDS], final=True)
            del self.tail[:STEP]

    def _window(self, words, final):
        text = "".join(words)
        counts = collections.Counter(t for t in terms(text) if t not in STOP)
        if final:
            for term, n in counts.items():
                self.postings[term].append((len(self.texts), n))
            self.texts.append(text)
            self.lengths.append(sum(counts.values()))
        return text, counts

    def best(self, question, n):
        """The n best windows, in the order of the text. Of equals the newest."""
        scores = collections.Counter()
        count = len(self.texts)
        mean = sum(self.lengths) / count if count else 1
        for term in dict.fromkeys(t for t in terms(question) if t not in STOP):
            found = self.postings.get(term, [])
            weight = math.log(1 + (count - len(found) + 0.5) / (len(found) + 0.5))
            for window, tf in found:
                scores[window] += weight * tf * (K1 + 1) / (tf + K1 * (1 - B + B * self.lengths[window] / mean))
        chosen = []
        for window, _ in heapq.nlargest(8 * n, scores.items(), key=lambda item: (item[1], item[0])):
            if all(abs(window - other) > 1 for other in chosen):  # windows overlap by half
                chosen.append(window)
            if len(chosen) == n:
                break
        return [self.texts[w] for w in sorted(chosen)]


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


def complete(server, prompt):
    body = {"prompt": prompt, "temperature": 0, "repeat_penalty": 1, "max_tokens": 12, "cache_prompt": False}
    request = urllib.request.Request(
        server + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["text"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log")
    parser.add_argument("--server", required=True, help="address, without a path")
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--pid", type=int, help="of the server")
    parser.add_argument("--json", help="append the rows to this file")
    args = parser.parse_args()
    index = Index()
    cells = collections.defaultdict(lambda: collections.defaultdict(list))
    index_s = 0
    with open(args.log, encoding="utf-8") as log:
        for line in log:
            row = json.loads(line)
            if "read" in row:
                began = time.perf_counter()
                index.add(row["read"])
                index_s += time.perf_counter() - began
                continue
            if row["kind"] not in ("present", "memory"):
                continue
            # Distances are powers of two, and a fact lies up to half a gap from one.
            distance = 0 if row["kind"] == "present" else 2 ** round(math.log2(row["tokens_back"]))
            began = time.perf_counter()
            found = index.best(row["ask"], args.windows)
            searched = time.perf_counter()
            answer = complete(args.server, "\n".join(text.strip() for text in found) + row["ask"])
            cell = cells[distance]
            cell["search"].append(searched - began)
            cell["answer"].append(time.perf_counter() - searched)
            cell["found"].append(any(row["gold"] in text for text in found))
            first = re.search(r"\d+", answer)
            cell["right"].append(first is not None and first.group() == row["gold"].strip())
    print("| tokens back | n | accuracy | in the windows | search ms, median | answer s, median |")
    print("|--:|--:|--:|--:|--:|--:|")
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for distance, cell in sorted(cells.items()):
        n, accuracy = len(cell["right"]), statistics.mean(cell["right"])
        error = math.sqrt(accuracy * (1 - accuracy) / max(1, n - 1))
        row = {
            "suite": "streamqa",
            "task": "outside",
            "windows": args.windows,
            "distance": distance,
            "metric": "accuracy",
            "value": accuracy,
            "stderr": error,
            "n": n,
            "found": statistics.mean(cell["found"]),
            "search_ms": 1e3 * statistics.median(cell["search"]),
            "answer_s": statistics.median(cell["answer"]),
            "index_s": index_s,
            "python_bytes": own,
            "server_bytes": resident(args.pid) if args.pid else None,
        }
        print(
            f"| {distance} | {n} | {accuracy:.2f} ± {error:.2f} | {row['found']:.2f} | {row['search_ms']:.1f} | "
            f"{row['answer_s']:.2f} |"
        )
        if args.json:
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    print(f"\nindex {index_s:.1f} s; Python {own / 2**20:.0f} MiB at most", end="")
    print(f"; server {resident(args.pid) / 2**20:.0f} MiB" if args.pid else "")


if __name__ == "__main__":
    main()
