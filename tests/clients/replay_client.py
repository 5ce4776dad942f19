#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A short day of a server, recorded and replayed (tools/load/replay.py): a server that started anew answers everything
alike, one with another policy does not, and is told apart. replay_client.py PROGRAM MODEL"""

import json
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path

from server import Server

ROOT = Path(__file__).resolve().parents[2]
TOOL = [sys.executable, "-B", str(ROOT / "tools/load/replay.py")]
FLAGS = ["--pot", "64", "--policy", "streaming_llm", "-s", "3", "-t", "2"]


def ask(url, path, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        return error.read()


def a_day(url):
    chat = {"messages": [{"role": "user", "content": "the man and the sea"}], "max_tokens": 8, "ignore_eos": True}
    ask(url, "/health")
    ask(url, "/v1/chat/completions", chat)
    ask(url, "/v1/chat/completions", {**chat, "stream": True, "temperature": 1})
    ask(url, "/api/chat", {"model": "any", "messages": chat["messages"], "options": {"num_predict": 6}})
    ask(url, "/v1/nothing", {})
    session = json.loads(ask(url, "/v1/sessions", {"system": "Be brief."}))["id"]
    ask(url, f"/v1/sessions/{session}/append", {"text": "the man and the sea and the boat " * 20})
    fork = json.loads(ask(url, f"/v1/sessions/{session}/fork", {}))["id"]

    def talk(of):
        for _ in range(3):
            ask(url, f"/v1/sessions/{of}/ask", {"question": "who came?", "max_tokens": 6, "ignore_eos": True})

    threads = [threading.Thread(target=talk, args=[of]) for of in (session, fork)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ask(url, f"/v1/sessions/{fork}", method="DELETE")
    ask(url, f"/v1/sessions/{fork}")


def replay(program, model, flags, day):
    with Server(program, model, flags) as server:
        command = [*TOOL, "replay", "--server", server.url, "--ignore", "policy", str(day)]
        done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout, done.stderr)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def main():
    program, model = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        day = Path(folder) / "day.jsonl"
        with Server(program, model, FLAGS) as server:
            command = [*TOOL, "record", "--server", server.url, "--listen", "0", str(day)]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as recorder:
                try:
                    a_day(recorder.stderr.readline().split()[-1])
                finally:
                    recorder.terminate()
        rows = [json.loads(line) for line in day.read_text().splitlines()]
        assert day.stat().st_mode & 0o777 == 0o600
        assert len(rows) == 16 and all("uthorization" not in json.dumps(row["headers"]) for row in rows), len(rows)
        result, counts = replay(program, model, FLAGS, day)
        assert result == 0 and counts == {"requests": 16, "compared": 15, "differ": 0}, counts
        flags = ["h2o" if flag == "streaming_llm" else flag for flag in FLAGS]
        result, counts = replay(program, model, flags, day)
        # The requests that fit the pot are answered as ever.
        assert result == 1 and 0 < counts["differ"] < 9, counts


main()
