#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A session over a WebSocket, with a client that other people wrote (`websockets` of PyPI or python3-websockets of
Debian): frames, a rule, a question, events, and going on after a break.

    tests/clients/socket_client.py PROGRAM MODEL MMPROJ
"""

import base64
import json
import struct
import sys
import urllib.request

from home_client import check, picture
from server import Server, skip

try:
    from websockets.sync.client import connect
except ImportError:
    skip("no websockets with a synchronous client")


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def frame(t_ms, colour):
    return struct.pack("<q", t_ms) + base64.b64decode(picture(colour))


def until(socket, kind, events):
    while True:
        message = json.loads(socket.recv(timeout=60))
        if message["type"] == "event":
            events.append(message)
        if message["type"] == kind:
            return message
        check(f"no error before {kind}", message["type"] != "error", message)


def main(program, model, mmproj):
    with Server(program, model, ["--mmproj", mmproj, "--pot", "128", "--frames-waiting", "64"]) as server:
        session = post(server.url + "/v1/sessions", {"rule_tokens": 96})["id"]
        address = server.url.replace("http:", "ws:") + f"/v1/sessions/{session}/socket"
        events = []
        with connect(address, open_timeout=60) as socket:
            until(socket, "session", events)
            rule = {"when": "What colour is it? => red", "on": 0.01, "off": 0, "least": -30}
            socket.send(json.dumps({"type": "rule", "id": "red", "begin": 1, "end": 1, "calibrate": 4, **rule}))
            check("the rule has its id", until(socket, "rule", events)["rule"]["id"] == "red")
            for i in range(24):
                socket.send(frame(1000 * i, (220, 30, 30) if i // 4 % 2 else (30, 30, 220)))
                # One after another: no frame is dropped.
                while True:
                    counts = until(socket, "frames", events)["frames"]
                    if counts["read"] == i + 1:
                        break
            check("no frame was dropped", counts["dropped"] == 0, counts)
            socket.ping().wait(60)
            socket.send(json.dumps({"type": "ask", "id": 5, "question": "What colour is it?", "max_tokens": 8}))
            words = ""
            while True:
                message = json.loads(socket.recv(timeout=60))
                if message["type"] == "words":
                    words += message["text"]
                if message["type"] == "event":
                    events.append(message)
                if message["type"] == "answer":
                    break
            check("the answer is this question's", message["id"] == 5, message)
            check("it has words", words.strip() != "")
        check("events came", len(events) >= 2, events)
        check("in order", [e["id"] for e in events] == list(range(1, len(events) + 1)), events)
        with connect(f"{address}?last_event_id={len(events) - 1}", open_timeout=60) as socket:
            again = []
            until(socket, "event", again)
            check("only the last one comes again", again == events[-1:], again)


if __name__ == "__main__":
    main(*sys.argv[1:])
