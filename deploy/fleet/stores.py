# SPDX-License-Identifier: Apache-2.0
"""Where a rehearsal's servers save sessions: a folder, S3 as moto plays it, or Redis."""

import shutil
import socket
import subprocess
import time
from pathlib import Path

from .servers import free_port


class Store:
    def __init__(self, flags, environment=None, process=None):
        self.flags, self.environment, self.process = flags, environment or {}, process

    def end(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def missing(run):
    program = {"folder": None, "s3": run.moto, "redis": "redis-server"}[run.store]
    return [program] if program and not shutil.which(program) else []


def start(run, folder):
    if run.store == "folder":
        Path(folder, "snapshots").mkdir()
        return Store(["--snapshots", f"{folder}/snapshots"])
    port = free_port(["127.0.0.1"])
    if run.store == "redis":
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        listening(port)
        return Store(["--snapshots", f"redis://127.0.0.1:{port}/0"], process=process)
    process = subprocess.Popen(
        [run.moto, "-H", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    listening(port)
    make_bucket(port)
    environment = {
        "AWS_ACCESS_KEY_ID": "rehearsal",
        "AWS_SECRET_ACCESS_KEY": "rehearsal",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    return Store(["--snapshots", "s3://weir/sessions"], environment, process)


def listening(port, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def make_bucket(port):
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    credential = (
        "AWS4-HMAC-SHA256 Credential=rehearsal/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    )
    connection.request("PUT", "/weir", headers={"Authorization": credential})  # moto does not check signatures
    status = connection.getresponse().status
    connection.close()
    if status != 200:
        raise SystemExit(f"S3 answers {status} when a bucket is made")
