#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that share a store are stopped, continued and killed at random while clients use their sessions: does any
session have two owners?

    tools/load/split_brain.py PROGRAM MODEL [--store folder|s3|redis] [--servers 3] [--sessions 6] [--seconds 60]
                              [--lease 2] [--seed 1] [--no-kills] [--slow-store MS] [--history FILE]

Starts the servers with --durable on one store (s3: tools/load/s3_server.py, redis: Debian's redis-server; exits with
77 where they are missing). Two clients for each session send appends, questions and reads to servers at random, often
to several at once. Meanwhile servers are paused with SIGSTOP, often for longer than the lease, and killed and started
again. With --slow-store every request to a store over the network passes a proxy that now and then delays it, or
drops the connection. At the end everything runs again and every session is read once more.

The history of what was asked and answered is checked: it must be linearizable (tools/load/linear.py), and the answers
of every session must be those of a server that nobody disturbs, which is asked the same in the order that was found.
Prints one line of JSON; exits with 1 when a check fails.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tools.load.linear import DIGITS, Model, check  # noqa: E402

WORDS = "The river carries what the rain gives".split()
SIZES = range(1, 8)  # of appends, in words: their lengths tell them apart
MAX_TOKENS = 3


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class NotReachedError(Exception):
    """The request did not reach a server."""


def call(port, method, path, body=None, timeout=30):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.connect()
    except OSError as error:
        raise NotReachedError from error
    try:
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


class Proxy:
    """In front of a store: now and then a request waits, or its connection breaks, before or after it was passed on."""

    def __init__(self, port, delay_s, seed):
        self.to, self.delay_s, self.random, self.on = port, delay_s, random.Random(seed), False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.n = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            try:
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                client.close()
                continue
            for a, b, asks in ((client, server, True), (server, client, False)):
                threading.Thread(target=self.carry, args=(a, b, asks), daemon=True).start()

    def carry(self, source, to, asks):
        try:
            while data := source.recv(1 << 16):
                what = self.random.random() if self.on else 1
                if what < 0.02:
                    self.n += 1
                    time.sleep(self.delay_s * self.random.random())
                elif what < 0.03:
                    self.n += 1
                    if asks and self.random.random() < 0.5:
                        to.sendall(data)
                    break
                to.sendall(data)
        except OSError:
            pass
        for one in (source, to):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Store:
    def __init__(self, kind, folder, slow_ms, seed):
        self.process, self.proxy, self.flags, self.environment = None, None, [], dict(os.environ)
        if kind == "folder":
            (Path(folder) / "store").mkdir()
            self.address = str(Path(folder) / "store")
            return
        port = free_port()
        if kind == "redis":
            if not shutil.which("redis-server"):
                print("skipped: redis-server is not installed")
                sys.exit(77)
            command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.05)
        else:
            command = [sys.executable, str(ROOT / "tools/load/s3_server.py"), "weir"]
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            line = self.process.stdout.readline()
            if not line:
                print("skipped: moto is not installed")
                sys.exit(77)
            port = int(line)
        if slow_ms:
            self.proxy = Proxy(port, slow_ms / 1000, seed)
            port = self.proxy.port
        self.address = f"redis://127.0.0.1:{port}/0" if kind == "redis" else "s3://weir/sessions"
        if kind == "s3":
            self.environment |= {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
            }

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()


class Server:
    def __init__(self, program, model, node, flags, environment):
        self.port, self.node = free_port(), node
        self.command = [program, "serve", "-m", model, "--port", str(self.port), "-t", "1", "--pot", "256"]
        self.command += ["--answer-pots", "1", "--node", node, *flags]
        self.environment, self.lock, self.process = environment, threading.Lock(), None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True, env=self.environment)
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "http://" in line and line.startswith("serving"):
                threading.Thread(target=self.process.stderr.read, daemon=True).start()
                return
        raise SystemExit("a server does not start: " + "".join(said))

    def kill(self):
        self.process.kill()
        self.process.wait()


class Run:
    def __init__(self, options, servers):
        self.options, self.servers = options, servers
        self.history, self.lock, self.ended = [], threading.Lock(), False
        self.counts = {"paused": 0, "longer_than_the_lease": 0, "killed": 0}
        self.texts = {}

    def record(self, session, client, kind, server, body, timeout):
        path = f"/v1/sessions/{session}" + ("" if kind == "read" else f"/{kind.rstrip(DIGITS)}")
        op = {"session": session, "client": client, "kind": kind, "node": server.node, "call": time.monotonic()}
        op |= {"back": None, "outcome": "unknown", "seen": None, "body": body}
        try:
            status, answer = call(server.port, "GET" if kind == "read" else "POST", path, body, timeout)
            op["status"] = status
            # 503: nothing of it was done, or nothing that counts; 404: this server does not know the session.
            if status in (200, 201):
                op["outcome"] = "ok"
                op["seen"] = answer["weir"]["seen"] if kind == "ask" else answer["seen"]
                if kind == "read" and answer.get("busy"):
                    op["outcome"] = "unknown"  # on its way: nobody promises it
                if kind == "ask":
                    op["answer"] = answer["choices"][0]["message"]["content"]
            elif status in (400, 404, 429, 503):
                op["outcome"] = "failed"
            op["error"] = None if status == 200 else (answer.get("error") or {}).get("code")
        except NotReachedError:
            op["outcome"] = "failed"
        except (OSError, http.client.HTTPException, ValueError) as error:
            op["error"] = type(error).__name__
        op["back"] = time.monotonic()
        with self.lock:
            self.history.append(op)
        return op

    def client(self, session, client, seed):
        rng = random.Random(seed)
        server, liked = None, 0  # most requests go where the last one was answered, as a proxy sends them
        while not self.ended:
            if server is None or rng.random() > liked:
                server = rng.choice(self.servers)
            kind = rng.choices([f"append{rng.choice(SIZES)}", "ask", "read"], [4, 2, 3])[0]
            body = body_of(kind)
            # Some do not wait for long; what they asked goes on.
            op = self.record(session, client, kind, server, body, rng.choice([0.3, 5, 5, 20]))
            liked = 0.8 if op["outcome"] == "ok" else 0.1
            time.sleep(rng.random() * (0.05 if op["outcome"] == "ok" else 0.3))

    def disturb(self, seed, servers):
        rng = random.Random(seed)
        lease = self.options.lease
        while not self.ended:
            time.sleep(rng.random() * lease / 2)
            server = rng.choice(servers)
            if not self.options.no_kills and rng.random() < 0.3:
                self.counts["killed"] += 1
                server.kill()
                time.sleep(rng.random() * lease)
                server.start()
                continue
            pause = lease * rng.choice([0.2, 0.9, 1.3, 2, 3]) * (0.8 + 0.4 * rng.random())
            self.counts["paused"] += 1
            self.counts["longer_than_the_lease"] += pause > lease
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(pause)
            server.process.send_signal(signal.SIGCONT)


def until_read(run, session, seconds=90):
    """Reads a session on whichever server has it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for server in run.servers:
            if run.record(session, -1, "read", server, None, 20)["outcome"] == "ok":
                return True
        time.sleep(0.2)
    return False


def body_of(kind):
    if kind == "read":
        return None
    if kind == "ask":
        return {"question": "What?", "max_tokens": MAX_TOKENS, "temperature": 0, "ignore_eos": True}
    return {"text": " ".join(WORDS[: int(kind.lstrip("apend"))]) + ". "}


class Alone:
    """A server that nobody disturbs: lengths and answers as they should be."""

    def __init__(self, program, model, folder):
        self.server = Server(program, model, "alone", [], dict(os.environ))

    def play(self, kinds):
        """[(seen, answer)] after each."""
        port = self.server.port
        _, made = call(port, "POST", "/v1/sessions", {"policy": "streaming_llm"})
        session, out = made["id"], []
        for kind in kinds:
            _, answer = call(port, "POST", f"/v1/sessions/{session}/{kind.rstrip(DIGITS)}", body_of(kind))
            if kind != "ask":
                out.append((answer["seen"], None))
            else:
                out.append((answer["weir"]["seen"], answer["choices"][0]["message"]["content"]))
        call(port, "DELETE", f"/v1/sessions/{session}")
        return made["seen"], out

    def deltas(self):
        out, appends = {}, [f"append{n}" for n in SIZES]
        plays = [[kind] for kind in ["ask", *appends]]
        plays += [["ask", kind] for kind in ["ask", *appends]] + [["append1", kind] for kind in ["ask", *appends]]
        for kinds in plays:
            begin, played = self.play(kinds)
            before, seen = "begin", begin
            for kind, (now, _) in zip(kinds, played, strict=True):
                out[before, kind] = now - seen
                before, seen = kind.rstrip(DIGITS), now
        return begin, out


def compare(alone, ops, order):
    """How many answers were compared, and the first that differs."""
    order = [ops[i] for i in order if ops[i]["kind"] != "read"]
    # After a question whose answer may have been cut nothing is known to the token.
    sure = next((n for n, op in enumerate(order) if op["kind"] == "ask" and op["outcome"] != "ok"), len(order))
    order = order[:sure]
    _, played = alone.play([op["kind"] for op in order])
    n = 0
    for op, (seen, answer) in zip(order, played, strict=True):
        if op["outcome"] != "ok":
            continue
        n += 1
        if op["seen"] != seen or (op["kind"] == "ask" and op["answer"] != answer):
            return n, {"session": op["session"], "want": [seen, answer], "got": [op["seen"], op.get("answer")]}
    return n, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--store", choices=["folder", "s3", "redis"], default="folder")
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--lease", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-kills", action="store_true")
    parser.add_argument("--slow-store", type=float, default=0, metavar="MS")
    parser.add_argument("--history", help="file for the history, as JSON lines")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(options.store, folder, options.slow_store, options.seed)
        store.environment["TMPDIR"] = folder
        flags = [
            "--snapshots",
            store.address,
            "--hand-over",
            "--durable",
            "--lease",
            str(options.lease),
            "--drain",
            "5",
        ]
        flags += ["--policy", "streaming_llm"]
        servers, alone = [], None
        try:
            alone = Alone(options.program, options.model, folder)
            begin, deltas = alone.deltas()
            for i in range(options.servers):
                servers.append(Server(options.program, options.model, "abcdefgh"[i], flags, store.environment))
            run = Run(options, servers)
            sessions = []
            for _ in range(options.sessions):
                status, made = call(rng.choice(servers).port, "POST", "/v1/sessions", {"policy": "streaming_llm"})
                assert status == 201, made
                sessions.append(made["id"])
            threads = [
                threading.Thread(target=run.client, args=(session, client, rng.random()))
                for session in sessions
                for client in range(2)
            ]
            for group in (servers[: len(servers) // 2], servers[len(servers) // 2 :]):
                if group:
                    threads.append(threading.Thread(target=run.disturb, args=(rng.random(), group)))
            if store.proxy:
                store.proxy.on = True
            for thread in threads:
                thread.start()
            time.sleep(options.seconds)
            run.ended = True
            for thread in threads:
                thread.join()
            if store.proxy:
                store.proxy.on = False
            lost = [session for session in sessions if not until_read(run, session)]
            if options.history:
                with open(options.history, "w", encoding="utf-8") as out:
                    out.write(json.dumps({"deltas": [[*k, n] for k, n in deltas.items()], "begin": begin}) + "\n")
                    out.writelines(json.dumps(op) + "\n" for op in run.history)
            started = time.monotonic()
            orders = check(run.history, Model(deltas), begin)
            check_s = time.monotonic() - started
            wrong = [session for session, order in orders.items() if order is None]
            n_compared, differs = 0, []
            for session, order in orders.items():
                if order is None:
                    continue
                n, bad = compare(alone, [op for op in run.history if op["session"] == session], order)
                n_compared += n
                differs += [bad] if bad else []
        finally:
            for server in [*servers, *([alone.server] if alone else [])]:
                try:
                    server.process.send_signal(signal.SIGCONT)
                    server.kill()
                except OSError:
                    pass
            store.end()
    by = {}
    for op in run.history:
        by[op["outcome"]] = by.get(op["outcome"], 0) + 1
    moved = 0
    for session in sessions:
        nodes = [op["node"] for op in run.history if op["session"] == session and op["outcome"] == "ok"]
        moved += sum(a != b for a, b in zip(nodes, nodes[1:], strict=False))
    print(
        json.dumps(
            {"store": options.store, "seed": options.seed, "lease_s": options.lease, "operations": len(run.history)}
            | by
            | run.counts
            | {"moves": moved, "store_faults": store.proxy.n if store.proxy else 0, "check_s": round(check_s, 2)}
            | {"compared": n_compared, "differ": differs, "lost": lost, "not_linearizable": wrong}
        )
    )
    return bool(wrong or differs or lost)


if __name__ == "__main__":
    sys.exit(main())
