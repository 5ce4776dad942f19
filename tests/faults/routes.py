# SPDX-License-Identifier: Apache-2.0
"""Requests to a server in which a call fails: each is answered as ever, or with an error; the next one is answered
right."""

import base64
import dataclasses
import http.client
import json
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

from tests.faults.control import KINDS, Control
from tests.faults.programs import Verdict

SECONDS = 20
REFERENCES = 4
# What two answers to one request may differ in, though the references agreed by chance.
VOLATILE = re.compile(r"(^|_)(ms|id|created|created_at|duration|per_second|bytes)$")
SURE = {"temperature": 0, "seed": 1, "ignore_eos": True, "max_tokens": 6}
CHAT = {"messages": [{"role": "user", "content": "the man and the sea"}], **SURE}
RULE = {"when": "who came? => the man", "on": 0.01, "off": 0, "least": -30, "begin": 1, "end": 1, "calibrate": 4}
OLLAMA = {"model": "any", "options": {"temperature": 0, "seed": 1, "num_predict": 6}}


@dataclasses.dataclass
class Request:
    name: str
    method: str
    path: str
    body: dict | None = None
    needs: str = ""  # session, rule, response, conversation, mcp
    head_only: bool = False  # its answer has no end
    headers: dict = dataclasses.field(default_factory=dict)


def requests() -> list[Request]:
    post = lambda path, body, needs="", **more: Request(f"POST {path}", "POST", path, body, needs, **more)
    get = lambda path, needs="", **more: Request(f"GET {path}", "GET", path, None, needs, **more)
    delete = lambda path, needs, **more: Request(f"DELETE {path}", "DELETE", path, None, needs, **more)
    session = "/v1/sessions/{id}"
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    begin = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    socket = {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    return [
        get("/"), get("/page/page.css"), get("/health"), get("/props"), get("/metrics"), get("/slots"),
        get("/v1/models"), get("/v1/models/any"), get("/tokenizer_info"), get("/nothing"),
        post("/tokenize", {"content": "the man and the sea"}), post("/detokenize", {"tokens": [5, 6, 7]}),
        post("/apply-template", {"messages": CHAT["messages"]}),
        post("/v1/chat/completions", CHAT),
        dataclasses.replace(post("/v1/chat/completions", {**CHAT, "stream": True}), name="a streamed chat"),
        dataclasses.replace(post("/v1/chat/completions", {**CHAT, "response_format": form}), name="a chat with a form"),
        dataclasses.replace(post("/v1/chat/completions", {**CHAT, "tools": [tool]}), name="a chat with a tool"),
        post("/v1/completions", {"prompt": "the man", **SURE}),
        post("/v1/embeddings", {"input": "the man"}),
        post("/v1/responses", {"input": "the man", "temperature": 0, "max_output_tokens": 6}),
        get("/v1/responses/{response}", "response"), delete("/v1/responses/{response}", "response"),
        post("/v1/conversations", {}),
        get("/v1/conversations/{conversation}", "conversation"),
        delete("/v1/conversations/{conversation}", "conversation"),
        post("/v1/messages", {"messages": CHAT["messages"], "max_tokens": 6, "temperature": 0, "model": "any"}),
        post("/v1/messages/count_tokens", {"messages": CHAT["messages"], "model": "any"}),
        post("/api/chat", {**OLLAMA, "messages": CHAT["messages"]}), post("/api/generate", {**OLLAMA, "prompt": "man"}),
        post("/api/embed", {"model": "any", "input": "man"}),
        post("/api/embeddings", {"model": "any", "prompt": "man"}),
        post("/api/show", {"model": "any"}), get("/api/tags"), get("/api/ps"), get("/api/version"),
        post("/infill", {"input_prefix": "a", "input_suffix": "b"}),
        dataclasses.replace(post("/mcp", {**call, "method": "initialize", "params": begin}), name="POST /mcp, begin"),
        post("/mcp", call, "mcp", headers={"Mcp-Session-Id": "{mcp}"}),
        delete("/mcp", "mcp", headers={"Mcp-Session-Id": "{mcp}"}),
        get("/v1/sessions"), post("/v1/sessions", {"system": "Be brief."}),
        post("/v1/sessions/restore", {"name": "base"}),
        get(session, "session"), get(session + "/held", "session"), get(session + "/tokens", "session"),
        post(session + "/append", {"text": "the man and the sea " * 20}, "session"),
        post(session + "/ask", {"question": "the man?", **SURE}, "session"),
        post(session + "/fork", {}, "session"),
        post(session + "/save", {"name": "probe"}, "session"),
        get(session + "/rules", "rule"), post(session + "/rules", RULE, "session"),
        delete(session + "/rules/door", "rule"),
        get(session + "/events", "rule", head_only=True),
        get(session + "/events/1/picture", "rule"),
        get(session + "/socket", "rule", head_only=True, headers=socket),
        delete(session, "session"),
    ]  # fmt: skip


def flat(value, path=()) -> dict:
    if isinstance(value, dict):
        return {at: leaf for key, part in value.items() for at, leaf in flat(part, (*path, key)).items()}
    if isinstance(value, list):
        return {at: leaf for i, part in enumerate(value) for at, leaf in flat(part, (*path, i)).items()}
    return {path: value}


@dataclasses.dataclass
class Answer:
    status: int  # 0: the connection ended before the whole answer was there
    body: bytes = b""
    headers: dict = dataclasses.field(default_factory=dict)

    def objects(self) -> list | None:
        """Of JSON, of lines of JSON, or of server-sent events; None: it is something else."""
        out = []
        text = self.body.decode(errors="replace")
        for line in [text] if text.count("\n") < 2 or text.startswith("{\n") else text.splitlines():
            line = line.removeprefix("data: ").strip()
            if not line or line == "[DONE]" or re.match(r"event: |id: |:", line):
                continue
            try:
                out.append(json.loads(line))
            except ValueError:
                return None
        return out

    def has_error(self) -> bool:
        found = self.objects()
        if not found:
            return False
        last = found[-1]
        result = last.get("result") if isinstance(last, dict) else None
        return isinstance(last, dict) and (
            bool(last.get("error"))
            or bool(last.get("response", {}).get("error") if isinstance(last.get("response"), dict) else None)
            or (isinstance(result, dict) and bool(result.get("isError")))
        )


class NotServingError(Exception):
    """With what the server said."""


class Stage:
    """A server, whose calls fail, and what it answers when they do not."""

    def __init__(self, program: str, model: str, control: Control, folder: Path):
        self.program, self.model, self.control = program, model, control
        self.saved, self.archives = folder / "saved", folder / "archives"
        self.requests = requests()
        self.process = None

    def __enter__(self):
        self.saved.mkdir()
        self.archives.mkdir()
        self.start()
        session = self.call("POST", "/v1/sessions", {"rule_tokens": 96}).json()["id"]
        path = f"/v1/sessions/{session}"
        self.call("POST", path + "/append", {"text": "The harpoon lay in the attic. " + "the sea " * 100})
        self.call("POST", path + "/save", {"name": "base"})
        self.call("POST", path + "/rules", {**RULE, "id": "door"})
        self.call("POST", path + "/save", {"name": "watched"})
        self.clean()
        self.probe = self.call("POST", "/v1/completions", {"prompt": "the sea", **SURE}).json()["choices"][0]["text"]
        return self

    def __exit__(self, *_):
        self.stop()

    # The server.

    def start(self) -> None:
        self.control.next_program()
        self.control.count()
        self.launch()

    def launch(self) -> None:
        self.process = subprocess.Popen(
            [
                self.program, "serve", "-m", self.model, "--port", "0", "-t", "1", "--pot", "96", "--policy",
                "streaming_llm", "--connections", "64", "--snapshots", str(self.saved), "--recall",
                "words:gate=0,passages=1", "--recall-dir", str(self.archives), "--recall-disk", "1MiB",
                "--recall-tokens", "60", "--budget", "64MiB",
            ],
            stderr=subprocess.PIPE, text=True, env=self.control.environment(),
        )  # fmt: skip
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"http://[^:]+:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            self.process.wait()
            raise NotServingError("".join(said))
        self.said = []
        threading.Thread(target=lambda of=self.process.stderr: self.said.extend(of), daemon=True).start()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def restart(self) -> None:
        self.stop()
        shutil.rmtree(self.archives)
        self.archives.mkdir()
        self.start()

    # Requests.

    def send(self, request: Request, names: dict) -> Answer:
        fill = lambda text: re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], found[0]), text)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        headers = {name: fill(value) for name, value in request.headers.items()}
        try:
            body = None if request.body is None else json.dumps(request.body)
            connection.request(request.method, fill(request.path), body, headers)
            answer = connection.getresponse()
            content = b"" if request.head_only and answer.status < 300 else answer.read()
            if request.head_only:
                time.sleep(0.15)  # its place among sixteen is free again after two seconds at most
            return Answer(answer.status, content, dict(answer.getheaders()))
        except TimeoutError:
            raise
        except (OSError, http.client.HTTPException):
            return Answer(0)
        finally:
            connection.close()

    class Reply(Answer):
        def json(self):
            return json.loads(self.body)

    def call(self, method: str, path: str, body: dict | None = None, headers: dict | None = None) -> "Stage.Reply":
        """One that must be answered."""
        answer = self.send(Request("", method, path, body, headers=headers or {}), {})
        if not 200 <= answer.status < 300:
            raise OSError(f"{method} {path}: status {answer.status}: {answer.body[:300]!r}")
        return Stage.Reply(answer.status, answer.body, answer.headers)

    def prepare(self, request: Request) -> dict:
        names = {}
        if request.needs in ("session", "rule"):
            name = "base" if request.needs == "session" else "watched"
            names["id"] = self.call("POST", "/v1/sessions/restore", {"name": name}).json()["id"]
        elif request.needs == "response":
            made = self.call("POST", "/v1/responses", {"input": "the man", "temperature": 0, "max_output_tokens": 4})
            names["response"] = made.json()["id"]
        elif request.needs == "conversation":
            names["conversation"] = self.call("POST", "/v1/conversations", {}).json()["id"]
        elif request.needs == "mcp":
            begin = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}
            headers = self.call("POST", "/mcp", begin).headers
            names["mcp"] = next(value for name, value in headers.items() if name.lower() == "mcp-session-id")
        if request.path.endswith("/save"):
            shutil.copyfile(self.saved / "base.weir", self.saved / "probe.weir")
        return names

    def clean(self) -> None:
        for session in self.call("GET", "/v1/sessions").json()["data"]:
            self.call("DELETE", f"/v1/sessions/{session['id']}")

    def after(self, request: Request, names: dict) -> dict:
        """What a session is like afterwards, and whether the server answers right."""
        out = {}
        if "id" in names:
            question = {"question": "Where is the harpoon?", **SURE}
            path = f"/v1/sessions/{names['id']}/ask"
            asked = self.send(Request("", "POST", path, question), {})
            text = asked.objects()[0]["choices"][0]["message"]["content"] if asked.status == 200 else ""
            out["asked"] = (asked.status, text)
        if request.path.endswith("/save"):
            restored = self.call("POST", "/v1/sessions/restore", {"name": "probe"}).json()
            out["saved"] = (restored["seen"], restored["kept"])
        self.clean()
        probe = self.call("POST", "/v1/completions", {"prompt": "the sea", **SURE}).json()
        out["probe"] = probe["choices"][0]["text"]
        return out

    # A request without faults, and with one.

    def rehearse(self, request: Request) -> None:
        self.request = request
        self.calls = dict.fromkeys(KINDS, 0)
        self.good, self.afters = [], []
        for n in range(REFERENCES):
            names = self.prepare(request)
            if n == 0:
                self.befores = [self.after(request, names)] if names else []
                names = self.prepare(request)
            self.control.count()
            self.good.append(self.send(request, names))
            for kind, calls in self.control.calls().items():
                self.calls[kind] = max(self.calls[kind], calls)
            self.afters.append(self.after(request, names))
        statuses = {answer.status for answer in self.good}
        if len(statuses) != 1 or 0 in statuses:
            raise SystemExit(f"{request.name}: without a fault it is answered with {statuses}")
        parts = [flat(answer.objects()) for answer in self.good]
        self.fixed = {
            at: value
            for at, value in parts[0].items()
            if all(part.get(at, ...) == value for part in parts) and not any(VOLATILE.search(str(key)) for key in at)
        }
        self.fixed_body = len({answer.body for answer in self.good}) == 1

    def judge(self, answer: Answer) -> Verdict:
        want = self.good[0]
        if answer.status == 0:
            return Verdict("closed")
        if answer.status == want.status:
            if self.fixed_body and answer.body == want.body:
                return Verdict("same")
            parts = None if answer.objects() is None else flat(answer.objects())
            if want.objects() is None and not self.fixed_body:
                return Verdict("same")  # counters as text
            if want.objects() is not None and parts is not None:
                wrong = [at for at, value in self.fixed.items() if parts.get(at, ...) != value]
                if not wrong:
                    return Verdict("same")
                if all({"recall", "states"} & set(at) for at in wrong):
                    return Verdict("told", f"{wrong[:3]}")
                if answer.has_error():
                    return Verdict("refused", answer.body[-200:].decode(errors="replace"))
                return Verdict("wrong", f"{wrong[:3]}: {answer.body[:300]!r}")
            return Verdict("wrong", f"{answer.body[:300]!r}")
        if answer.status >= 400 and answer.has_error():
            return Verdict("refused", answer.body[:200].decode(errors="replace"))
        return Verdict("wrong", f"status {answer.status}: {answer.body[:300]!r}")

    def verdict(self, kind: str, nth: int, error: int, n: int) -> Verdict:
        found = None
        try:
            names = self.prepare(self.request)
            self.control.fail(kind, nth, error, n)
            answer = self.send(self.request, names)
            self.control.set("kind", 0)
            found = self.judge(answer)
            after = self.after(self.request, names)
            if found.kind == "refused" and after.get("asked", [0])[0] == 404 and after["probe"] == self.probe:
                found = Verdict("ended", found.detail)
            elif not found.fault and after not in self.afters + self.befores:
                found = Verdict("wrong", f"afterwards: {after}, not {self.afters[0]} nor {self.befores[:1]}")
            elif self.good[0].status == answer.status and found.kind == "same" and after not in self.afters:
                found = Verdict("wrong", f"it was acknowledged, but afterwards: {after}, not {self.afters[0]}")
        except TimeoutError:
            found = Verdict("hang", f"no answer within {SECONDS} s")
        except (OSError, http.client.HTTPException, ValueError, KeyError) as problem:
            try:
                self.process.wait(2)
                found = Verdict("crash", f"signal {-self.process.returncode}: {''.join(self.said)[-300:]}")
            except subprocess.TimeoutExpired:
                found = Verdict("wrong", f"the next request: {problem}")
        finally:
            self.control.set("kind", 0)
        if found.fault:
            self.restart()
        return found


class Beginning:
    """The start of a server: it serves, or ends with one line of error."""

    def __init__(self, stage: Stage):
        self.stage = stage
        stage.stop()
        stage.control.next_program()
        stage.control.count()
        stage.launch()
        self.calls = stage.control.calls()

    def verdict(self, kind: str, nth: int, error: int, n: int) -> Verdict:
        stage = self.stage
        stage.stop()
        stage.control.next_program()
        stage.control.fail(kind, nth, error, n)
        watch = threading.Timer(SECONDS, lambda: stage.process.kill())
        watch.start()
        try:
            stage.launch()
            stage.control.set("kind", 0)
            probe = stage.call("POST", "/v1/completions", {"prompt": "the sea", **SURE}).json()
            text = probe["choices"][0]["text"]
            return Verdict("same") if text == stage.probe else Verdict("wrong", text)
        except NotServingError as why:
            lines = [line for line in str(why).splitlines() if line.startswith("weir: error: ")]
            if stage.process.returncode < 0:
                return Verdict("crash" if watch.is_alive() else "hang", f"{stage.process.returncode}: {why}"[-300:])
            if len(lines) != 1 or not str(why).rstrip().endswith(lines[0]):
                return Verdict("wrong", f"exit {stage.process.returncode} without one line of error: {why}"[-300:])
            return Verdict("refused", lines[0])
        except (OSError, http.client.HTTPException, ValueError, KeyError) as problem:
            return Verdict("wrong", f"it serves, but: {problem}")
        finally:
            watch.cancel()
