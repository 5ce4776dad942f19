# SPDX-License-Identifier: Apache-2.0
"""`weir serve` processes on loopback addresses of their own, which are ended and started again."""

import http.client
import json
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

KEY = "rehearsal-key"


def free_port(hosts):
    """A port that is free at every one of these addresses."""
    while True:
        with socket.socket() as s:
            s.bind((hosts[0], 0))
            port = s.getsockname()[1]
        try:
            for host in hosts:
                with socket.socket() as s:
                    s.bind((host, port))
            return port
        except OSError:
            continue


def request(address, method, path, body=None, timeout=120.0):
    """The status, the text and the name of the server that answered (where a proxy says it)."""
    connection = http.client.HTTPConnection(*address, timeout=timeout)
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace"), answer.getheader("x-served-by", "")
    finally:
        connection.close()


class Server:
    """One server; times are time.monotonic()."""

    def __init__(self, program, model, node, host, port, flags, log, down=0.0):
        self.node, self.address, self.log, self.down = node, (host, port), log, down
        self.command = [program, "serve", "-m", model, "--host", host, "--port", str(port), "--node", node, *flags]
        self.lock = threading.Lock()
        self.killed = []  # when it lost what it held in memory
        self.restarts = []  # (signal, seconds until it ended, seconds until it served again)
        self.wrong = []
        self.failed_starts = 0
        self.cpu_seconds = 0.0  # of processes that have ended
        self.process = None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.log)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if request(self.address, "GET", "/health", timeout=5)[0] == 200:
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.process.kill()
        self.process.wait()
        words = Path(self.log.name).read_text(errors="replace")[-400:]
        raise SystemExit(f"server {self.node} does not serve. The servers' last words: {words}")

    def count_cpu(self):
        """Adds the processor time of the process that is about to end."""
        if self.process.poll() is not None:
            self.wrong.append(f"server {self.node} ended by itself, with {self.process.returncode}")
            return
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        self.cpu_seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def restart(self, how):
        """Ends it with a signal and starts it again after `down` seconds, as a supervisor would."""
        with self.lock:
            self.count_cpu()
            began = time.monotonic()
            if how == signal.SIGKILL:
                self.killed.append(began)
            self.process.send_signal(how)
            code = self.process.wait(timeout=180)
            ended = time.monotonic()
            if code != (-signal.SIGKILL if how == signal.SIGKILL else 0):
                self.wrong.append(f"server {self.node} ended with {code} after {how.name}")
            time.sleep(self.down)
            again = time.monotonic()
            while True:
                try:
                    self.start()
                    break
                except SystemExit as error:  # a store that does not answer, for instance: a supervisor tries again
                    self.failed_starts += 1
                    if time.monotonic() > again + 300:
                        self.wrong.append(f"server {self.node} does not start again: {error}")
                        return
                    time.sleep(1)
            self.restarts.append((how, ended - began, time.monotonic() - again))

    def was_killed_since(self, moment):
        return any(at >= moment for at in self.killed)

    def end(self):
        with self.lock:
            if self.process.poll() is None:
                self.count_cpu()
                self.process.kill()
            self.process.wait()
