#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server with a port of its own while it loads its model; and --log-format json: a line for every request, and
nothing in it that lets who reads it use the server.

tests/clients/log_client.py PROGRAM MODEL
"""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

from home_client import check

KEY, WRONG, WORDS = "key-of-the-operator", "key-that-is-wrong", "a sentence that nobody else is to read"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def call(url, body=None, key=KEY, **headers):
    data = None if body is None else json.dumps(body).encode()
    headers |= {"Content-Type": "application/json", "Authorization": "Bearer " + key}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
            return json.load(answer), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return json.load(error), dict(error.headers)


def loads(program, model):
    """A server with a port of its own: alive from the beginning, ready in the end, and never anything else."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [program, "serve", "-m", model, "--pot", "96", "--port", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        end, seen = time.time() + 60, set()
        while time.time() < end and not {("/livez", "ok"), ("/readyz", "ok")} <= seen:
            for path in ("/livez", "/readyz"):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                        seen.add((path, json.load(answer)["status"]))
                except urllib.error.HTTPError as error:
                    seen.add((path, json.load(error)["error"]["code"]))
                except OSError:
                    pass  # before it listens, and between the two that do
        taken = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
        server.kill()
    check("alive, and ready in the end", {("/livez", "ok"), ("/readyz", "ok")} <= seen, seen)
    check("nothing but loading before", seen <= {("/livez", "ok"), ("/readyz", "ok"), ("/readyz", "loading")}, seen)
    check("a port in use is an error", taken.returncode == 2 and f"port {port}" in taken.stderr, taken)


def main(program, model):
    loads(program, model)
    flags = ["--port", "0", "--pot", "96", "--api-key", KEY, "--log-format", "json", "--node", "one"]
    server = subprocess.Popen([program, "serve", "-m", model] + flags, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in server.stderr:
        lines.append(line)
        if json.loads(line)["event"] == "serving":
            break
    url = json.loads(lines[-1])["message"]
    chat = {"messages": [{"role": "user", "content": WORDS}], "max_tokens": 4, "ignore_eos": True}
    _, headers = call(url + "/v1/chat/completions", chat, traceparent=f"00-{TRACE}-00f067aa0ba902b7-01")
    check("the answer names its trace", headers["traceresponse"].split("-")[1] == TRACE, headers)
    session = call(url + "/v1/sessions", {"system": WORDS})[0]["id"]
    call(f"{url}/v1/sessions/{session}/append", {"text": WORDS})
    call(f"{url}/v1/sessions/{session}")
    call(f"{url}/v1/sessions/{session}", key=WRONG)
    call(f"{url}/v1/sessions/s-0123456789abcdef?key={WRONG}")
    call(url + "/secret-path-of-a-client")
    server.send_signal(signal.SIGTERM)
    lines += server.stderr.read().splitlines()
    server.wait(timeout=60)

    told = [json.loads(line) for line in lines]  # every line is JSON
    requests = [one for one in told if one["event"] == "request"]
    got = [(one["request"], one["status"]) for one in requests]
    want = [
        ("POST /v1/chat/completions", 200),
        ("POST /v1/sessions", 201),
        ("POST /v1/sessions/{id}/append", 200),
        ("GET /v1/sessions/{id}", 200),
        ("other", 401),
        ("GET /v1/sessions/{id}", 404),
        ("other", 404),
    ]
    check("a line for every request", sorted(got) == sorted(want), got)
    first = next(one for one in requests if one["request"] == want[0][0])
    check("its trace", first["trace_id"] == TRACE and re.fullmatch("[0-9a-f]{16}", first["span_id"]), first)
    check("its tokens", first["answer_tokens"] == 4 and first["prompt_tokens"] > 4, first)
    check("its time", 0 < first["seconds"] < 60 and re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", first["time"]))
    appended = next(one for one in requests if one["request"].endswith("/append"))
    check("a part of its session's id", appended["session"] == session[:12], appended)
    for secret in (KEY, WRONG, WORDS, session, session[-24:], "secret-path"):
        check("no secret in the log", not any(secret in line for line in lines), secret)
    print("ok")


main(*sys.argv[1:])
