#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server in a control group with exactly the memory that its plan says, under mixed load: nothing is killed, and
every answer is the one that it gave alone.

    tools/load/mixed.py PROGRAM MODEL --mmproj FILE [--minutes 60] [--share 0.25] [--seed 1] [--folder F]
    [--bombs] [--limit BYTES] [--no-group]

The group's limit is the files of weights, --budget, what requests may take by docs/deploy.md (30 times the bytes of
bodies, and of the 64 KiB of each connection that do not count), DECODER for each decoder, and FIXED for everything
else. Swap is off. The program and the model are copied and dropped from the page cache first, so that the group pays
for them. The folder must be on a disk: pages of a tmpfs are never given back.

Load: chats, streams, forms, embeddings, sessions that are saved, deleted, restored and forked, pictures, recall, and
hostile requests, all at once, for --minutes, in turns that leave the server about --share of a core. First each request
is asked alone, in another server without a limit; later every answer must be that one, or a refusal (429, 503). Hostile
ones must be refused or answered, never with 500. With --bombs some of them are pictures whose pixels alone are more
than the group has: the kernel may end decoders then, but not the server. Ends with one line of JSON; exits with 1 when
a check fails and with 77 where no group can be made.
"""

import argparse
import base64
import collections
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path

MIB = 1 << 20
FACTOR = 30  # docs/deploy.md: bytes that a request takes for a byte of its body, at most
UNCOUNTED = 64 << 10  # of each body, which --max-bodies does not count
FIXED = 32 * MIB  # the program itself and "up to a few tens of MiB" (docs/server.md)
DECODER = 48 * MIB  # an ffmpeg or ffprobe
CONNECTIONS, DECODERS, POT = 12, 1, 128
MAX_BODY, MAX_BODIES = 256 << 10, 512 << 10
BUSY = (429, 503)
SURE = {"temperature": 0, "seed": 1, "ignore_eos": True, "max_tokens": 8}


def limit_of(weights: int, budget: int) -> int:
    """The group's memory: what is planned and what is documented, and nothing more; whole pages."""
    requests = FACTOR * (MAX_BODIES + CONNECTIONS * UNCOUNTED)
    return (weights + budget + requests + DECODERS * DECODER + FIXED) & ~4095


class Group:
    """A control group of this machine's memory controller, of version 1 or 2."""

    def __init__(self, parent: Path, limit: int):
        self.old = not (parent / "cgroup.controllers").exists()
        self.folder = parent / f"weir-mixed-{os.getpid()}"
        self.folder.mkdir()
        if self.old:
            self.write("memory.limit_in_bytes", limit)
            self.write("memory.swappiness", 0)
        else:
            self.write("memory.max", limit)
            self.write("memory.swap.max", 0)

    @staticmethod
    def parent() -> Path:
        """This process' own group."""
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                return Path("/sys/fs/cgroup/memory" + path)
        return Path("/sys/fs/cgroup" + path)

    def write(self, name: str, value: int) -> None:
        (self.folder / name).write_text(f"{value}\n")

    def number(self, name: str, key: str = "") -> int:
        """Of a file, or of its line `key NUMBER`; -1: this kernel has none."""
        try:
            text = (self.folder / name).read_text()
        except OSError:
            return -1
        found = re.search(rf"^{key} (\d+)$" if key else r"^(\d+)$", text, re.M)
        return int(found[1]) if found else -1

    def enter(self) -> None:
        self.write("cgroup.procs", os.getpid())

    def told(self) -> dict:
        if self.old:
            names = {"limit": "memory.limit_in_bytes", "peak": "memory.max_usage_in_bytes", "hits": "memory.failcnt"}
            out = {key: self.number(name) for key, name in names.items()}
            out["oom"] = self.number("memory.oom_control", "oom_kill")
            keys = {"anon": "rss", "file": "cache", "mapped": "mapped_file", "faults": "pgmajfault", "out": "pgpgout"}
        else:
            out = {"limit": self.number("memory.max"), "peak": self.number("memory.peak")}
            out["hits"] = self.number("memory.events", "max")
            out["oom"] = self.number("memory.events", "oom_kill")
            keys = {"anon": "anon", "file": "file", "mapped": "file_mapped", "faults": "pgmajfault", "out": "pgsteal"}
        return out | {key: self.number("memory.stat", name) for key, name in keys.items()}

    def remove(self) -> None:
        for _ in range(50):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.1)


def dropped_copy(source: str, folder: Path) -> Path:
    """A copy of which no page is in memory: whoever reads it pays for it."""
    copy = folder / Path(source).name
    shutil.copyfile(source, copy)
    copy.chmod(0o755)
    with copy.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return copy


# What is asked.


def png(n: int, side: int = 24, claimed: int = 0, cut: int = 0, rows: bytes = b"") -> bytes:
    chunk = lambda kind, data: len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
    if not rows:
        rows = b"".join(bytes([0, *(((7 + n) * x + 31 * y) % 256 for x in range(3 * side))]) for y in range(side))
        rows = zlib.compress(rows)
    size = (claimed or side).to_bytes(4, "big")
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size + size + bytes([8, 2, 0, 0, 0]))
    whole += chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return whole[:-cut] if cut else whole


def seen(picture: bytes) -> dict:
    url = "data:image/png;base64," + base64.b64encode(picture).decode()
    content = [{"type": "text", "text": "the man sees"}, {"type": "image_url", "image_url": {"url": url}}]
    return {"messages": [{"role": "user", "content": content}], **SURE}


def bomb() -> bytes:
    """49 million pixels, which is accepted, in 140 KB."""
    return png(0, side=7000, rows=zlib.compress(bytes(7000 * (3 * 7000 + 1)), 9))


def hostile(rng: random.Random) -> tuple[str, bytes]:
    """A path and a body that no friend would send."""
    chat, tokenize = "/v1/chat/completions", "/tokenize"
    say = lambda text, **more: json.dumps({"messages": [{"role": "user", "content": text}], **SURE, **more}).encode()
    deep = rng.choice((200, 20000))
    n = rng.randrange(1000, MAX_BODY // 8)
    return rng.choice(
        [
            (tokenize, b'{"content": "' + b"\\u0000" * n + b'"}'),
            (tokenize, b'{"content": "' + bytes([rng.randrange(97, 123)]) * (7 * n) + b'"}'),
            (tokenize, b'{"content": ' + b"[" * deep + b"]" * deep + b"}"),
            (tokenize, b'{"content": [' + b"1," * n + b"1]}"),
            (tokenize, b'{"content": "' + b"a" * (MAX_BODY + 1) + b'"}'),
            (chat, say("the man", max_tokens=-5)),
            (chat, say("the man", temperature="hot")),
            (chat, say("the man \u202e\u0000\ufffe")),
            (chat, say("the man", logit_bias={str(i): 1 for i in range(n // 16)})),
            (chat, say("the man", response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {
                "type": "object", "properties": {f"p{i}": {"$ref": "#"} for i in range(rng.randrange(200))}}}})),
            (chat, say("the man", response_format={"type": "regex", "pattern": "(a{1,500}){1,500}b"})),
            (chat, say("the man", stop=["x" * 5000] * 4)),
            (chat, say("\u00e9" * (n // 2))),
            (chat, json.dumps(seen(png(1, claimed=30000))).encode()),
            (chat, json.dumps(seen(png(1, cut=rng.randrange(1, 60)))).encode()),
            (chat, json.dumps(seen(rng.randbytes(n))).encode()),
            (chat, json.dumps(seen(b"#EXTM3U\nfile:///etc/passwd\n")).encode()),
            ("/v1/embeddings", json.dumps({"input": ["the man"] * 257}).encode()),
            ("/v1/sessions/restore", b'{"name": "../../etc/passwd"}'),
            ("/v1/sessions/restore", b'{"name": "broken"}'),
            ("/v1/sessions", b'{"pot": 1000000000000}'),
            ("/detokenize", b'{"tokens": [-1, 99999999999, 1e99]}'),
            ("/mcp", rng.randbytes(n)),
            ("/api/" + "x" * rng.randrange(9000), b"{}"),
        ]
    )  # fmt: skip


def raw_hostile(rng: random.Random) -> bytes:
    head = b"POST /tokenize HTTP/1.1\r\nHost: a\r\n"
    return rng.choice(
        [
            rng.randbytes(rng.randrange(1, 4000)),
            head + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            head + b"Content-Length: -1\r\n\r\n",
            head + b"Content-Length: 99999999999999999999\r\n\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            head + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * rng.randrange(20000) + b"zz\r\n",
            head + b"X: " + b"y" * rng.randrange(100000) + b"\r\n\r\n",
            head + b"X: y\r\n" * rng.randrange(2000) + b"\r\n",
            head + b'Content-Length: 60000\r\n\r\n{"content": "',  # and no more
            b"GET /health HTTP/1.1\r\n",
        ]
    )


class Server:
    def __init__(self, command: list[str], enter=None):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=enter)
        self.said = []
        for line in self.process.stderr:
            self.said.append(line)
            if found := re.search(r"http://\S+:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise SystemExit("the server does not serve:\n" + "".join(self.said))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stderr:
            self.said = [*self.said[-50:], line]

    def call(self, method: str, path: str, body=None) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=900)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()

    def raw(self, data: bytes, rng: random.Random) -> None:
        with socket.create_connection(("127.0.0.1", self.port), timeout=2) as to:
            try:
                to.sendall(data)
                if rng.random() < 0.5:
                    to.shutdown(socket.SHUT_WR)
                while to.recv(1 << 16):
                    pass
            except OSError:  # it may close while we send, and need not answer what is not a request
                pass

    def metrics(self) -> dict[str, int]:
        text = self.call("GET", "/metrics")[1]
        return {key: int(value) for key, value in re.findall(r"^(weir_\w+_bytes) (\d+)$", text, re.M)}

    def seconds(self) -> float:
        """Of processor time, with that of the decoders that ended."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Refused(Exception):  # noqa: N818
    pass


class Wrong(Exception):  # noqa: N818
    pass


class Asker:
    """Asks one kind of requests; what is said is compared with `known`, or noted there."""

    def __init__(self, server: Server, known: dict, counts: collections.Counter, name: str, bomb: bytes = b""):
        self.server, self.known, self.counts, self.name, self.bomb = server, known, counts, name, bomb

    def ask(self, kind: str, method: str, path: str, body=None) -> dict:
        self.counts[kind] += 1
        status, text = self.server.call(method, path, body)
        if status in BUSY:
            raise Refused(kind)
        if not 200 <= status < 300:
            raise Wrong(f"{kind}: {method} {path}: status {status}: {text[:300]}")
        return json.loads(text) if text.startswith(("{", "[")) else {"text": text}

    def same(self, key: str, said) -> None:
        known = self.known.setdefault(key, said)
        if known != said:
            raise Wrong(f"{key}: {said!r}, and alone {known!r}")

    def chat(self, n: int) -> None:
        words = {"messages": [{"role": "user", "content": f"the man and the sea {n}"}], **SURE}
        said = self.ask("chat", "POST", "/v1/chat/completions", words)
        self.same(f"chat {n}", said["choices"][0]["message"]["content"])

    def stream(self, n: int) -> None:
        words = {"messages": [{"role": "user", "content": f"the man and the sea {n}"}], **SURE, "stream": True}
        said = self.ask("stream", "POST", "/v1/chat/completions", words)["text"]
        events = [json.loads(line[6:]) for line in said.splitlines() if line.startswith("data: {")]
        choices = [choice for event in events for choice in event.get("choices", ())]
        self.same(f"chat {n}", "".join(choice["delta"].get("content") or "" for choice in choices))

    def form(self, n: int) -> None:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        words = {"messages": [{"role": "user", "content": f"count {n}"}], **SURE, "max_tokens": 24}
        said = self.ask("form", "POST", "/v1/chat/completions", {**words, "response_format": form})
        self.same(f"form {n}", said["choices"][0]["message"]["content"])

    def embedding(self, n: int) -> None:
        said = self.ask("embedding", "POST", "/v1/embeddings", {"input": f"the boat {n}"})
        self.same(f"embedding {n}", said["data"][0]["embedding"][:8])

    def picture(self, n: int) -> None:
        said = self.ask("picture", "POST", "/v1/chat/completions", seen(png(n, side=20 + 40 * n)))
        self.same(f"picture {n}", said["choices"][0]["message"]["content"])

    def question(self, session: str, key: str) -> None:
        said = self.ask("question", "POST", session + "/ask", {"question": "Where is the harpoon?", **SURE})
        self.same(key, said["choices"][0]["message"]["content"])

    def session(self, n: int, recall: bool = False) -> None:
        kind, open_ones = "recall" if recall else "session", []
        made = {"system": "Be brief.", "recall": "words:gate=0" if recall else "off"}

        def opened(path: str, body: dict) -> str:
            open_ones.append("/v1/sessions/" + self.ask(kind, "POST", path, body)["id"])
            return open_ones[-1]

        try:
            session = opened("/v1/sessions", made)
            self.ask(kind, "POST", session + "/append", {"text": f"The harpoon lay in the attic {n}. "})
            for piece in range(4):
                text = " ".join(f"the sea {n} and the boat {piece}" for _ in range(20))
                self.ask(kind, "POST", session + "/append", {"text": text})
            name = f"{self.name}-{n}"
            self.ask("save", "POST", session + "/save", {"name": name})
            self.question(session, f"{kind} {n}")
            self.ask(kind, "DELETE", open_ones.pop())
            restored = opened("/v1/sessions/restore", {"name": name})
            fork = opened(restored + "/fork", {})
            self.question(restored, f"{kind} {n}")
            self.question(fork, f"{kind} {n}")
        finally:
            for path in open_ones:
                self.counts[kind] += 1
                self.server.call("DELETE", path)

    def recall(self, n: int) -> None:
        self.session(n, recall=True)

    def hostile(self, n: int) -> None:
        rng = random.Random(f"{self.name} {n} {self.counts['hostile']}")
        self.counts["hostile"] += 1
        if self.bomb and rng.random() < 0.1:
            self.counts["bomb"] += 1
            status, text = self.server.call("POST", "/v1/chat/completions", seen(self.bomb))
            self.counts[f"bomb {status}"] += 1
            if status >= 500 and status != 503:
                raise Wrong(f"bomb: status {status}: {text[:300]}")
            return None
        if rng.random() < 0.3:
            return self.server.raw(raw_hostile(rng), rng)
        path, body = hostile(rng)
        try:
            status, text = self.server.call("POST", path, body)
        except ConnectionError:  # closed, before the whole body was read
            self.counts["hostile closed"] += 1
            return None
        self.counts[f"hostile {status // 100}xx"] += 1
        if status >= 500 and status != 503:
            raise Wrong(f"hostile: POST {path} {body[:100]!r}: status {status}: {text[:300]}")


KINDS = ("chat", "stream", "form", "embedding", "picture", "session", "recall", "hostile")
VARIANTS = 4
AT_ONCE = {"hostile": 6}  # of the others, two


def load(server: Server, known: dict, args) -> dict:
    """All kinds at once; what was asked, refused and wrong."""
    counts, refused, wrong = collections.Counter(), collections.Counter(), []
    of_bombs = bomb() if args.bombs else b""
    start, cost = time.monotonic(), server.seconds()
    end = threading.Event()

    def live(kind: str, who: int) -> None:
        rng = random.Random(f"{args.seed} {kind} {who}")
        asker = Asker(server, known, counts, f"{kind}{who}", of_bombs)
        while not end.is_set():
            try:
                getattr(asker, kind)(rng.randrange(VARIANTS))
            except Refused as error:
                refused[str(error)] += 1
            except Wrong as error:
                wrong.append(str(error))
            except (OSError, http.client.HTTPException, KeyError, ValueError) as error:
                wrong.append(f"{kind}: {error!r}")
            # Not all wait for the same moment.
            while not end.wait(rng.random() * 0.2) and len(wrong) < 20:
                if server.process.poll() is not None:
                    wrong.append(f"the server ended with {server.process.returncode}")
                elif server.seconds() - cost < args.share * (time.monotonic() - start):
                    break
            if len(wrong) >= 20:
                end.set()

    threads = [threading.Thread(target=live, args=[kind, who]) for kind in KINDS for who in range(AT_ONCE.get(kind, 2))]
    for thread in threads:
        thread.start()
    used = 0
    while not end.wait(1):
        if server.process.poll() is not None or time.monotonic() > start + 60 * args.minutes:
            end.set()
            break
        if int(time.monotonic() - start) % 10 == 0:
            try:
                told = server.metrics()
                used = max(used, told.get("weir_used_bytes", 0), told.get("weir_peak_bytes", 0))
            except OSError as error:
                wrong.append(f"/metrics: {error!r}")
        if args.told and int(time.monotonic() - start) % 60 == 0:
            print(dict(counts), dict(refused), wrong, file=sys.stderr, flush=True)
    for thread in threads:
        thread.join()
    if server.process.poll() is None:
        for kind in KINDS[:-1]:  # and alone again, with nothing in the way
            for n in range(VARIANTS):
                try:
                    getattr(Asker(server, known, counts, "last"), kind)(n)
                except (Refused, Wrong, OSError) as error:
                    wrong.append(f"at the end: {kind} {n}: {error!r}")
        processor = round(server.seconds() - cost, 1)
    else:
        wrong.append(f"the server ended with {server.process.returncode}: {server.said[-3:]}")
        processor = -1
    return {
        "asked": dict(sorted(counts.items())), "refused": dict(sorted(refused.items())), "wrong": wrong,
        "used_bytes": used, "seconds": round(time.monotonic() - start), "processor_seconds": processor,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--mmproj", required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--share", type=float, default=0.25)
    parser.add_argument("--sessions", type=int, default=4, help="that fit at once; the load wants up to eight")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default="/var/tmp")
    parser.add_argument("--bombs", action="store_true", help="pictures of more pixels than the group has bytes")
    parser.add_argument("--limit", type=int, default=0, help="bytes of the group; default: what is planned")
    parser.add_argument("--no-group", action="store_true", help="no limit: only the answers are compared")
    parser.add_argument("--told", action="store_true", help="what was asked so far, every minute")
    args = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="weir-mixed-", dir=args.folder))
    servers, group = [], None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        program, model, mmproj = (dropped_copy(path, folder) for path in (args.program, args.model, args.mmproj))
        (folder / "saved").mkdir()
        (folder / "saved/broken.weir").write_bytes(random.Random(7).randbytes(20000))
        (folder / "archives").mkdir()
        command = [
            str(program), "serve", "-m", str(model), "--mmproj", str(mmproj), "--port", "0", "-t", "1", "--pot",
            str(POT), "--policy", "h2o", "--connections", str(CONNECTIONS), "--answer-pots", "2", "--max-body",
            str(MAX_BODY), "--max-bodies", str(MAX_BODIES), "--decoders", str(DECODERS), "--timeout", "10",
            "--media-timeout", "600", "--snapshots", str(folder / "saved"), "--recall-dir", str(folder / "archives"),
            "--form-memory", "1MiB", "--recall-disk", "1MiB", "--recall-disk-total", "64MiB", "--max-side", "256",
        ]  # fmt: skip
        # What it says alone, with room for everything.
        servers.append(Server(command))
        known, props = {}, servers[0].call("GET", "/props")[1]
        for kind in KINDS[:-1]:
            for n in range(VARIANTS):
                getattr(Asker(servers[0], known, collections.Counter(), "alone"), kind)(n)
        props = json.loads(props)
        needs = {}
        for recall in ("off", "words:gate=0"):
            before = servers[0].metrics()["weir_used_bytes"]
            made = servers[0].call("POST", "/v1/sessions", {"recall": recall})
            needs[recall] = servers[0].metrics()["weir_used_bytes"] - before
            if made[0] != 201:
                raise SystemExit(f"no session: {made}")
        servers[0].stop()

        budget = props["used_bytes"] + args.sessions * max(needs.values())
        weights = sum(os.path.getsize(path) for path in (args.model, args.mmproj))
        limit = args.limit or limit_of(weights, budget)
        for path in (program, model, mmproj):
            dropped_copy(str(path), Path(tempfile.mkdtemp(dir=folder))).replace(path)
        if not args.no_group:
            try:
                group = Group(Group.parent(), limit)
            except OSError as error:
                print(f"no control group: {error}", file=sys.stderr)
                sys.exit(77)
        servers.append(Server([*command, "--budget", str(budget)], group.enter if group else None))
        found = load(servers[1], known, args)
        if found["used_bytes"] > budget:
            found["wrong"].append(f"{found['used_bytes']} bytes used of {budget}")
        if group is not None:
            found["group"] = group.told()
            if found["group"]["oom"] != 0 and not args.bombs:
                found["wrong"].append("the kernel ended a process")
        print(json.dumps({"limit_bytes": limit, "weights_bytes": weights, "budget_bytes": budget, **found}))
        sys.exit(bool(found["wrong"]))
    finally:
        for server in servers:
            server.stop()
        if group is not None:
            group.remove()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
