#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every metric that the dashboard and the alert rules name is one that the server exports; promtool (Debian's
prometheus) reads its /metrics and the rules, and runs the rules' tests.

    tests/clients/metrics_client.py PROGRAM MODEL
"""

import json
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

from home_client import check
from server import Server, skip

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = r"(_bucket|_sum|_count)$"


def get(url, accept="*/*"):
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60) as answer:
        return answer.read().decode()


def names_in(text):
    return set(re.findall(r"\bweir_[a-z_]+|\bvllm:[a-z_]+", text))


def main(program, model):
    with Server(program, model, ["--pot", "96"]) as server:
        body = json.dumps({"prompt": "the man and the sea", "max_tokens": 4}).encode()
        request = urllib.request.Request(server.url + "/v1/completions", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=60).read()
        text = get(server.url + "/metrics")
        opened = get(server.url + "/metrics", "application/openmetrics-text; version=1.0.0")
    exported = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    check("both formats have the same families", len(exported) == opened.count("# TYPE "))

    board = json.loads((ROOT / "deploy/grafana-dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    check("panels have ids of their own", len(ids) == len(set(ids)))
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    queries += [variable.get("definition", "") for variable in board["templating"]["list"]]
    check("the dashboard asks for something", len(names_in("\n".join(queries))) > 20)
    rules = (ROOT / "deploy/alerts.yaml").read_text()
    rules = re.sub(r"^ *(#.*|summary:.*)$", "", rules, flags=re.M)
    for source, found in (("the dashboard", queries), ("the rules", rules.splitlines())):
        for query in found:
            for name in names_in(query):
                family = re.sub(SUFFIXES, "", name)
                check(f"{source}: {name} is exported", family in exported, query)
                if name != family:
                    check(f"{source}: {name} is part of a histogram", exported[family] == "histogram", query)
                counts = exported[family] == "counter" or name != family
                asked = re.search(rf"(rate|increase)\({name}\b", query) is not None
                check(f"{source}: a rate of {name} just where it counts", counts == asked, query)

    promtool = shutil.which("promtool")
    if promtool is None:
        skip("no promtool")
    for arguments, given in (
        (["check", "metrics"], text),
        (["check", "rules", str(ROOT / "deploy/alerts.yaml")], None),
        (["test", "rules", str(ROOT / "tests/deploy/alerts_test.yaml")], None),
    ):
        done = subprocess.run([promtool] + arguments, input=given, text=True, capture_output=True)
        # Words about names (exit code 3) are advice: vLLM's have a colon.
        advice = [line for line in done.stderr.splitlines() if "vllm:" not in line]
        fine = done.returncode == 0 or (done.returncode == 3 and not advice)
        check("promtool " + " ".join(arguments[:2]), fine, done.stdout + done.stderr)
    print("ok")


main(*sys.argv[1:])
