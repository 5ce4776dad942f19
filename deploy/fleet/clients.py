# SPDX-License-Identifier: Apache-2.0
"""Clients of a fleet: each has one conversation, saves its session after every answer, and never loses its place.

What a server promises, and what a client therefore counts as acknowledged:

  - `save` answered 200: these tokens outlive any kill. The client holds the fleet to it whenever it restores.
  - an append or answer that came to its end, without a save: these tokens outlive a server's graceful end (SIGTERM),
    which hands the session over, but not its death (SIGKILL). A session that is not found although none of the servers
    that held it was killed is therefore an error.

What was asked after the last save is asked again, and has the same answer. A save that was not answered may have been
written all the same: the restored session's `seen` tells.

Servers with --durable promise more: whatever was answered outlives any kill, without a save. DurableClient holds them
to that. Where no answer came, `seen` tells whether the request was done.
"""

import http.client
import json
import random
import threading
import time

from .servers import request

SUBJECTS = ("river", "harbour", "orchard", "railway", "lighthouse", "mill", "market", "bridge", "glacier", "library")
DEEDS = ("carries what the rain gives", "keeps what it can hold", "forgets the names of its guests", "waits for snow",
         "counts the lamps at night", "turns to the sea", "opens before the sun", "belongs to nobody")  # fmt: skip


def appended(i, turn):
    """The text that session i reads at a turn."""
    words = random.Random(i * 100_003 + turn)
    return " ".join(
        f"The {words.choice(SUBJECTS)} number {words.randrange(1000)} {words.choice(DEEDS)}." for _ in range(4)
    )


def question(i, turn, tokens):
    subject = random.Random(i * 7 + turn).choice(SUBJECTS)
    return {
        "question": f"What of the {subject}?",
        "max_tokens": tokens,
        "temperature": 0.8,
        "seed": i + 1,
        "ignore_eos": True,
    }


def answer_of(text):
    return json.loads(text)["choices"][0]["message"]["content"]


class Log:
    """What all clients saw."""

    def __init__(self):
        self.lock = threading.Lock()
        self.calls = []  # (when it began, seconds, what, status; 0 where the connection broke, server, client)
        # An append, an answer and their save: (when it began, seconds until it was done for good, client).
        self.steps = []
        self.wrong = []
        self.restores = self.restores_after_kill = self.acknowledged = 0

    def call(self, *row):
        with self.lock:
            self.calls.append(row)

    def error(self, text):
        with self.lock:
            self.wrong.append(text)


class Client(threading.Thread):
    """Session i: a turn is an append, a question, and a save. think: mean seconds between two turns."""

    def __init__(self, i, proxy, fleet, log, run):
        super().__init__(daemon=True)
        self.i, self.proxy, self.fleet, self.log, self.run_ = i, proxy, fleet, log, run
        self.answers = []
        self.id = None
        self.saved_seen = 0
        self.unsure = None  # (tokens, answer) of a save that was not answered: it may have been written
        self.held_since = time.monotonic()  # when `holders` began to be who may have held the session
        self.holders = set()
        self.stopped = self.cut = False

    # ---- requests

    def call(self, what, method, path, body=None):
        """One request, once. Status 0: no answer."""
        began = time.monotonic()
        try:
            status, text, node = request(self.proxy, method, path, body, self.run_.timeout)
        except (OSError, http.client.HTTPException) as error:
            status, text, node = 0, repr(error), ""
        self.log.call(began, time.monotonic() - began, what, status, node, self.i)
        if status in (200, 201):
            self.holders.add(node)
        return status, text

    def persist(self, what, method, path, body=None):
        """A request that may be sent again until it is answered: it changes no session that is there."""
        while not self.stopped:
            status, text = self.call(what, method, path, body)
            if status in (200, 201):
                return text
            if status == 404:
                self.log.error(f"session {self.i}: {what} found nothing: {text.strip()}")
                raise LostError
            time.sleep(0.2)
        raise LostError

    # ---- the conversation

    def name(self):
        return f"rehearsal-{self.i}"

    def save(self):
        status, text = self.call("save", "POST", f"/v1/sessions/{self.id}/save", {"name": self.name()})
        if status != 200:
            return False
        self.saved_seen = json.loads(text)["session"]["seen"]
        return True

    def create(self):
        while True:
            self.id = json.loads(self.persist("create", "POST", "/v1/sessions", {}))["id"]
            if self.save():
                return

    def restore(self, why):
        """The session as it was saved last, in place of what is left of it."""
        began = time.monotonic()
        if why == "gone" and not any(s.was_killed_since(self.held_since) for s in self.fleet if s.node in self.holders):
            self.log.error(
                f"session {self.i} is gone, but none of {sorted(self.holders)} that may have held it was killed"
            )
        self.call("delete", "DELETE", f"/v1/sessions/{self.id}")
        self.held_since, self.holders = began, set()
        text = self.persist("restore", "POST", "/v1/sessions/restore", {"name": self.name()})
        session = json.loads(text)
        self.id = session["id"]
        if self.unsure and session["seen"] == self.unsure[0]:
            self.answers.append(self.unsure[1])
            self.saved_seen = session["seen"]
        self.unsure = None
        if session["seen"] != self.saved_seen:
            self.log.error(f"session {self.i}: {self.saved_seen} tokens were acknowledged, {session['seen']} came back")
        with self.log.lock:
            self.log.restores += 1
            self.log.restores_after_kill += why == "gone"

    def turn(self):
        """True if it is done; otherwise the session is where it was saved, which may be after this turn, too."""
        i, n = self.i, len(self.answers)
        status, text = self.call("append", "POST", f"/v1/sessions/{self.id}/append", {"text": appended(i, n)})
        if status == 200:
            status, text = self.call("ask", "POST", f"/v1/sessions/{self.id}/ask", question(i, n, self.run_.tokens))
        if status == 200:
            answer, seen = answer_of(text), json.loads(text)["weir"]["seen"]
            if self.save():
                if self.saved_seen != seen:
                    self.log.error(f"session {i}: the answer ended at {seen} tokens, {self.saved_seen} were saved")
                self.answers.append(answer)
                return True
            self.unsure, status = (seen, answer), 0
        # 404: the session is nowhere. 409: it holds a part of the turn. 0, 502, 504: nobody knows what it holds. 503
        # and 429: nothing of this request was read, but an append before it was.
        if status not in (0, 404, 409, 429, 502, 503, 504):
            self.log.error(f"session {i}: an answer of {status}: {text.strip()[:200]}")
        if status in (429, 503):
            time.sleep(0.2)
        self.restore("gone" if status == 404 else "unknown")
        return len(self.answers) > n

    def run(self):
        think = random.Random(-1 - self.i)
        try:
            self.create()
            end = self.run_.end
            while (pause := think.expovariate(1 / self.run_.think)) < end - time.monotonic():
                time.sleep(pause)
                began = time.monotonic()
                while not self.turn():
                    pass
                with self.log.lock:
                    self.log.steps.append((began, time.monotonic() - began, self.i))
                    self.log.acknowledged += 1
        except LostError:
            pass


class DurableClient(Client):
    """The same conversation with servers that store whatever they answer: no saves, and one id for ever."""

    def create(self):
        session = json.loads(self.persist("create", "POST", "/v1/sessions", {}))
        self.id, self.saved_seen = session["id"], session.get("seen", 0)

    def look(self):
        """The tokens seen, once a server has the session again."""
        end = time.monotonic() + self.run_.patience
        while not self.stopped:
            status, text = self.call("look", "GET", f"/v1/sessions/{self.id}")
            if status == 200:
                return json.loads(text)["seen"]
            if time.monotonic() > end:
                self.log.error(f"session {self.i} does not come back in {self.run_.patience} s: {status} {text[:200]}")
                break
            time.sleep(0.2)
        raise LostError

    def done(self, what, body, seen_of):
        """The reply of a request that is done once; None where it was done and the reply was lost."""
        while not self.stopped:
            status, text = self.call(what, "POST", f"/v1/sessions/{self.id}/{what}", body)
            if status == 200:
                self.saved_seen = seen_of(json.loads(text))
                return text
            if "cut_short" in text:
                self.cut = True
            seen = self.look()
            if seen < self.saved_seen:
                self.log.error(f"session {self.i}: {self.saved_seen} tokens were acknowledged, {seen} are left")
                raise LostError
            with self.log.lock:
                self.log.restores += 1
            if seen > self.saved_seen:
                self.saved_seen = seen
                return None
        raise LostError

    def turn(self):
        i, n = self.i, len(self.answers)
        self.done("append", {"text": appended(i, n)}, lambda reply: reply["seen"])
        text = self.done("ask", question(i, n, self.run_.tokens), lambda reply: reply["weir"]["seen"])
        if self.cut:
            raise LostError  # it holds a part of a request, as it was told: nothing is left to compare
        self.answers.append(text and answer_of(text))
        return True


class LostError(Exception):
    """The session cannot go on; the log says why."""


def undisturbed(address, i, n_turns, tokens):
    """The answers of session i on a server that nobody ends."""
    out = []
    id = json.loads(request(address, "POST", "/v1/sessions", {})[1])["id"]
    for turn in range(n_turns):
        status, text, _ = request(address, "POST", f"/v1/sessions/{id}/append", {"text": appended(i, turn)})
        if status == 200:
            status, text, _ = request(address, "POST", f"/v1/sessions/{id}/ask", question(i, turn, tokens))
        if status != 200:
            raise SystemExit(f"the undisturbed server answers {status}: {text}")
        out.append(answer_of(text))
    request(address, "DELETE", f"/v1/sessions/{id}")
    return out
