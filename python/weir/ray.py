# SPDX-License-Identifier: Apache-2.0
"""Sessions and batch jobs on a cluster of Ray. `pip install 'weir[ray]'`.

from ray import serve
import weir.ray

handle = serve.run(weir.ray.app("model.gguf", store="/mnt/sessions", replicas=3, pot=1024))
s = weir.ray.RemoteSession(handle)
s.append(open("a.log").read())
print(s.ask("What went wrong?"))

weir.ray.ask_files("novels", "Who tells this?", model="model.gguf", pot=1024).write_json("answers")
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import time
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray import serve
from ray.exceptions import RayActorError, RayError
from ray.serve.config import RequestRouterConfig

from ._ray_store import Store, check_id, open_store
from .errors import InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from .session import Session

VIDEOS = (".mp4", ".mkv", ".webm", ".mov", ".avi", ".m4v")


class MovedOnError(InvalidArgumentError):
    """The session has gone on without this caller: another one uses it."""


def app(
    model: str | os.PathLike[str],
    *,
    store: str | os.PathLike[str] | Store,
    replicas: int = 1,
    threads: int = 1,
    held: int = 64,
    mmproj: str | os.PathLike[str] | None = None,
    name: str = "weir",
    actor_options: dict[str, Any] | None = None,
    **session: Any,
) -> Any:
    """An application of Ray Serve, for serve.run(): `replicas` processes, each with the model and up to `held` sessions
    in memory.

    store: where sessions are saved, a folder that all nodes see, s3://BUCKET/PREFIX, or a weir.ray.Store. Every append
    and answer is saved there before it is acknowledged, so a replica may die at any moment. Requests for a session go
    to the same replica as long as it lives; another one takes the session from the store. Two that believe that they
    have it cannot both go on: a version of a session is written once. session: of Model.session(), the same for all.
    actor_options: of Ray, {"num_gpus": 1} for instance; a replica asks for `threads` CPUs.
    """
    if session.get("recall"):
        raise InvalidArgumentError("sessions on a cluster have no recall: their archives are files of one machine")
    deployment = serve.deployment(
        _Replica,
        name=name,
        num_replicas=replicas,
        max_ongoing_requests=1024,
        ray_actor_options={"num_cpus": threads, **(actor_options or {})},
        request_router_config=RequestRouterConfig(
            request_router_class="ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
        ),
    )
    return deployment.bind(
        os.fspath(model), open_store(store), {"threads": threads, "mmproj": mmproj, "held": held}, session
    )


class _WrittenElsewhereError(Exception):
    """Another replica wrote this step's version first."""


class _Held:
    """A session in the memory of a replica, and the version that it is at."""

    def __init__(self, session: Session, number: int) -> None:
        self.session, self.number = session, number


class _Replica:
    """One process: a model and the sessions that it has in memory."""

    def __init__(self, model: str, store: Store, options: dict[str, Any], session: dict[str, Any]) -> None:
        from .model import Model

        self._model = Model(model, threads=options["threads"], mmproj=options["mmproj"])
        self._store, self._options, self._n_held = store, session, options["held"]
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    async def step(self, id: str, number: int, action: str, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        """One step of a session: from version `number`, 0 for a new one, to the next, which is saved when this returns.
        A step that was done already, by whomever, is answered as it was then."""
        async with self._alone(id):
            return await asyncio.to_thread(self._step, id, number, action, given, options)

    @asynccontextmanager
    async def _alone(self, id: str) -> AsyncIterator[None]:
        """One request at a time for each session."""
        lock, n = self._locks.get(id, (asyncio.Lock(), 0))
        self._locks[id] = lock, n + 1
        try:
            async with lock:
                yield
        finally:
            lock, n = self._locks.pop(id)
            if n > 1:
                self._locks[id] = lock, n - 1

    def _step(self, id: str, number: int, action: str, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        mark = hashlib.sha256(json.dumps([action, given, options], sort_keys=True).encode()).hexdigest()
        held = self._held.pop(id, None)
        if held is not None and held.number != number:
            held.session.close()
            held = None
        if held is None:
            found = self._store.read(id)
            at, record = (0, None) if found is None else (found[0], _unpacked(found[1]))
            if record is not None and at == number + 1 and record[0]["mark"] == mark:
                return dict(record[0]["reply"])
            if at != number:
                what = "is at" if found else "is gone, or was never made; the caller is at"
                raise (MovedOnError if found else NotFoundError)(f"session {id} {what} step {at or number}")
            held = _Held(self._model.session(**self._options), number)
            if record is not None:
                held.session.restore(record[1])
        try:
            reply = self._act(held.session, action, given, options)
            reply["number"] = number + 1
            header = {"mark": mark, "reply": reply}
            if not self._store.write(id, number + 1, _packed(header, held.session.state())):
                raise _WrittenElsewhereError
        except _WrittenElsewhereError:
            held.session.close()
            return self._step(id, number, action, given, options)
        except BaseException:
            held.session.close()  # it holds what was not acknowledged
            raise
        held.number = number + 1
        self._held[id] = held
        while len(self._held) > self._n_held:
            self._held.popitem(last=False)[1].session.close()
        return reply

    @staticmethod
    def _act(session: Session, action: str, given: Any, options: dict[str, Any]) -> dict[str, Any]:
        answer = None
        if action == "ask":
            answer = session.ask(given, **options).read()
        else:
            session.append(given, **options)
        counters = session.counters()
        return {"answer": answer, "seen": counters.seen, "kept": counters.kept, "dropped": counters.dropped}

    async def delete(self, id: str) -> None:
        """Ends a session and everything that is saved of it."""
        async with self._alone(id):
            if held := self._held.pop(id, None):
                held.session.close()
            await asyncio.to_thread(self._store.delete, id)

    async def where(self) -> str:
        """The node of this replica."""
        return str(ray.get_runtime_context().get_node_id())

    async def __call__(self, request: Any) -> Any:
        """HTTP: POST {"append": text} or {"ask": question, ...options}, with the header x-session-id, or without for a
        new session; "step" is the number of the step before, as the answer before had it."""
        from starlette.responses import JSONResponse

        body = await request.json()
        id, action = request.headers.get("x-session-id") or uuid.uuid4().hex, "ask" if "ask" in body else "append"
        number, given = body.pop("step", 0), body.pop(action, None)
        try:
            reply = await self.step(check_id(id), number, action, given, body)
        except NotFoundError as error:
            return JSONResponse({"error": str(error)}, 404)
        except MovedOnError as error:
            return JSONResponse({"error": str(error)}, 409)
        except (ValueError, TypeError) as error:
            return JSONResponse({"error": str(error)}, 400)
        reply["step"] = reply.pop("number")
        return JSONResponse(reply, headers={"x-session-id": id})


def _packed(header: dict[str, Any], state: bytes) -> bytes:
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + state


def _unpacked(data: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


class RemoteSession:
    """A session somewhere on the cluster: append() and ask() as weir.Session's, whoever dies meanwhile.

    handle: of serve.run(app(...)), or serve.get_app_handle(). id: of a session that is there, with its `number`; None
    makes a new one. patience: seconds for which a call is tried again after a replica died; then RayActorError.
    """

    def __init__(self, handle: Any, id: str | None = None, number: int = 0, *, patience: float = 120.0) -> None:
        self.id = check_id(id or uuid.uuid4().hex)
        self.number, self.patience = number, patience
        self.seen = self.kept = self.dropped = 0
        self._handle = handle.options(session_id=self.id)

    def _step(self, action: str, given: str, options: dict[str, Any]) -> Any:
        end = time.monotonic() + self.patience
        while True:
            try:
                reply = self._handle.step.remote(self.id, self.number, action, given, options).result()
                break
            except RayActorError:  # the replica is gone; whether the step was done, the store knows
                if time.monotonic() > end:
                    raise
                time.sleep(0.2)
            except RayError as error:
                raise getattr(error, "cause", None) or error from None
        self.number, self.seen, self.kept, self.dropped = (reply[k] for k in ("number", "seen", "kept", "dropped"))
        return reply["answer"]

    def append(self, text: str, **options: Any) -> None:
        """Reads into the user's turn; read and saved when this returns."""
        self._step("append", text, options)

    def ask(self, question: str, **options: Any) -> str:
        """The answer to a question; both are saved when this returns. Options as weir.Session.ask()."""
        return str(self._step("ask", question, options))

    def delete(self) -> None:
        """Ends the session."""
        self._handle.delete.remote(self.id).result()

    def __repr__(self) -> str:
        return f"<weir.ray.RemoteSession {self.id} at step {self.number}>"


# ---- batch jobs


class _FileReader:
    """An actor of Ray Data: reads one file after another through a pot that is emptied between them."""

    def __init__(
        self, model: str, options: dict[str, Any], question: str, ask: dict[str, Any], session: dict[str, Any]
    ):
        from .model import Model

        self._model = Model(model, threads=options["threads"], mmproj=options["mmproj"])
        self._session = self._model.session(**session)
        self._fps, self._question, self._ask = options["fps"], question, ask

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        began, busy = time.perf_counter(), time.process_time()
        out = {"path": row["path"], "answer": "", "error": "", "pid": os.getpid()}
        s = self._session
        try:
            s.reset()
            if row["path"].lower().endswith(VIDEOS):
                s.watch(row["path"], fps=self._fps)
            else:
                s.append(Path(row["path"]).read_bytes().decode("utf-8", "replace"))
            out["answer"] = s.ask(self._question, **self._ask).read()
        except Exception as error:  # a file that cannot be read must not end the job
            out["error"] = f"{type(error).__name__}: {error}"
        counters = s.counters()
        out.update(seen=counters.seen, kept=counters.kept, dropped=counters.dropped)
        return {**out, "seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - busy}


def ask_files(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    question: str,
    *,
    model: str | os.PathLike[str],
    workers: int | None = None,
    threads: int = 1,
    mmproj: str | os.PathLike[str] | None = None,
    fps: float = 1.0,
    ask: dict[str, Any] | None = None,
    **session: Any,
) -> Any:
    """Reads each file, a text of any length or a video, through a pot of its own, and asks a question about it. Returns
    a ray.data.Dataset with the columns path, answer, error, seen, kept, dropped, seconds, cpu_seconds and pid.

    files: a folder, or paths; all nodes must see them. The largest are read first. workers: processes of `threads` CPUs
    each, None for as many as the cluster has room for. fps: frames of a second of video. ask: options of Session.ask().
    session: of Model.session().
    """
    if isinstance(files, (str, os.PathLike)):
        folder = Path(files)
        paths = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    else:
        paths = [Path(p) for p in files]
    if not paths:
        raise ValueError(f"there is no file to read in {files!r}")
    # The longest first, so that no worker is left alone with one at the end.
    paths.sort(key=lambda p: -p.stat().st_size)
    if workers is None:
        workers = max(1, int(ray.cluster_resources().get("CPU", 1) // threads)) if ray.is_initialized() else None
    rows = [{"path": os.fspath(p)} for p in paths]
    options = {"threads": threads, "mmproj": mmproj, "fps": fps}
    return ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        _FileReader,
        fn_constructor_args=(os.fspath(model), options, question, ask or {}, session),
        num_cpus=threads,
        compute=ray.data.ActorPoolStrategy(size=min(workers or len(os.sched_getaffinity(0)), len(rows))),
    )
