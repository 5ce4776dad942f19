#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the Helm chart, and that deploy/kubernetes.yaml is what it renders.

    deploy/helm/check.py            lints and renders the chart with every kind of values, and checks what comes out
    deploy/helm/check.py --write    writes deploy/kubernetes.yaml

Helm itself does the linting and rendering, from PyPI's helm-python-sdk, and kubernetes-validate has the schemas of
Kubernetes' own objects, of several versions (pyproject.toml: deploy). WEIR_CRDS names a folder with the files of custom
resource definitions (InferencePool, HTTPRoute, ScaledObject); without it the check says that it did not hold these
objects against a schema. Exits with 77 if a package is missing.
"""

import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHART = HERE / "weir"
PLAIN = HERE.parent / "kubernetes.yaml"
VERSIONS = ("1.32", "1.34", "1.37")
S3 = {"kind": "s3", "s3": {"bucket": "b", "secret": "weir-s3", "endpoint": "http://minio:9000", "port": 9000}}
REDIS = {"kind": "redis", "redis": {"host": "redis", "secret": "weir-redis"}}
CASES = {
    "plain": {},
    "five": {"replicas": 5, "sandbox": True, "extraFlags": ["--recall", "words"], "nodeSelector": {"disk": "fast"}},
    "s3": {"snapshots": S3, "networkPolicy": {"proxyFrom": [{"podSelector": {"matchLabels": {"app": "web"}}}]}},
    "redis": {"durable": True, "snapshots": REDIS, "autoscaling": {"kind": "hpa"}},
    "pool": {
        "snapshots": S3,
        "inferencePool": {"enabled": True, "route": {"hostnames": ["llm.example"], "gatewayNamespace": "gateways"}},
        "autoscaling": {"kind": "keda", "max": 40},
        "networkPolicy": {
            "egress": [{"ports": [{"port": 4318, "protocol": "TCP"}]}],
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gateways"}}}],
        },
    },
    "bare": {
        "proxy": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "model": {"create": False},
    },
}
REFUSED = {
    "a grace period that is too short": {"drain": 120},
    "S3 without a bucket": {"snapshots": {"kind": "s3"}},
    "a store that is not there": {"snapshots": {"kind": "ftp"}},
    "a key in the values": {"apiKey": {"secret": "s", "key": "key", "value": "sk-1"}},
}
HEADER = """\
# Two replicas that share a volume for snapshots, behind nginx with session affinity. docs/deploy.md explains it.
#   kubectl create secret generic weir-key --from-literal=key=SECRET
#   kubectl apply -f deploy/kubernetes.yaml
# Written by deploy/helm/check.py --write from deploy/helm/weir with its own values, in the namespace `default`.
"""

try:
    import helm_python
    import kubernetes_validate
    import yaml
except ImportError as error:
    print(f"skipped: {error}; pip install helm-python-sdk kubernetes-validate")
    sys.exit(77)

n_wrong = 0


def check(what, holds, shown=""):
    global n_wrong
    if not holds:
        n_wrong += 1
        print(f"WRONG {what}{': ' if shown else ''}{shown}")


def rendered(chart, values, namespace="default"):
    """The manifests' texts, in the order in which Helm's templates are named."""
    out = chart.render(values, name="weir", namespace=namespace)
    return [text.strip() for path, text in sorted(out.items()) if path.endswith(".yaml") and text.strip()]


def objects(texts):
    return [o for text in texts for o in yaml.safe_load_all(text) if o]


def plain(chart):
    # What only Helm may say of itself is left out of a file that kubectl applies.
    text = "\n---\n".join(rendered(chart, {}))
    text = re.sub(r"^ *app.kubernetes.io/managed-by: Helm\n", "", text, flags=re.M)
    return HEADER + text + "\n"


def definitions():
    """Schemas of custom resources by (apiVersion, kind)."""
    out = {}
    for path in sorted(Path(os.environ.get("WEIR_CRDS", os.devnull)).glob("*.yaml")):
        for crd in yaml.safe_load_all(path.read_text()):
            if crd and crd.get("kind") == "CustomResourceDefinition":
                for version in crd["spec"]["versions"]:
                    of = f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]
                    out[of] = closed(version["schema"]["openAPIV3Schema"])
    return out


def closed(schema):
    """The schema without members that it does not name, which an API server would drop or refuse."""
    schema = copy.deepcopy(schema)

    def walk(node):
        if isinstance(node, dict):
            if "properties" in node and "additionalProperties" not in node:
                if not node.get("x-kubernetes-preserve-unknown-fields"):
                    node["additionalProperties"] = False
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(schema)
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def schema_of(case, found, crds):
    import jsonschema

    own = set()
    for o in found:
        kind = o["apiVersion"], o["kind"]
        name = f"{case}: {o['kind']} {o['metadata']['name']}"
        if kind in crds:
            for error in jsonschema.Draft202012Validator(crds[kind]).iter_errors(o):
                check(name, False, f"{'/'.join(map(str, error.path))}: {error.message}")
        elif "." in o["apiVersion"].partition("/")[0] and not o["apiVersion"].partition("/")[0].endswith(".k8s.io"):
            own.add(o["kind"])
        elif o["kind"] in ("InferencePool", "HTTPRoute"):
            own.add(o["kind"])
        else:
            for version in VERSIONS:
                try:
                    kubernetes_validate.validate(o, version, strict=True)
                except Exception as error:  # its own classes derive from nothing in common
                    check(name, False, f"{version}: {str(error).partition(chr(10))[0]}")
    return own


def sense_of(case, found):
    """What no schema says."""
    by = {(o["kind"], o["metadata"]["name"]): o for o in found}
    check(f"{case}: names are used once", len(by) == len(found))
    check(f"{case}: no secret is made", not any(o["kind"] == "Secret" for o in found))
    pods = {n: o["spec"]["template"] for (kind, n), o in by.items() if kind in ("StatefulSet", "Deployment")}
    for name, pod in pods.items():
        spec = pod["spec"]
        check(f"{case}: {name} runs as a user of its own", spec["securityContext"].get("runAsNonRoot") is True)
        for container in spec["containers"]:
            rights = container["securityContext"]
            check(f"{case}: {name} has no rights", rights["capabilities"]["drop"] == ["ALL"])
            check(f"{case}: {name} writes to its volumes only", rights["readOnlyRootFilesystem"] is True)
            mounts = {m["name"] for m in container["volumeMounts"]}
            check(f"{case}: {name} mounts what it has", mounts == {v["name"] for v in spec["volumes"]}, mounts)
            ports = {p["name"] for p in container["ports"]}
            for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
                if probe in container:
                    check(f"{case}: {name} has the probe's port", container[probe]["httpGet"]["port"] in ports)
            for variable in container.get("env", []):
                check(
                    f"{case}: {variable['name']} is no secret",
                    "SECRET" not in variable["name"] or "value" not in variable,
                )
    for (kind, name), o in by.items():
        selector = {
            "Service": lambda o: o["spec"]["selector"],
            "PodDisruptionBudget": lambda o: o["spec"]["selector"]["matchLabels"],
            "NetworkPolicy": lambda o: o["spec"]["podSelector"]["matchLabels"],
            "InferencePool": lambda o: o["spec"]["selector"]["matchLabels"],
        }.get(kind)
        if selector:
            chosen = [n for n, pod in pods.items() if selector(o).items() <= pod["metadata"]["labels"].items()]
            check(f"{case}: {kind} {name} chooses one kind of pod", len(chosen) == 1, chosen)
    server = pods["weir"]["spec"]
    args = server["containers"][0]["args"]
    drain = next(int(a.partition("=")[2]) for a in args if a.startswith("--drain="))
    check(f"{case}: pods outlive --drain", server["terminationGracePeriodSeconds"] > drain)
    check(f"{case}: sessions are handed over", "--hand-over" in args)
    probes = server["containers"][0]
    check(
        f"{case}: liveness is not readiness", probes["livenessProbe"]["httpGet"] != probes["readinessProbe"]["httpGet"]
    )
    config = by.get(("ConfigMap", "weir-nginx"))
    if config:
        nginx_accepts(case, config["data"]["nginx.conf"])


def nginx_accepts(case, conf):
    """Debian's nginx knows no `resolve` of an upstream's server; names are made addresses, which it would look up."""
    if not shutil.which("nginx"):
        print(f"not checked: {case}: nginx.conf, as nginx is not installed")
        return
    conf = conf.replace(" resolve ", " ")
    conf = re.sub(r"server weir-(\d+)\.\S+:8080", lambda m: f"server 127.0.1.{m[1]}:8080", conf)
    conf = re.sub(r"resolver \S+", "resolver 127.0.0.1", conf)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nginx.conf"
        path.write_text(f"error_log {folder}/error.log;\n" + conf.replace("/tmp/", folder + "/"))
        ran = subprocess.run(["nginx", "-t", "-q", "-p", folder, "-c", str(path)], capture_output=True, text=True)
        check(f"{case}: nginx accepts its file", ran.returncode == 0, ran.stderr)


def main():
    with helm_python.Chart.load(CHART) as chart:
        if sys.argv[1:] == ["--write"]:
            PLAIN.write_text(plain(chart))
            return
        crds, unchecked, n_objects = definitions(), set(), 0
        for case, values in CASES.items():
            for version in VERSIONS:
                told = helm_python.lint(CHART, values, strict=True, kube_version=f"v{version}.0")
                bad = [m for m in told["messages"] if m["severity"] >= 2] + told["errors"]
                check(f"{case}: helm lint, {version}", not bad, bad)
            found = objects(rendered(chart, values))
            n_objects += len(found)
            unchecked |= schema_of(case, found, crds)
            sense_of(case, found)
        for what, values in REFUSED.items():
            try:
                chart.render(values, name="weir", namespace="default")
                check(f"{what} is refused", False)
            except helm_python.HelmError:
                pass
        check(
            "deploy/kubernetes.yaml is what the chart renders: deploy/helm/check.py --write",
            PLAIN.read_text() == plain(chart),
        )
        for kind in sorted(unchecked):
            print(f"not checked against a schema: {kind} (WEIR_CRDS names no definition of it)")
    print("WRONG" if n_wrong else f"ok    {len(CASES)} kinds of values, {n_objects} objects, {len(REFUSED)} refusals")
    sys.exit(1 if n_wrong else 0)


if __name__ == "__main__":
    main()
