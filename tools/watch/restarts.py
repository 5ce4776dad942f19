#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Events over many ends of the server: none is lost, none comes twice, and webhooks arrive in order.

    tools/watch/restarts.py --weir build/release/weir --model tests/golden/models/llama.gguf [--ends 50] [--down 120]
                            [--seed 1]

A session with six rules lives through `--ends` servers that share a folder (--hand-over) and a journal of webhooks.
Every server gets some text and is then told to end (SIGTERM), which hands the session over; two of three are killed
(SIGKILL) as soon as the session has left, while they still send webhooks. A client reads the events with Last-Event-ID
across all of it. The receiver of the webhooks is down for --down seconds in the middle, over which most of the ends are
spread, refuses some, and takes others without an answer.

Prints a row of JSON; exits with 1 if anything was lost, came twice, or came out of order. Needs only Python.
"""

import argparse
import http.client
import http.server
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RULES = ("who came? => the man", "what => sea", "where => the sea", "who => sea", "what came => man", "is it => the")
SAID = ("the man came ", "the sea and the sea ", "the sea and the sea ")


class Receiver:
    """Takes webhooks on a port that stays its own while it is down."""

    def __init__(self, rng):
        self.got, self.rng, self.lock, self.server, self.port = [], rng, threading.Lock(), None, 0
        self.up()

    def up(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with receiver.lock:
                    luck = receiver.rng.random()
                    if luck < 0.05:
                        self.send_response(503)  # it was not taken
                        self.send_header("Content-Length", "0")
                        self.end_headers()
                        return
                    receiver.got.append((self.headers["webhook-id"], int(self.headers["webhook-attempt"]), body["id"]))
                if luck < 0.1:
                    self.close_connection = True  # taken, and the answer is lost
                    self.connection.close()
                    return
                if luck < 0.15:
                    time.sleep(0.3)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

            def handle(self):
                try:
                    super().handle()
                except (OSError, ValueError):
                    pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def down(self):
        self.server.shutdown()
        self.server.server_close()


class Server:
    def __init__(self, args, folder, receiver):
        self.process = subprocess.Popen(
            [args.weir, "serve", "-m", args.model, "--pot", "96", "--port", "0", "--snapshots", folder, "--hand-over",
             "--webhook", f"http://127.0.0.1:{receiver.port}/hook", "--webhook-secret-file", folder + "/secret",
             "--webhook-queue", folder + "/queue"],
            stderr=subprocess.PIPE, text=True)  # fmt: skip
        for line in self.process.stderr:
            if found := re.search(r"http://127.0.0.1:(\d+)", line):
                self.port = int(found[1])
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise SystemExit("the server does not serve")

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path}: {answer.status} {text[:300]}")
        return json.loads(text)


class Reader(threading.Thread):
    """Reads a server's events from where the last one ended."""

    def __init__(self, server, session, events):
        super().__init__(daemon=True)
        self.server, self.session, self.events = server, session, events
        self.start()

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=120)
        headers = {"Last-Event-ID": str(self.events[-1])} if self.events else {}
        try:
            connection.request("GET", f"/v1/sessions/{self.session}/events", headers=headers)
            answer = connection.getresponse()
            for line in answer:
                if line.startswith(b"event: missed"):
                    self.events.append("missed")
                if line.startswith(b"data: ") and b'"id"' in line:
                    self.events.append(json.loads(line[6:])["id"])
        except (OSError, http.client.HTTPException, ValueError):
            pass


def main():
    parser = argparse.ArgumentParser(description="Events over many ends of the server.")
    parser.add_argument("--weir", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--ends", type=int, default=50)
    parser.add_argument("--down", type=float, default=120, help="seconds that the receiver is away")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    events, n_terminated, n_killed, down_at, was_down = [], 0, 0, None, False
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "secret").write_text("a secret of many bytes")
        receiver = Receiver(random.Random(args.seed + 1))
        session, newest = None, 0
        for end in range(args.ends + 1):
            server = Server(args, folder, receiver)
            if session is None:
                session = server.ask("POST", "/v1/sessions", {"rule_tokens": 96})["id"]
                for when in RULES:
                    rule = {"when": when, "on": 0.01, "off": 0, "least": -30, "begin": 1, "end": 1, "calibrate": 4}
                    rule["webhook"] = f"http://127.0.0.1:{receiver.port}/hook"
                    server.ask("POST", f"/v1/sessions/{session}/rules", rule)
            reader = Reader(server, session, events)
            for _ in range(rng.randint(10, 40)):
                server.ask("POST", f"/v1/sessions/{session}/append", {"text": rng.choice(SAID)})
            state = server.ask("GET", f"/v1/sessions/{session}")
            newest = state["rules"]["last_event_id"]
            if down_at is None and end >= args.ends // 4:
                receiver.down()
                down_at, was_down = time.time(), True
            if was_down:
                time.sleep(args.down / (0.6 * args.ends))
            if was_down and time.time() - down_at > args.down:
                receiver.up()
                was_down = False
            if end == args.ends:
                break
            server.process.send_signal(signal.SIGTERM)
            if rng.random() < 2 / 3:
                # Once the session has left, at any moment of what follows.
                while server.process.poll() is None and not Path(folder, "handover", session + ".weir").exists():
                    time.sleep(0.0005)
                time.sleep(rng.random() * 0.02)
                if server.process.poll() is None:
                    server.process.kill()
                    n_killed += 1
                else:
                    n_terminated += 1
            else:
                n_terminated += 1
            server.process.wait()
            reader.join(20)
        if was_down:
            time.sleep(max(0, args.down - (time.time() - down_at)))
            receiver.up()
        deadline = time.time() + 300
        while time.time() < deadline and (len(events) < newest or len({g[0] for g in receiver.got}) < newest):
            time.sleep(0.2)
        server.process.kill()
        server.process.wait()
    # What a receiver that keeps the last id takes for new.
    taken, again, wrong_again = [], 0, 0
    for name, attempt, number in receiver.got:
        if taken and taken[-1][0] == name:
            again += 1
            wrong_again += attempt < 2
        else:
            taken.append((name, number))
    row = {
        "ends": n_terminated + n_killed, "terminated": n_terminated, "killed": n_killed, "down_s": args.down,
        "events": newest, "events_read": len(events), "events_in_order": events == list(range(1, newest + 1)),
        "webhooks": len(receiver.got), "sent_again": again, "again_without_saying_so": wrong_again,
        "taken": len(taken), "taken_in_order": [n for _, n in taken] == list(range(1, newest + 1)),
    }  # fmt: skip
    print(json.dumps(row))
    return 0 if row["events_in_order"] and row["taken_in_order"] and wrong_again == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
