#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logs of any length with planted incidents: what `weir watch --follow --when` is measured on.

A log is the chatter of a machine's services, line after line, and now and then an incident: for some lines most of what
is written is about one thing that went wrong, or that somebody did. Every kind of incident has a rule that asks for it
in words which its lines do not repeat. Some of the chatter is about the same things with nothing wrong (a disk that was
checked, a login that succeeded, a test of the alarm), so that no single word gives an incident away.

With --strays, a quiet line is now and then a single one of an incident's lines: one failed login is a typing error.

A log is a function of (seed, number of lines, lines between incidents, share of strays).

    tools/watch/logs.py --lines 10000000 --seed 1 > app.log         the incidents go to standard error, as JSON lines
"""

import argparse
import json
import random
import sys
from dataclasses import dataclass

LINES = (12, 40)  # of an incident
SHARE = 0.75  # of its lines are about it
BETWEEN = 400  # lines from one incident to the next, on average, and never less than a quarter of that

# kind -> (rule, lines)
INCIDENTS = {
    "disk": (
        "a disk is failing",
        (
            "kernel: ata{n}.00: failed command: READ FPDMA QUEUED",
            "kernel: blk_update_request: I/O error, dev sd{c}, sector {big}",
            "smartd: Device: /dev/sd{c}, {n} Currently unreadable (pending) sectors",
            "kernel: Buffer I/O error on dev sd{c}1, logical block {big}, async page read",
        ),
    ),
    "memory": (
        "a process was killed because memory ran out",
        (
            "kernel: {service} invoked oom-killer: gfp_mask=0x{hex}, order=0",
            "kernel: Out of memory: Killed process {big} ({service}) total-vm:{big}kB",
            "kernel: oom_reaper: reaped process {big} ({service}), now anon-rss:0kB",
            "systemd: {service}.service: A process of this unit has been killed by the OOM killer.",
        ),
    ),
    "login": (
        "somebody tries to guess passwords",
        (
            "sshd: Failed password for invalid user {user} from {ip} port {big}",
            "sshd: Failed password for root from {ip} port {big} ssh2",
            "sshd: error: maximum authentication attempts exceeded for {user} from {ip}",
            "sshd: Connection closed by authenticating user {user} {ip} [preauth]",
        ),
    ),
    "database": (
        "the database cannot be reached",
        (
            "api: ERROR could not connect to server: Connection refused, host db{n}",
            "api: ERROR request {hex} failed: no connection to db{n} after 3 tries",
            "worker: database db{n} unavailable, job {big} put back",
            "api: 503 GET /orders/{big} db{n} timed out",
        ),
    ),
}

CHATTER = (
    "api: 200 GET /orders/{big} {n} ms",
    "api: 200 POST /orders {n} ms",
    "api: 304 GET /static/app.{hex}.js",
    "worker: job {big} done in {n} s",
    "worker: {n} jobs wait",
    "cron: ({user}) CMD (/usr/bin/backup --daily)",
    "systemd: Started {service}.service.",
    "systemd: {service}.service: Succeeded.",
    "sshd: Accepted publickey for {user} from {ip} port {big}",
    "sshd: Disconnected from user {user} {ip}",
    "smartd: Device: /dev/sd{c}, SMART check passed, {n} C",
    "kernel: EXT4-fs (sd{c}1): mounted filesystem with ordered data mode",
    "kernel: {service}: memory use {n} MiB of 512 MiB",
    "dhclient: bound to {ip} -- renewal in {big} seconds",
    "ntpd: time corrected by 0.00{n} s",
    "api: connected to db{n}, pool of 8",
    "mail: message {hex} delivered to {user}",
)
SERVICES = ("api", "worker", "search", "thumbnails", "billing", "cache")
USERS = ("ada", "ben", "cleo", "dora", "emil", "admin", "test", "oracle")


@dataclass
class Incident:
    kind: str
    first: int  # lines, from 1
    last: int


def _fill(rng, line):
    return line.format(
        n=rng.randint(1, 60),
        big=rng.randint(1000, 99999),
        hex=f"{rng.getrandbits(32):08x}",
        c=rng.choice("abcd"),
        ip=f"10.{rng.randint(0, 255)}.{rng.randint(0, 255)}.{rng.randint(1, 254)}",
        user=rng.choice(USERS),
        service=rng.choice(SERVICES),
    )


@dataclass
class Line:
    text: str  # without its end
    begins: Incident | None  # the incident of which it is the first line
    kind: str | None  # of the incidents that have such lines; None: chatter


def make_log(seed, n_lines, between=BETWEEN, strays=0.0):
    rng = random.Random(f"log {seed}")
    second, kind, left = 0.0, None, 0
    until = rng.randint(between, 2 * between)
    for number in range(1, n_lines + 1):
        begins = None
        if kind is None and number >= until:
            kind, left = rng.choice(sorted(INCIDENTS)), rng.randint(*LINES)
            begins = Incident(kind, number, number + left - 1)
        about = kind is not None and (begins is not None or rng.random() < SHARE)
        told = kind if about else None
        if kind is None and strays > 0 and rng.random() < strays:
            told = rng.choice(sorted(INCIDENTS))
        line = _fill(rng, rng.choice(CHATTER if told is None else INCIDENTS[told][1]))
        second += rng.expovariate(2.0)
        at = int(second)
        yield Line(f"{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02} {line}", begins, told)
        if kind is not None:
            left -= 1
            if left == 0:
                kind = None
                until = number + max(between // 4, int(rng.expovariate(1 / between)))


def rules():
    return {kind: rule for kind, (rule, _) in INCIDENTS.items()}


def main(argv=None):
    parser = argparse.ArgumentParser(description="Writes a log with planted incidents.")
    parser.add_argument("--lines", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--between", type=int, default=BETWEEN, help="lines from one incident to the next, on average")
    parser.add_argument("--strays", type=float, default=0, help="share of quiet lines that are an incident's")
    args = parser.parse_args(argv)
    for line in make_log(args.seed, args.lines, args.between, args.strays):
        sys.stdout.write(line.text + "\n")
        if line.begins is not None:
            print(json.dumps(vars(line.begins)), file=sys.stderr)


if __name__ == "__main__":
    main()
