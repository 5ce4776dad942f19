#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tracing costs: two servers, one of which sends a span of everything to a collector here and logs every request,
get the same requests in turns; their processor times are compared, pair by pair.

    tools/load/tracing_cost.py PROGRAM MODEL [--rounds 50] [--words 100] [--tokens 32] [-- FLAGS OF SERVE]
"""

import argparse
import http.server
import json
import math
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request


class Collector(http.server.BaseHTTPRequestHandler):
    n_bytes = 0

    def do_POST(self):
        Collector.n_bytes += len(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


class Server:
    def __init__(self, program, model, flags):
        self.process = subprocess.Popen(
            [program, "serve", "-m", model, "--port", "0", *flags], stderr=subprocess.PIPE, text=True
        )
        for line in self.process.stderr:
            if found := re.search(r"http://[^\s\"]+:\d+", line):
                self.url = found[0]
                break
        # Somebody reads the log.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def processor_s(self):
        # The clock of another process's processor time, of all its threads (clock_getcpuclockid(3)).
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def ask(self, body, headers):
        before = self.processor_s()
        request = urllib.request.Request(self.url + "/v1/completions", body, headers)
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer.read()
        # What the server does after the answer, too.
        time.sleep(0.02)
        return self.processor_s() - before


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--words", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=32)
    words, more = sys.argv[1:], []
    if "--" in words:  # flags of both servers
        words, more = words[: words.index("--")], words[words.index("--") + 1 :]
    given = parser.parse_args(words)
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    otlp = ["--otlp", f"http://127.0.0.1:{collector.server_address[1]}", "--log-format", "json"]
    servers = [Server(given.program, given.model, flags + more) for flags in ([], otlp)]
    body = {"prompt": "the sea " * (given.words // 2), "max_tokens": given.tokens, "ignore_eos": True, "seed": 1}
    body |= {"cache_prompt": False, "temperature": 0.8}
    headers = {
        "Content-Type": "application/json",
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    }
    text = json.dumps(body).encode()
    for server in servers:
        server.ask(text, headers)
    # The exporter's thread also works between requests: the totals have that.
    begin = [server.processor_s() for server in servers]
    pairs = []
    for i in range(given.rounds):
        one = {}
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            one[which] = servers[which].ask(text, headers)
        pairs.append((one[0], one[1]))
    time.sleep(1.5)  # until the last spans have gone
    total = [server.processor_s() - start for server, start in zip(servers, begin)]
    for server in servers:
        server.process.kill()
        server.process.wait()
    more = [b - a for a, b in pairs]
    mean, error = statistics.mean(more), statistics.stdev(more) / math.sqrt(len(more))
    base = statistics.mean(a for a, _ in pairs)
    print(f"requests of {given.words} words and {given.tokens} tokens, {given.rounds} pairs", end=", ")
    print(f"{Collector.n_bytes} bytes to the collector")
    print(f"processor time of a request: {1000 * base:.3f} ms without tracing, with it ", end="")
    print(f"{1000 * mean:+.3f} +- {1000 * error:.3f} ms,")
    print(f"                             {100 * mean / base:+.3f} +- {100 * error / base:.3f} %")
    print(f"with what is done between requests: {100 * (total[1] / total[0] - 1):+.3f} % of {total[0]:.2f} s")


main()
