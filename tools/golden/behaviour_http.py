# SPDX-License-Identifier: Apache-2.0
"""The server cases of record_behaviour.py: every route, answers and errors, with status, headers and body."""

from __future__ import annotations

import base64
import http.client
import json
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.golden.behaviour_run import Recorder, without_volatile

# Different each time, or implied by the body, which is compared anyway.
HEADERS_LEFT_OUT = ("date", "content-length")
START_LIMIT_S, CALL_LIMIT_S = 600, 1200  # on a busy machine
PATIENT = "--timeout 600 --media-timeout 600 --decode-time 6000"
SESSION_ID = re.compile(rb"\bs-(?:[a-z0-9]+-)?[0-9a-f]{16,}\b")
ANSWER_ID = re.compile(rb'"(chatcmpl|cmpl)-[0-9a-f]+-([0-9a-f]+)"')
SIGN_OF_LIFE = re.compile(rb"^: (?:waiting|reading \d+/\d+ tokens)\n\n", re.M)
POLLED = re.compile(rb'^(weir_requests_total\{route="GET /v1/sessions/\{id\}",status="200"\}) (\d+)$', re.M)
TTFT = re.compile(rb"^(weir_ttft_seconds_(?:bucket\{le=\"[0-9.e+-]+\"\}|sum)) .*$", re.M)
ALIKE = {"temperature": 0, "ignore_eos": True}


@dataclass
class Answer:
    status: int
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Server:
    """`weir serve`, and a file for each call of it."""

    def __init__(self, recorder: Recorder, out: Path, name: str, folder: Path, flags: str) -> None:
        self.out, self.name, self.n_calls, self.n_polls, self.ids = out / name, name, 0, 0, []
        self.out.mkdir(parents=True, exist_ok=True)
        command = [
            str(recorder.program),
            "serve",
            "--port",
            "0",
            "-t",
            str(recorder.threads),
            *PATIENT.split(),
            *flags.split(),
        ]
        self.log = open(folder / f"{name}.log", "w+b")
        self.process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.port = self._port()

    def _port(self) -> int:
        end = time.monotonic() + START_LIMIT_S
        while time.monotonic() < end and self.process.poll() is None:
            self.log.seek(0)
            if found := re.search(rb"http://[^ :]+:(\d+)", self.log.read()):
                return int(found[1])
            time.sleep(0.05)
        self.log.seek(0)
        raise SystemExit(f"the server {self.name} did not start: {self.log.read().decode()}")

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(CALL_LIMIT_S)
        (self.out / "exit").write_text(f"{code}\n")
        return code

    def normal(self, text: bytes) -> bytes:
        """Replaces ids with numbers in order of appearance; removes times, and counts no poll (live_frames)."""

        def number(found: re.Match[bytes]) -> bytes:
            if found[0] not in self.ids:
                self.ids.append(found[0])
            return b"SESSION-%d" % (self.ids.index(found[0]) + 1)

        text = POLLED.sub(lambda found: b"%s %d" % (found[1], int(found[2]) - self.n_polls), text)
        text = ANSWER_ID.sub(rb'"\1-TIME-\2"', SESSION_ID.sub(number, text))
        text = SIGN_OF_LIFE.sub(b"", TTFT.sub(rb"\1 -", text))
        return without_volatile(text).replace(b":%d" % self.port, b":PORT")

    def keep(self, name: str, what: str, text: bytes) -> None:
        self.n_calls += 1
        (self.out / f"{self.n_calls:03d}_{name}").write_bytes(self.normal(what.encode() + b"\n" + text))

    def send(
        self, method: str, path: str, data: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=CALL_LIMIT_S)
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def call(
        self, name: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", **(headers or {})} if data is not None else dict(headers or {})
        answer, text = self.send(method, path, data, sent)
        head = [f"{answer.status} {answer.reason}"]
        head += sorted(f"{key}: {value}" for key, value in answer.getheaders() if key.lower() not in HEADERS_LEFT_OUT)
        self.keep(name, f"{method} {path}", "\n".join(head).encode() + b"\n\n" + text)
        return Answer(answer.status, text)

    def get(self, name: str, path: str, **headers: str) -> Answer:
        return self.call(name, "GET", path, headers={key.replace("_", "-"): value for key, value in headers.items()})

    def post(self, name: str, path: str, body: Any, **headers: str) -> Answer:
        return self.call(name, "POST", path, body, {key.replace("_", "-"): value for key, value in headers.items()})

    def raw(self, name: str, text: bytes) -> None:
        """Sends raw bytes, for requests that no client library makes."""
        with socket.create_connection(("127.0.0.1", self.port), CALL_LIMIT_S) as connection:
            connection.sendall(text)
            connection.shutdown(socket.SHUT_WR)
            out = b""
            while part := connection.recv(1 << 16):
                out += part
        out = re.sub(rb"(?mi)^(date|content-length):.*\r?\n", b"", out)
        self.keep(name, repr(text[:80]), out)


def chat(*words: str) -> list[dict[str, str]]:
    """Messages, alternating between user and assistant."""
    return [{"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(words)]


def information(server: Server, model: str) -> None:
    for path in (
        "/",
        "/health",
        "/v1/health",
        "/props",
        "/metrics",
        "/v1/models",
        "/models",
        f"/v1/models/{model}",
        "/v1/models/none",
    ):
        server.get("info", path)
    server.call("head", "HEAD", "/health")
    server.post("tokenize", "/tokenize", {"content": "the man and the sea"})
    server.post(
        "tokenize", "/tokenize", {"content": "<|im_start|>the man é 東", "add_special": True, "parse_special": True}
    )
    server.post("detokenize", "/detokenize", {"tokens": [1, 5, 9, 12, 40]})
    server.post("detokenize", "/detokenize", {"tokens": [999999]})
    server.post("apply_template", "/apply-template", {"messages": chat("the man", "the sea", "the boat")})
    server.post(
        "apply_template", "/apply-template", {"messages": [{"role": "system", "content": "old"}, *chat("a", "b")]}
    )


COMPLETIONS = [
    {**ALIKE},
    {**ALIKE, "stream": True},
    {**ALIKE, "stream": True, "stream_options": {"include_usage": True}, "logprobs": 2},
    {**ALIKE, "logprobs": 3},
    {**ALIKE, "echo": True, "logprobs": 1, "max_tokens": 4},
    {**ALIKE, "stop": ["the", "sea"], "max_tokens": 40},
    {**ALIKE, "stop": "e", "stream": True, "max_tokens": 40},
    {**ALIKE, "prompt": ["the man", "the sea"], "max_tokens": 5},
    {**ALIKE, "prompt": [5, 9, 12], "max_tokens": 5, "echo": True},
    {**ALIKE, "prompt": "the man <|im_start|>", "parse_special": True, "max_tokens": 5},
    {**ALIKE, "prompt": "the man and the sea and the boat. " * 40, "max_tokens": 24},
    {**ALIKE, "logit_bias": {"7": 5, "9": -100}, "max_tokens": 12},
    {**ALIKE, "presence_penalty": 1.5, "frequency_penalty": 0.7, "max_tokens": 24},
    {"seed": 11, "temperature": 0.9, "top_k": 12, "top_p": 0.8, "min_p": 0.01, "n": 3, "ignore_eos": True},
    {
        "seed": 12,
        "temperature": 1.4,
        "repeat_penalty": 1.3,
        "repeat_last_n": 8,
        "stream": True,
        "n": 2,
        "ignore_eos": True,
    },
    {"seed": 13, "max_tokens": 30},
    {"seed": 13, "max_tokens": 0},
]
CHATS = [
    {**ALIKE, "messages": chat("the man")},
    {**ALIKE, "messages": chat("the man"), "stream": True},
    {
        **ALIKE,
        "messages": chat("the man"),
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": True,
        "top_logprobs": 2,
    },
    {**ALIKE, "messages": chat("the man"), "logprobs": True, "top_logprobs": 3},
    {**ALIKE, "messages": chat("the man", "the sea and", "the boat"), "cache_prompt": False},
    {**ALIKE, "messages": chat("the man", "the sea and")},
    {**ALIKE, "messages": [{"role": "system", "content": "the old man"}, *chat("the sea " * 200)]},
    {
        **ALIKE,
        "messages": [{"role": "developer", "content": "the old man"}, *chat("the sea")],
        "max_completion_tokens": 5,
    },
    {
        **ALIKE,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "the "}, {"type": "text", "text": "sea"}]}],
    },
    {"seed": 3, "messages": chat("the man"), "n": 2, "temperature": 1.1, "stop": ["."]},
]
REFUSED = [
    ("/v1/completions", b""),
    ("/v1/completions", b"{"),
    ("/v1/completions", b"[]"),
    ("/v1/completions", b"[" * 200),
    ("/v1/completions", {}),
    ("/v1/completions", {"prompt": ""}),
    ("/v1/completions", {"prompt": [[], []]}),
    ("/v1/completions", {"prompt": "a", "n": 99}),
    ("/v1/completions", {"prompt": "a", "best_of": 2}),
    ("/v1/completions", {"prompt": "a", "temperature": -1}),
    ("/v1/completions", {"prompt": "a", "top_p": "x"}),
    ("/v1/completions", {"prompt": "a", "stop": 5}),
    ("/v1/completions", {"prompt": "a", "stop": ["x"] * 40}),
    ("/v1/completions", {"prompt": "a", "logit_bias": {"x": 1}}),
    ("/v1/completions", {"prompt": "a", "unknown": 1}),
    ("/v1/completions", {"prompt": "a", "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": [-1]}),
    ("/v1/completions", {"prompt": "a", "samplers": ["temperature"]}),
    ("/v1/completions", {"prompt": "a", "suffix": "b"}),
    ("/v1/completions", {"prompt": "a", "logprobs": 20, "max_tokens": 100000}),
    ("/v1/completions", {"prompt": "a", "logprobs": 21}),
    ("/v1/chat/completions", {}),
    ("/v1/chat/completions", {"messages": []}),
    ("/v1/chat/completions", {"messages": chat("a"), "tools": [{}]}),
    ("/v1/chat/completions", {"messages": [{"role": "tool", "content": "a"}]}),
    ("/v1/chat/completions", {"messages": [{"role": "user"}]}),
    ("/v1/chat/completions", {"messages": chat("a"), "response_format": {"type": "json_object"}}),
    ("/v1/chat/completions", {"messages": chat("a"), "top_logprobs": 2}),
    ("/v1/chat/completions", {"messages": chat("a"), "top_logprobs": 21}),
    ("/v1/chat/completions", {"messages": chat("a"), "chat_template_kwargs": {"x": 1}}),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
    ),
    ("/tokenize", {}),
    ("/tokenize", {"content": 5}),
    ("/detokenize", {}),
    ("/apply-template", {"messages": 1}),
    ("/v1/sessions", {"policy": "none"}),
    ("/v1/sessions", {"policy": "h2o:x=1"}),
    ("/v1/sessions", {"pot": 0}),
    ("/v1/sessions", {"pot": 1 << 24}),
    ("/v1/sessions", {"pot": 16, "system": "the sea " * 100}),
    ("/v1/sessions", {"frames_waiting": 2}),
    ("/v1/sessions", {"system": "a" * 70000}),
    ("/v1/sessions/restore", {"name": "none"}),
    ("/v1/sessions/restore", {"name": "../x"}),
    ("/v1/sessions/restore", {}),
    ("/v1/sessions/s-none/append", {"text": "a"}),
    ("/v1/sessions/s-none/ask", {"question": "a"}),
    ("/v1/sessions/s-none/fork", {}),
    ("/v1/sessions/s-none/save", {"name": "a"}),
]


def writing(server: Server, completions: list[dict[str, Any]], chats: list[dict[str, Any]]) -> None:
    for body in completions:
        server.post("completion", "/v1/completions", {"prompt": "the man and the sea", **body})
    for body in chats:
        server.post("chat", "/v1/chat/completions", {"max_tokens": 12, **body})
    server.post("chat", "/chat/completions", {"max_tokens": 4, **chats[0]})


def errors(server: Server) -> None:
    for path, body in REFUSED:
        server.post("refused", path, body)
    for path in (
        "/nothing",
        "/v1/embeddings",
        "/completion",
        "/infill",
        "/slots",
        "/v1/responses",
        "/v1/sessions/s-none",
        "/v1/sessions/s-none/held",
        "/v1/sessions/" + "x" * 300,
    ):
        server.get("not_found", path)
    for method, path in (
        ("GET", "/v1/completions"),
        ("DELETE", "/health"),
        ("PUT", "/v1/sessions"),
        ("POST", "/metrics"),
        ("PATCH", "/v1/sessions/s-none"),
        ("OPTIONS", "/v1/chat/completions"),
        ("POST", "/"),
    ):
        server.call("method", method, path, b"{}" if method != "GET" else None)
    server.call("delete", "DELETE", "/v1/sessions/s-none")
    server.get("origin", "/v1/models", Origin="https://app.example")
    server.get("origin", "/v1/models", Origin="https://other.example")
    server.get("foreign_host", "/v1/models", Host="weir.example")
    server.call(
        "preflight",
        "OPTIONS",
        "/v1/models",
        None,
        {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"},
    )
    server.post("form", "/v1/completions", b"--x--", Content_Type="multipart/form-data; boundary=x")
    server.post("compressed", "/v1/completions", b"{}", Content_Encoding="gzip")
    server.post("too_large", "/v1/completions", b'{"prompt": "' + b"a" * 300_000 + b'"}')
    server.get("range", "/health", Range="bytes=900-1000")
    server.raw("malformed", b"nothing\r\n\r\n")
    server.raw("malformed", b"GET /%zz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    server.raw("no_host", b"GET /health HTTP/1.0\r\n\r\n")


def sessions(server: Server, policy: str) -> None:
    made = server.post("create", "/v1/sessions", {"policy": policy, "pot": 160, "system": "the old man"})
    path = "/v1/sessions/" + made.json()["id"]
    server.get("list", "/v1/sessions")
    server.post("append", path + "/append", {"text": "the man and the sea and the boat. " * 30})
    server.post("append", path + "/append", {"text": "the river", "pinned": True})
    ask = {"question": "where is the boat", "max_tokens": 12, **ALIKE}
    server.post("ask", path + "/ask", ask)
    server.post("ask", path + "/ask", {**ask, "stream": True, "stream_options": {"include_usage": True}})
    server.post("ask", path + "/ask", {**ask, "logprobs": True, "top_logprobs": 2, "stop": ["the"]})
    server.post("ask", path + "/ask", {"question": "and now", "seed": 5, "max_tokens": 12})
    server.get("get", path)
    server.get("held", path + "/held")
    server.get("held", path + "/held?bins=7")
    server.post("save", path + "/save", {"name": "notes"})
    other = "/v1/sessions/" + server.post("fork", path + "/fork", {}).json()["id"]
    third = "/v1/sessions/" + server.post("restore", "/v1/sessions/restore", {"name": "notes"}).json()["id"]
    for place in (path, other, third):
        server.post("ask_again", place + "/ask", ask)
    wrong_sessions(server, path)
    for place in (other, third, path):
        server.call("delete", "DELETE", place)
    server.get("list", "/v1/sessions")


def wrong_sessions(server: Server, path: str) -> None:
    for body in (
        {},
        {"text": 5},
        {"text": "a", "image": "b"},
        {"frame": "x", "t_ms": 1},
        {"image": "x"},
        {"text": "a", "more": 1},
    ):
        server.post("append_refused", path + "/append", body)
    for body in ({}, {"question": ""}, {"question": "a", "n": 2}, {"question": "a" * 70000}):
        server.post("ask_refused", path + "/ask", body)
    for name in ("", "../a", ".a", "a/b", "a" * 200):
        server.post("save_refused", path + "/save", {"name": name})
    server.get("held_refused", path + "/held?bins=x")
    server.call("method", "PUT", path)


def together(server: Server) -> None:
    """Batched answers equal the answers one at a time; their ids have no order."""
    bodies = [
        {"prompt": f"the man {'and the sea ' * i}", "max_tokens": 24, "seed": i, "temperature": 0.8, "ignore_eos": True}
        for i in range(6)
    ]
    with ThreadPoolExecutor(len(bodies)) as pool:
        send = lambda body: server.send(
            "POST", "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        answers = [json.loads(text) for _, text in pool.map(send, bodies)]
    for answer in answers:
        server.keep(
            "together",
            "POST /v1/completions",
            json.dumps([answer["choices"], answer["usage"]["completion_tokens"]]).encode(),
        )


def text_server(recorder: Recorder, out: Path, folder: Path) -> None:
    (folder / "saved").mkdir()
    flags = "-m in/golden/llama.gguf --chat-template chatml --pot 256 --snapshots saved --max-body 256KiB"
    flags += " --allow-origin https://app.example"
    with Server(recorder, out, "llama", folder, flags) as server:
        information(server, "llama")
        writing(server, COMPLETIONS, CHATS)
        for policy in ("weir", "h2o", "infinipot"):
            sessions(server, policy)
        errors(server)
        server.get("metrics", "/metrics")
        together(server)
    with Server(
        recorder,
        out,
        "policies",
        folder,
        "-m in/golden/llama.gguf --pot 128 --policy h2o --on-overflow error --name mine "
        "--no-cache-prompt --answer-pots 1 --together 1 -n 6 --temp 0",
    ) as server:
        information(server, "mine")
        writing(server, COMPLETIONS[:6] + COMPLETIONS[9:11], CHATS[:2])


def guarded_server(recorder: Recorder, out: Path, folder: Path) -> None:
    """A key, and a budget that holds one session."""
    flags = (
        "-m in/golden/llama.gguf --chat-template chatml --pot 128 --api-key one,two --answer-pots 1 --budget 1500KiB"
    )
    with Server(recorder, out, "guarded", folder, flags) as server:
        for key in ("", "Bearer wrong", "Bearer one", "Bearer two", "Basic one"):
            headers = {"Authorization": key} if key else {}
            for path in ("/health", "/v1/models", "/props", "/", "/metrics"):
                server.get("key", path, **headers)
            server.post("key", "/v1/completions", {"prompt": "the man", "max_tokens": 4, **ALIKE}, **headers)
        for pot in (128, 128, 128, 128, 128, 128, 1 << 20):
            server.post("budget", "/v1/sessions", {"pot": pot}, Authorization="Bearer one")


def moved_sessions(recorder: Recorder, out: Path, folder: Path) -> None:
    """A session handed over from one server to the next."""
    (folder / "handed").mkdir()
    flags = "-m in/golden/llama.gguf --chat-template chatml --pot 128 --snapshots handed --hand-over --node"
    with Server(recorder, out, "first", folder, f"{flags} a") as first:
        path = "/v1/sessions/" + first.post("create", "/v1/sessions", {"system": "the old man"}).json()["id"]
        first.post("append", path + "/append", {"text": "the man and the sea. " * 40})
    with Server(recorder, out, "second", folder, f"{flags} b") as second:
        second.post("ask", path + "/ask", {"question": "where", "max_tokens": 12, **ALIKE})
        second.get("get", path)
        second.call("delete", "DELETE", path)


def data_url(file: Path, kind: str) -> str:
    return f"data:{kind};base64," + base64.b64encode(file.read_bytes()).decode()


def shown_chats(server: Server, pictures: list[str], video: str) -> None:
    text = {"type": "text", "text": "What is on the left?"}
    image = {"type": "image_url", "image_url": {"url": pictures[0]}}
    frames = {"type": "input_video", "input_video": {"frames": pictures, "t_ms": [0, 500, 2500]}}
    film = {"type": "input_video", "input_video": {"data": video, "fps": 2}}
    wrong = [
        {"type": "image_url", "image_url": {"url": url}}
        for url in ("http://a.example/b.png", "data:image/png;base64,AAAA", "file:///x", "")
    ]
    wrong += [
        {"type": "input_video", "input_video": value}
        for value in ({}, {"frames": []}, {"data": video, "t_ms": [1]}, {"data": "AAAA"})
    ]
    for parts in ([image, text], [text, image, image], [frames, text], [film, text], *([part, text] for part in wrong)):
        body = {"messages": [{"role": "user", "content": parts}], "max_tokens": 8, **ALIKE}
        server.post("seen", "/v1/chat/completions", body)
    server.post(
        "seen_stream",
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [film, text]}], "max_tokens": 8, "stream": True, **ALIKE},
    )


def shown_sessions(server: Server, pictures: list[str], video: str) -> None:
    path = "/v1/sessions/" + server.post("create", "/v1/sessions", {"pot": 256, "frames_waiting": 4}).json()["id"]
    server.post("append", path + "/append", {"image": pictures[0]})
    server.post("append", path + "/append", {"video": {"data": video, "fps": 2}, "t_ms": 5000})
    for i, picture in enumerate(pictures):
        server.post("frame", path + "/append", {"frame": picture, "t_ms": 20000 + 1000 * i, "wait": True})
    server.post("append", path + "/append", {"video": {"frames": pictures, "fps": 1}, "pinned": True})
    ask = {"question": "What shape is blue?", "max_tokens": 8, **ALIKE}
    server.post("ask", path + "/ask", ask)
    for body in (
        {"frame": pictures[0]},
        {"frame": pictures[0], "t_ms": -1},
        {"frame": 5, "t_ms": 1},
        {"image": "data:,x"},
        {"image": "AAAA"},
        {"frame": pictures[0], "t_ms": 1, "pinned": True},
    ):
        server.post("append_refused", path + "/append", body)
    server.get("held", path + "/held?bins=9")
    other = "/v1/sessions/" + server.post("fork", path + "/fork", {}).json()["id"]
    server.post("ask", other + "/ask", {**ask, "stream": True})
    server.get("get", path)
    server.call("delete", "DELETE", other)
    live_frames(server, path, pictures)
    server.call("delete", "DELETE", path)


def live_frames(server: Server, path: str, pictures: list[str]) -> None:
    """Frames sent without `wait`: one at a time, each read before the next, so that the counts are reproducible."""
    for i, picture in enumerate(pictures):
        status, _ = server.send(
            "POST",
            path + "/append",
            json.dumps({"frame": picture, "t_ms": 30000 + 1000 * i}).encode(),
            {"Content-Type": "application/json"},
        )
        server.keep("live_frame", "POST append", b"%d" % status.status)
        end = time.monotonic() + CALL_LIMIT_S
        while time.monotonic() < end:
            state = json.loads(server.send("GET", path, None, {})[1])
            server.n_polls += 1
            if not state["busy"] and state["frames"]["waiting"] == 0:
                break
            time.sleep(0.02)
    server.get("after_frames", path)


def seeing_servers(recorder: Recorder, out: Path, folder: Path) -> None:
    pictures = [
        data_url(recorder.inputs / name, kind)
        for name, kind in (
            ("world.png", "image/png"),
            ("0.ppm", "image/x-portable-pixmap"),
            ("wide.ppm", "image/x-portable-pixmap"),
        )
    ]
    video = base64.b64encode((recorder.inputs / "clip.mp4").read_bytes()).decode()
    eyes = "-m in/models/weir-tiny-llava.gguf --mmproj in/models/mmproj-weir-tiny-llava.gguf --pot 384 --max-body 4MiB"
    for name, flags in (("llava", ""), ("pruned", "--prune l2:keep=0.5 --policy last_frames --max-side 128")):
        with Server(recorder, out, name, folder, f"{eyes} {flags}") as server:
            server.get("props", "/props")
            shown_chats(server, pictures, video)
            shown_sessions(server, pictures, video)
            server.get("metrics", "/metrics")
    blind = "-m in/models/weir-tiny-blip2.gguf --mmproj in/models/mmproj-weir-tiny-blip2.gguf --pot 200 --max-body 4MiB"
    with Server(recorder, out, "blip2", folder, blind) as server:
        shown_chats(server, pictures, video)
        shown_sessions(server, pictures, video)


def real_server(recorder: Recorder, out: Path, folder: Path) -> None:
    with Server(recorder, out, "real", folder, "-m in/models/smollm2.gguf --pot 384") as server:
        information(server, "SmolLM2")
        talk = [
            "Name three rivers.",
            "The Nile, the Rhine and the Amazon.",
            "Which one is in Egypt?",
            "The Nile.",
            "And in Brazil?",
        ]
        for n in (1, 3, 5):
            server.post(
                "turn", "/v1/chat/completions", {"messages": chat(*talk[:n]), "max_tokens": 16, "temperature": 0}
            )
        server.post(
            "stop",
            "/v1/chat/completions",
            {"messages": chat(talk[0]), "max_tokens": 40, "temperature": 0, "stop": ["\n", "2"], "stream": True},
        )
        server.post("sampled", "/v1/chat/completions", {"messages": chat(talk[0]), "max_tokens": 24, "seed": 9})
        server.post(
            "likelihoods",
            "/v1/completions",
            {"prompt": "Once upon a time", "max_tokens": 6, "logprobs": 4, "echo": True, "temperature": 0},
        )


def record(recorder: Recorder, out: Path) -> None:
    folder = recorder.folder()
    text_server(recorder, out, folder)
    guarded_server(recorder, out, folder)
    moved_sessions(recorder, out, folder)
    seeing_servers(recorder, out, folder)
    real_server(recorder, out, folder)
