# SPDX-License-Identifier: Apache-2.0
"""weir.ray on a cluster of three nodes in this machine, one of which dies. Skipped where ray is not installed."""

import json
import os
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
from pathlib import Path

import weir

try:
    import ray
    import weir.ray
    from ray import serve
    from ray.cluster_utils import Cluster
    from weir._ray_store import FolderStore, check_id, open_store
except ImportError as error:
    if error.name == "numpy":
        raise
    missing = f"ray is not installed: {error}"
else:
    missing = ""

from .support import MODEL, WORDS


def setUpModule():  # noqa: N802 (unittest has this name)
    if missing:
        raise unittest.SkipTest(missing)


POT = {"pot": 128, "policy": "streaming_llm"}
ASK = {"max_tokens": 60, "temperature": 0.8, "ignore_end": True}
N_SESSIONS, N_TURNS = 12, 6


def text(i, turn):
    return f"Number {i} of part {turn}: {WORDS * (1 + (i + turn) % 4)}"


def undisturbed(i):
    """The answers of session i without a cluster, and the tokens seen at its end."""
    out = []
    with weir.Model(MODEL, threads=1).session(**POT) as s:
        for turn in range(N_TURNS):
            s.append(text(i, turn))
            out.append(s.ask("Who?", seed=i + 1, **ASK).read())
        return out, s.seen


class StoreTest(unittest.TestCase):
    """What every store promises; of several writers one wins."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.store = FolderStore(self.folder.name)

    def names(self):
        return [p.relative_to(self.folder.name).as_posix() for p in Path(self.folder.name).rglob("*") if p.is_file()]

    def test_a_version_is_written_once(self):
        self.assertIsNone(self.store.read("a"))
        self.assertTrue(self.store.write("a", 1, b"one"))
        self.assertFalse(self.store.write("a", 1, b"other"))
        self.assertTrue(self.store.write("a", 2, b"two"))
        self.assertEqual(self.store.read("a"), (2, b"two"))
        self.assertFalse(self.store.write("a", 1, b"stale: version 1 is gone, but there is a newer one"))
        self.assertEqual(self.store.read("a"), (2, b"two"))
        self.assertEqual(self.names(), ["a/000000000002"])
        self.store.delete("a")
        self.assertIsNone(self.store.read("a"))
        self.assertEqual(self.names(), [])

    def test_one_of_many_writers_wins(self):
        for number in range(1, 30):
            won = []
            go = threading.Barrier(4)

            def write(k, number=number, won=won, go=go):
                go.wait()
                if self.store.write("a", number, bytes([k])):
                    won.append(k)

            threads = [threading.Thread(target=write, args=(k,)) for k in range(4)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            self.assertEqual(len(won), 1)
            self.assertEqual(self.store.read("a"), (number, bytes(won)))

    def test_ids_are_names(self):
        for bad in ("", "..", "a/b", ".hidden", "a" * 101, "a\n"):
            with self.assertRaises(ValueError):
                check_id(bad)


class S3StoreTest(StoreTest):
    """The same of S3, as moto plays it."""

    def setUp(self):
        try:
            import boto3
            from moto import mock_aws
        except ImportError as error:
            self.skipTest(f"moto is not installed: {error}")
        environment = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
        patch = unittest.mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)
        mock = mock_aws()
        mock.start()
        self.addCleanup(mock.stop)
        boto3.client("s3").create_bucket(Bucket="bucket")
        self.store = open_store("s3://bucket/of/sessions/")

    def names(self):
        listed = self.store.client.list_objects_v2(Bucket="bucket").get("Contents", [])
        return [entry["Key"].removeprefix("of/sessions/") for entry in listed]

    def test_places(self):
        for bad in ("s3://", "s3:///x"):
            with self.assertRaises(ValueError):
                open_store(bad)


class ReplicaTest(unittest.IsolatedAsyncioTestCase):
    """Replicas in this process, without a cluster: what happens when two have the same session."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.replicas = [
            weir.ray._Replica(
                os.fspath(MODEL), FolderStore(self.folder.name), {"threads": 1, "mmproj": None, "held": 2}, POT
            )
            for _ in range(2)
        ]

    async def test_two_owners(self):
        one, two = self.replicas
        first = await one.step("s", 0, "append", "the man", {})
        self.assertEqual(first["number"], 1)
        # The answer was lost: the same step again, at the same replica and at another, is answered as it was.
        self.assertEqual(await one.step("s", 0, "append", "the man", {}), first)
        self.assertEqual(await two.step("s", 0, "append", "the man", {}), first)
        # Another step from where the session is no more is refused.
        with self.assertRaises(weir.ray.MovedOnError):
            await two.step("s", 0, "append", "the sea", {})
        # Two go on from the session that both have in memory: one is done, the other is refused.
        second = await two.step("s", 1, "append", "the sea", {})
        with self.assertRaises(weir.ray.MovedOnError):
            await one.step("s", 1, "append", "the boat", {})
        third = await one.step("s", 2, "append", "the river", {})
        self.assertGreater(third["seen"], second["seen"])
        with self.assertRaises(weir.NotFoundError):
            await one.step("t", 5, "append", "the river", {})
        await one.delete("s")
        with self.assertRaises(weir.NotFoundError):
            await two.step("s", 3, "append", "the river", {})

    async def test_more_sessions_than_are_held(self):
        one = self.replicas[0]
        for turn in range(3):
            for i in range(5):
                await one.step(f"s{i}", turn, "append", text(i, turn), {})
        self.assertLessEqual(len(one._held), 2)

    async def test_an_error_leaves_the_session_where_it_was(self):
        one = self.replicas[0]
        await one.step("s", 0, "append", "the man", {})
        with self.assertRaises(weir.InvalidArgumentError):
            await one.step("s", 1, "ask", "Who?", {"grammar": "no grammar"})
        self.assertEqual((await one.step("s", 1, "append", "the sea", {}))["number"], 2)

    async def test_http(self):
        class Request:
            def __init__(self, body, id=None):
                self.body, self.headers = body, {} if id is None else {"x-session-id": id}

            async def json(self):
                return dict(self.body)

        async def post(body, id=None):
            response = await self.replicas[0](Request(body, id))
            return response.status_code, json.loads(response.body), response.headers.get("x-session-id")

        status, reply, id = await post({"append": "the man"})
        self.assertEqual((status, reply["step"], reply["answer"]), (200, 1, None))
        status, reply, same = await post({"ask": "Who?", "step": 1, "max_tokens": 5, "ignore_end": True}, id)
        self.assertEqual((status, reply["step"], same), (200, 2, id))
        self.assertTrue(reply["answer"])
        self.assertEqual((await post({"append": "the sea", "step": 1}, id))[0], 409)
        self.assertEqual((await post({"append": "the sea", "step": 7}, "another"))[0], 404)
        self.assertEqual((await post({"append": "the sea"}, "../another"))[0], 400)
        self.assertEqual((await post({"ask": "Who?", "step": 2, "no_option": 1}, id))[0], 400)
        self.assertEqual((await post({"step": 2}, id))[0], 400)


class ClusterTest(unittest.TestCase):
    """One cluster for both tests, which come in the order of their names: a cluster starts many processes."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        cls.addClassCleanup(cls.folder.cleanup)
        # Patience for a machine that does other work, too.
        os.environ.update(
            RAY_worker_register_timeout_seconds="600", RAY_enable_metrics_collection="0", RAY_worker_niceness="0"
        )
        memory = {"object_store_memory": 80 << 20}
        cls.cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **memory}
        )
        cls.addClassCleanup(cls.cluster.shutdown)
        cls.others = [cls.cluster.add_node(num_cpus=1, **memory) for _ in range(2)]
        ray.init(address=cls.cluster.address, log_to_driver=False, logging_level="error")
        cls.addClassCleanup(ray.shutdown)
        serve.start(proxy_location="Disabled")

    def test_2_a_node_dies_during_answers(self):
        store = FolderStore(Path(self.folder.name) / "sessions")
        handle = serve.run(weir.ray.app(MODEL, store=store, replicas=3, **POT), route_prefix=None)
        self.addCleanup(serve.shutdown)
        nodes = set()
        while len(nodes) < 3:
            nodes.add(handle.where.remote().result())
        self.two_callers(handle)
        lost = self.others[1]
        got, seen, said, wrong = {}, {}, [], []

        def talk(i):
            try:
                s = weir.ray.RemoteSession(handle, patience=900)
                got[i] = []
                for turn in range(N_TURNS):
                    s.append(text(i, turn))
                    got[i].append(s.ask("Who?", seed=i + 1, **ASK))
                    said.append(i)
                seen[i] = s.seen
                if i == 0:
                    s.delete()
            except BaseException as error:
                wrong.append((i, repr(error)))
                raise

        threads = [threading.Thread(target=talk, args=(i,)) for i in range(N_SESSIONS)]
        for t in threads:
            t.start()
        while len(said) < N_SESSIONS * N_TURNS // 3 and not wrong:
            time.sleep(0.01)
        on_it = lost.node_id
        self.assertIn(on_it, nodes)
        self.cluster.remove_node(lost, allow_graceful=False)
        died_at = len(said)
        for t in threads:
            t.join(timeout=900)
        self.assertEqual(wrong, [])
        self.assertLess(died_at, N_SESSIONS * N_TURNS, "the node died after the last answer")
        for i in range(N_SESSIONS):
            want, n = undisturbed(i)
            self.assertEqual(got[i], want, f"session {i}")
            self.assertEqual(seen[i], n, f"session {i} lost tokens")
        self.assertEqual(len(os.listdir(store.folder)), N_SESSIONS - 1)

    def two_callers(self, handle):
        """Of one session: the second is told, and an error of the library comes through as what it is."""
        one = weir.ray.RemoteSession(handle, "shared")
        one.append("the man")
        two = weir.ray.RemoteSession(handle, "shared", one.number)
        two.append("the sea")
        with self.assertRaises(weir.ray.MovedOnError):
            one.append("the boat")
        with self.assertRaises(weir.InvalidArgumentError):
            two.ask("Who?", grammar="no grammar")
        self.assertEqual(two.number, 2)
        two.delete()

    def test_1_a_batch_job(self):
        books = Path(self.folder.name) / "books"
        books.mkdir()
        for i in range(9):
            (books / f"{i}.txt").write_text(text(i, i) * 5)
        (books / "empty.txt").write_text("")
        rows = weir.ray.ask_files(books, "Who?", model=MODEL, ask={"seed": 3, **ASK}, workers=2, **POT).take_all()
        self.assertEqual(len(rows), 10)
        for row in rows:
            with weir.Model(MODEL, threads=1).session(**POT) as s:
                s.append(Path(row["path"]).read_text())
                self.assertEqual(row["answer"], s.ask("Who?", seed=3, **ASK).read())
                self.assertEqual((row["seen"], row["error"]), (s.seen, ""))
        rows = weir.ray.ask_files([books / "1.txt", books], "Who?", model=MODEL, workers=1, **POT).take_all()
        self.assertEqual(sorted(row["error"][:16] for row in rows), ["", "IsADirectoryErro"])
        with self.assertRaises(ValueError):
            weir.ray.ask_files([], "Who?", model=MODEL)


if __name__ == "__main__":
    sys.exit(unittest.main())
