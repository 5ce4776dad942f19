#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what a server is asked and what it answers, and asks it, or another one, the same again.

    tools/load/replay.py record --server http://127.0.0.1:8080 --listen 8081 day.jsonl     until Ctrl-C
    tools/load/replay.py replay --server http://127.0.0.1:8080 day.jsonl

While it records, clients ask it in place of the server. The file has one line a request, written when its answer has
ended: whatever people said is in it, the Authorization header is not. It is made with mode 0600.

A replay asks in the order of the day: a request waits until all are answered that had been answered before it began;
those that were under way at once are so again; nobody waits for the time between them. Ids that the server made are
replaced by those that it makes now. What must be equal is the status and everything that the answer says, but for ids,
times and bytes in use; the pieces of a stream may be others. --key gives the key that the server wants now. Prints each
request that was answered otherwise, and one line of JSON; exits with 1 if there was one.

An answer is the same again if its request has a seed or temperature 0, or if both servers were started with -s N; if
the model, the policy and the pot are the same; and if it began with the same sessions (--snapshots). Not recorded:
WebSockets, and what the server does by itself, such as ending idle sessions.
"""

import argparse
import base64
import concurrent.futures
import http.client
import http.server
import json
import os
import re
import sys
import threading
import time
import urllib.parse
from pathlib import Path

KEPT = {"content-type", "accept", "x-session-id", "mcp-session-id", "last-event-id", "anthropic-version", "origin"}
HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade", "proxy-connection", "content-length", "host"}
# Of these nothing is compared: they tell how the server is, not what it says.
SKIPPED = re.compile(r"/(health|livez|readyz|metrics|slots|props|api/ps)(\?|$)|/events(\?|$)")
VOLATILE = re.compile(
    r"(^|_)(ms|created|created_at|completed_at|modified_at|expires_at|duration|per_second|bytes|timings|cached\w*)$"
)
ID = re.compile(r"(^|_)id$")


def as_text(data: bytes) -> dict:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def as_bytes(said: dict) -> bytes:
    return said["text"].encode() if "text" in said else base64.b64decode(said["base64"])


def connect(server: str) -> http.client.HTTPConnection:
    url = urllib.parse.urlsplit(server)
    return http.client.HTTPConnection(url.hostname, url.port or 80, timeout=3600)


class Recorder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def pass_on(self) -> None:
        begun = time.monotonic()
        if "upgrade" in self.headers.get("Connection", "").lower():
            return self.send_error(501, "a recorder takes no WebSockets")
        body = self.read_body()
        to = connect(self.server.url)
        to.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k.lower() not in HOP})
        answer = to.getresponse()
        self.send_response_only(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in HOP:
                self.send_header(key, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        said = b""
        try:
            while piece := answer.read1(1 << 16):
                said += piece
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            pass  # the client has gone; what it was told until then is in the line
        to.close()
        self.server.write(
            {
                "begun": begun - self.server.began, "ended": time.monotonic() - self.server.began,
                "method": self.command, "path": self.path,
                "headers": {k: v for k, v in self.headers.items() if k.lower() in KEPT},
                "body": as_text(body), "status": answer.status, "answer": as_text(said),
            }
        )  # fmt: skip

    do_GET = do_POST = do_DELETE = do_PUT = do_HEAD = do_OPTIONS = pass_on  # noqa: N815

    def read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", "").lower():
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        out = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            out += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return out


class RecordingServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, url: str, path: Path):
        super().__init__(("127.0.0.1", port), Recorder)
        self.url, self.began, self.lock = url, time.monotonic(), threading.Lock()
        self.file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")

    def write(self, row: dict) -> None:
        with self.lock:
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()


def pieces(body: bytes) -> list | None:
    """The objects of JSON, of lines of JSON or of server-sent events; None: it is something else."""
    text, out = body.decode(errors="replace"), []
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    for line in text.splitlines():
        line = line.removeprefix("data:").strip()
        if not line or line == "[DONE]" or re.match(r"(event|id|retry):|:", line):
            continue
        try:
            out.append(json.loads(line))
        except ValueError:
            return None
    return out


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, part in value.items():
            if not VOLATILE.search(key):
                yield from leaves(part, (*path, key))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from leaves(part, (*path, str(i)))
    else:
        yield path, value


def told(body: bytes) -> dict:
    """What an answer says, by place: texts of a stream are put together, of other values the last one counts."""
    objects = pieces(body)
    if objects is None:
        return {("",): body}
    out = {}
    for value in objects:
        for path, leaf in leaves(value):
            joins = len(objects) > 1 and isinstance(leaf, str) and isinstance(out.get(path), str)
            streamed = re.search(r"content|text|delta|response|thinking|arguments", "/".join(path))
            out[path] = out[path] + leaf if joins and streamed else leaf
    return out


class Replay:
    def __init__(self, server: str, key: str, ignored: set[str], rows: list[dict]):
        self.server, self.key, self.ignored = server, key, ignored
        self.rows = sorted(rows, key=lambda row: row["begun"])
        self.done = [threading.Event() for _ in self.rows]
        self.ids, self.lock = {}, threading.Lock()
        self.differ, self.compared = [], 0

    def renamed(self, text: str) -> str:
        with self.lock:
            known = sorted(self.ids.items(), key=lambda pair: -len(pair[0]))
        for old, new in known:
            text = text.replace(old, new)
        return text

    def ask(self, row: dict) -> tuple[int, bytes]:
        body = as_bytes(row["body"])
        if "text" in row["body"]:
            body = self.renamed(row["body"]["text"]).encode()
        headers = {k: self.renamed(v) for k, v in row["headers"].items()}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        to = connect(self.server)
        try:
            to.request(row["method"], self.renamed(row["path"]), body or None, headers)
            answer = to.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            return 0, str(error).encode()
        finally:
            to.close()

    def one(self, i: int) -> None:
        row = self.rows[i]
        try:
            for k in range(i):
                if self.rows[k]["ended"] <= row["begun"]:
                    self.done[k].wait()
            if SKIPPED.search(row["path"]):
                return
            status, body = self.ask(row)
            if why := self.compare(row, status, body):
                with self.lock:
                    self.differ.append((i, f"{row['method']} {row['path']}: {why}"))
        finally:
            self.done[i].set()

    def compare(self, row: dict, status: int, body: bytes) -> str:
        self.compared += 1
        if status != row["status"]:
            return f"status {status}, was {row['status']}: {body[:200].decode(errors='replace')}"
        was, now = told(as_bytes(row["answer"])), told(body)
        changed = [path for path in sorted(was.keys() | now.keys()) if was.get(path) != now.get(path)]
        changed = [path for path in changed if not self.ignored & set(path)]
        for path in changed:
            if ID.search(path[-1]) and isinstance(was.get(path), str) and isinstance(now.get(path), str):
                with self.lock:
                    self.ids[was[path]] = now[path]
        for path in changed:
            old, new = was.get(path), now.get(path)
            if not (isinstance(old, str) and self.renamed(old) == new):
                return f"{'.'.join(path)} is {str(new)[:80]!r}, was {str(old)[:80]!r}"
        return ""

    def run(self) -> int:
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            list(pool.map(self.one, range(len(self.rows))))
        for _, what in sorted(self.differ):
            print(what)
        counts = {"requests": len(self.rows), "compared": self.compared, "differ": len(self.differ)}
        print(json.dumps(counts))
        return 1 if self.differ else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "replay"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--server", default="http://127.0.0.1:8080")
    parser.add_argument("--listen", type=int, default=8081, help="port of the recorder, on 127.0.0.1")
    parser.add_argument("--key", default="", help="that the server wants")
    parser.add_argument("--ignore", default="", help="names in answers that may differ, such as policy,model")
    args = parser.parse_args()
    if args.what == "record":
        server = RecordingServer(args.listen, args.server, args.file)
        print(f"asks {args.server} for who asks http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
    rows = [json.loads(line) for line in args.file.read_text().splitlines()]
    sys.exit(Replay(args.server, args.key, set(args.ignore.split(",")) - {""}, rows).run())


if __name__ == "__main__":
    main()
