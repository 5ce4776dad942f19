#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The list of what a build of Weir consists of, with versions, in CycloneDX 1.5 (JSON).

    tools/sbom.py [--build build/release] [--out weir.cdx.json]

Three sources: what CMake found when the build was configured (generated/dependencies.json), the shared libraries that
the finished program loads, with the system's packages that they are from, and the requirements of the Python package
and of tools/ (scope "excluded": nothing of these is in the program). The same build gives the same bytes.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Loaded by the kernel, not a file.
NO_FILES = ("linux-vdso", "linux-gate")


def answer(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


def component(name: str, version: str, scope: str, how: str, **more) -> dict:
    out = {"type": "library", "bom-ref": more.pop("purl", None) or f"{how}:{name}@{version}", "name": name}
    if version:
        out["version"] = version
    out["scope"] = scope
    if licence := more.pop("licence", ""):
        out["licenses"] = [{"license": {"id": licence}}]
    if out["bom-ref"].startswith("pkg:"):
        out["purl"] = out["bom-ref"]
    out["properties"] = [{"name": "weir:how", "value": how}]
    out["properties"] += [{"name": f"weir:{key}", "value": value} for key, value in more.items()]
    return out


def of_cmake(build: Path) -> tuple[dict, list[dict]]:
    path = build / "generated/dependencies.json"
    if not path.exists():
        sys.exit(f"sbom: error: there is no {path}: configure the build first (scripts/build)")
    told = json.loads(path.read_text())
    scope = {"linked": "required", "headers": "required", "tests": "excluded"}
    return told, [
        component(one["name"], one["version"], scope[one["how"]], one["how"], licence=one["licence"])
        for one in told["found"]
    ]


def packages_of(paths: list[str]) -> dict[str, tuple[str, str, str]]:
    """Debian's packages of files: name, version, architecture. A file without one is missing."""
    names = {name: path for path in paths for name in (path, str(Path(path).resolve()), "/usr" + path)}
    owners = {}
    for line in answer("dpkg-query", "-S", *names).splitlines():
        owner, _, name = line.rpartition(": ")
        owners[names.get(name, name)] = owner.split(",")[0].split(":")[0]
    told = answer("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}\n", *sorted(set(owners.values())))
    of = {line.split("\t")[0]: tuple(line.split("\t")) for line in told.splitlines()}
    return {path: of[owner] for path, owner in owners.items() if owner in of}


def of_program(program: Path) -> list[dict]:
    loaded = {}
    for line in answer("ldd", str(program)).splitlines():
        found = re.match(r"\s*(\S+)(?: => (\S+))? \(0x", line)
        if found and not found[1].startswith(NO_FILES):
            loaded[Path(found[1]).name] = found[2] or found[1]
    if not loaded:
        sys.exit(f"sbom: error: {program} loads nothing that ldd can name; is it there, and for this machine?")
    packages = packages_of(list(loaded.values()))
    out = {}
    for soname, path in loaded.items():
        name, version, architecture = packages.get(path, ("", "", ""))
        purl = f"pkg:deb/debian/{name}@{version}?arch={architecture}" if name else None
        one = out.setdefault(purl or soname, component(name or soname, version, "required", "loaded", purl=purl))
        one["properties"].append({"name": "weir:library", "value": soname})
    return list(out.values())


def of_python(path: Path, groups: dict[str, list[str]]) -> list[dict]:
    out = {}
    for group, requirements in groups.items():
        for text in requirements:
            name, condition = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*(.*)", text).groups()
            if name.startswith("weir"):
                continue
            version = condition.removeprefix("==") if condition.startswith("==") else ""
            purl = f"pkg:pypi/{name.lower().replace('_', '-')}" + (f"@{version}" if version else "")
            out.setdefault(
                purl, component(name, version, "excluded", "python", purl=purl, wanted=text, of=f"{path} {group}")
            )
    return list(out.values())


def python_requirements(root: Path) -> list[dict]:
    out = []
    for path in (Path("python/pyproject.toml"), Path("pyproject.toml")):
        told = tomllib.loads((root / path).read_text())["project"]
        out += of_python(path, {"dependencies": told["dependencies"], **told.get("optional-dependencies", {})})
    return list({one["bom-ref"]: one for one in out}.values())


def bom(build: Path) -> dict:
    told, found = of_cmake(build)
    root = f"pkg:generic/weir@{told['weir']}"
    components = found + of_program(build / "weir") + python_requirements(ROOT)
    ffmpeg = component(
        "ffmpeg", "", "optional", "started", reason="decodes pictures and video, in a process of its own"
    )
    components.append(ffmpeg)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": "weir",
                "version": told["weir"],
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": root,
                "properties": [{"name": "weir:compiler", "value": told["compiler"]}],
            }
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": [c["bom-ref"] for c in components if c["scope"] != "excluded"]}],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--out", type=Path, help="default: standard output")
    args = parser.parse_args()
    text = json.dumps(bom(args.build), indent=2) + "\n"
    if args.out:
        args.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
