#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many concurrent streams through one server, each with its own pot: no budget is exceeded and no stream affects
another.

    tools/load/soak.py PROGRAM MODEL [-n 8] [--tokens 100000] [--frames 0] [--pot 512] [--ask-every 10000] [--
    SERVE-FLAG...]
    tools/load/soak.py PROGRAM MODEL [-n 8] --rounds 1000000 [--minutes 60] [--pot 512] [-- SERVE-FLAG...]

Gives the server a budget for exactly N sessions. Every stream reads its own text, answers a question every --ask-every
tokens, and with --frames also reads its own frames (the server then needs --mmproj). All streams run first in turn and
then concurrently; every answer must be the same in both. Meanwhile the tool polls the server's metrics and resident
memory.

With --rounds, a round is a short text and a short question, so many in all or as many as fit into --minutes. Every two
streams read the same: their answers must be equal, those of other streams differ. What the server's memory grows by
after a hundredth of the rounds is told.

Ends with one line of JSON; exits with 1 when a check fails.
"""

import argparse
import base64
import hashlib
import http.client
import json
import re
import subprocess
import sys
import threading
import time

PIECE_WORDS = 300  # of text per append request
ROUNDS_TOLD = 100  # whose answers one hash is of
WORDS = "river rain stone bridge mill boat winter harvest lantern market road island".split()


class Client:
    def __init__(self, port):
        self.port = port

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=3600)

    def call(self, method, path, body=None, want=200, kept=None):
        connection = kept or self.connection()
        connection.request(
            method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        text = answer.read().decode()
        if not kept:
            connection.close()
        if answer.status != want:
            raise SystemExit(f"{method} {path}: status {answer.status}: {text[:500]}")
        return json.loads(text) if text.startswith("{") else text


def picture(stream, n):
    """A small picture, unique to this stream."""
    pixels = bytes(
        (7 * x + 31 * y + 85 * c + 11 * n + 53 * stream) % 256 for y in range(24) for x in range(32) for c in range(3)
    )
    return "data:image/x-portable-pixmap;base64," + base64.b64encode(b"P6\n32 24\n255\n" + pixels).decode()


class Stream:
    """One stream: its input and its answers."""

    def __init__(self, client, number, args):
        self.client, self.number, self.args = client, number, args
        self.answers, self.seen, self.frames, self.error = [], 0, 0, ""
        self.rounds, self.until = 0, float("inf")

    def piece(self, n):
        own = f"Stream{self.number}"
        words = (WORDS[(n * PIECE_WORDS + i * (self.number + 2)) % len(WORDS)] for i in range(PIECE_WORDS))
        return " ".join(w if i % 9 else f"{own}. The {w}" for i, w in enumerate(words)) + ". "

    def run(self):
        try:
            if self.args.rounds:
                self.live_rounds()
            else:
                self.live()
        except (SystemExit, OSError, http.client.HTTPException) as error:
            # An exception in a thread would otherwise be lost.
            self.error = str(error)

    def live(self):
        client, args = self.client, self.args
        session = client.call("POST", "/v1/sessions", {"system": f"You are reader {self.number}."}, 201)
        path, next_ask = f"/v1/sessions/{session['id']}", args.ask_every
        piece = 0
        while self.seen < args.tokens or self.frames < args.frames:
            if self.seen < args.tokens:
                session = client.call("POST", path + "/append", {"text": self.piece(piece)})
                piece += 1
            for _ in range(min(10, args.frames - self.frames)):
                session = client.call(
                    "POST",
                    path + "/append",
                    {"frame": picture(self.number, self.frames), "t_ms": 1000 * self.frames, "wait": True},
                )
                self.frames += 1
            self.seen = session["seen"]
            if self.seen >= next_ask:
                next_ask += args.ask_every
                answer = client.call(
                    "POST",
                    path + "/ask",
                    {
                        "question": "Who reads, and what?",
                        "max_tokens": 32,
                        "temperature": 0.7,
                        "seed": 5,
                        "ignore_eos": True,
                    },
                )
                self.answers.append(answer["choices"][0]["message"]["content"])
        self.seen = client.call("GET", path)["seen"]
        client.call("DELETE", path)

    def live_rounds(self):
        client, kept = self.client, self.client.connection()
        text = self.number // 2  # of every two streams
        session = client.call("POST", "/v1/sessions", {"system": f"You are reader {text}."}, 201)
        path, told = f"/v1/sessions/{session['id']}", hashlib.sha256()
        while self.rounds < self.args.rounds // self.args.n and time.monotonic() < self.until:
            words = [WORDS[(self.rounds * (text + 2) + i) % len(WORDS)] for i in range(4)]
            said = f"Stream{text} at {self.rounds}: {' '.join(words)}. "
            client.call("POST", path + "/append", {"text": said}, kept=kept)
            ask = {"question": "What?", "max_tokens": 4, "temperature": 0.7, "seed": self.rounds, "ignore_eos": True}
            answer = client.call("POST", path + "/ask", ask, kept=kept)
            told.update(answer["choices"][0]["message"]["content"].encode())
            self.seen = answer["weir"]["seen"]
            self.rounds += 1
            if self.rounds % ROUNDS_TOLD == 0:
                self.answers.append(told.hexdigest())
        client.call("DELETE", path)


class Watch(threading.Thread):
    """Polls the server's metrics and memory until stopped."""

    def __init__(self, client, pid):
        super().__init__(daemon=True)
        self.client, self.pid, self.ended = client, pid, threading.Event()
        self.used, self.resident, self.budget = [], [], 0

    def look(self):
        metrics = self.client.call("GET", "/metrics")
        value = lambda name: int(re.search(rf"^{name} (\d+)$", metrics, re.M)[1])
        self.budget = value("weir_budget_bytes")
        self.used.append(max(value("weir_used_bytes"), value("weir_peak_bytes")))
        with open(f"/proc/{self.pid}/status") as f:
            self.resident.append(1024 * int(re.search(r"VmRSS:\s+(\d+)", f.read())[1]))

    def run(self):
        while not self.ended.wait(0.5):
            self.look()


def soak_rounds(client, process, args):
    """Runs the streams of --rounds; what it found, for the line of JSON."""
    streams = [Stream(client, i, args) for i in range(args.n)]
    watch = Watch(client, process.pid)
    threads = [threading.Thread(target=s.run) for s in streams]
    start = told = time.monotonic()
    for stream, thread in zip(streams, threads):
        stream.until = start + 60 * args.minutes
        thread.start()
    warm, rounds = 0, 0
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.5)
        watch.look()
        rounds = sum(s.rounds for s in streams)
        if not warm and 100 * rounds >= args.rounds:
            warm = len(watch.resident)
        if time.monotonic() > told + 60:
            told = time.monotonic()
            print(f"{rounds} rounds, {watch.resident[-1]} bytes resident", file=sys.stderr, flush=True)
    wrong, compared = [s.error for s in streams if s.error], 0
    for one, other in zip(streams[::2], streams[1::2]):
        both = min(len(one.answers), len(other.answers))
        compared += 2 * ROUNDS_TOLD * both
        if one.answers[:both] != other.answers[:both] or not both:
            wrong.append(f"streams {one.number} and {other.number} read the same and say other things")
    if len({s.answers[0] for s in streams[::2] if s.answers}) != len(streams[::2]):
        wrong.append("two streams of other texts say the same")
    if max(watch.used) > watch.budget:
        wrong.append(f"{max(watch.used)} bytes used of {watch.budget}")
    resident = watch.resident[warm:] or watch.resident[-1:]
    return {
        "streams": args.n,
        "rounds": sum(s.rounds for s in streams),
        "compared": compared,
        "tokens": sum(s.seen for s in streams),
        "pot": args.pot,
        "budget_bytes": watch.budget,
        "peak_bytes": max(watch.used),
        "resident_warm_bytes": resident[0],
        "resident_middle_bytes": resident[len(resident) // 2],
        "resident_end_bytes": resident[-1],
        "resident_grown_bytes": max(resident) - resident[0],
        "seconds": round(time.monotonic() - start, 1),
        "wrong": wrong,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("-n", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=0)
    parser.add_argument("--pot", type=int, default=512)
    parser.add_argument("--ask-every", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=1e9)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:at])
    if args.rounds and args.n % 2:
        parser.error("-n must be even with --rounds: every two streams read the same")
    command = [
        args.program,
        "serve",
        "-m",
        args.model,
        "--port",
        "0",
        "--answer-pots",
        "1",
        "--pot",
        str(args.pot),
        "--connections",
        "128",
    ] + words[at + 1 :]

    def serve(flags):
        process = subprocess.Popen(command + flags, stderr=subprocess.PIPE, text=True)
        said = ""
        for line in process.stderr:
            said += line
            if found := re.search(r"http://\S+:(\d+)", line):
                return process, Client(int(found[1]))
        raise SystemExit("the server does not serve:\n" + said)

    process, client = serve([])
    try:
        props = client.call("GET", "/props")
    finally:
        process.kill()
        process.wait()
    process, client = serve(["--budget", str(props["used_bytes"] + args.n * props["session_bytes"])])
    wrong = []
    try:
        if args.rounds:
            found = soak_rounds(client, process, args)
            wrong = found["wrong"]
            if found["resident_grown_bytes"] > (8 << 20):
                wrong.append("resident memory grew")
            print(json.dumps(found))
            sys.exit(bool(wrong))

        def round_of(together):
            streams = [Stream(client, i, args) for i in range(args.n)]
            start = time.monotonic()
            threads = [threading.Thread(target=s.run) for s in streams]
            for thread in threads:
                thread.start()
                if not together:
                    thread.join()
            for thread in threads:
                thread.join()
            return streams, time.monotonic() - start

        alone, alone_s = round_of(False)
        watch = Watch(client, process.pid)
        watch.look()
        watch.start()
        together, together_s = round_of(True)
        watch.ended.set()
        watch.join()
        watch.look()
        wrong += [s.error for s in alone + together if s.error]
        for one, other in zip(alone, together):
            if one.answers != other.answers or not one.answers:
                wrong.append(f"stream {one.number} says {other.answers} among others and {one.answers} by itself")
            if one.seen != other.seen:
                wrong.append(f"stream {one.number} did not end: {one.seen} and {other.seen} tokens")
        if len({tuple(s.answers) for s in together}) != args.n:
            wrong.append("two streams say the same")
        if max(watch.used) > watch.budget:
            wrong.append(f"{max(watch.used)} bytes used of {watch.budget}")
        grown = max(watch.resident) - watch.resident[0]
        if grown > (64 << 20):
            wrong.append(f"resident memory grew by {grown} bytes")
        seen = sum(s.seen for s in together)
        print(
            json.dumps(
                {
                    "streams": args.n,
                    "tokens": seen,
                    "frames": sum(s.frames for s in together),
                    "answers": sum(len(s.answers) for s in together),
                    "pot": args.pot,
                    "budget_bytes": watch.budget,
                    "peak_bytes": max(watch.used),
                    "resident_grown_bytes": grown,
                    "alone_s": round(alone_s, 1),
                    "together_s": round(together_s, 1),
                    "speedup": round(alone_s / together_s, 3),
                    "tokens_per_s": round(seen / together_s, 1),
                    "wrong": wrong,
                }
            )
        )
    finally:
        process.kill()
        process.wait()
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
