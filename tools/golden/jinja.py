#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Python's jinja2 as the oracle of src/text/jinja.

    python3 tools/golden/jinja.py                          writes tests/golden/jinja/cases.json, and the texts in
                                                           expressions.json: to add one, write [TEMPLATE, null]
    python3 tools/golden/jinja.py --real DIR PROGRAM       every DIR/*.jinja with generated conversations
    python3 tools/golden/jinja.py --random N PROGRAM       N small random templates; --seed S

PROGRAM is build/PRESET/tests/jinja_render: it reads {"template", "context"} a line and answers {"text"} or {"error"}.
Both modes print what differs and exit with 1 then. The environment is the one that Hugging Face's transformers makes.

Needs: jinja2. Run from the repository root.
"""

import argparse
import functools
import json
import pathlib
import random
import subprocess
import sys
from datetime import datetime

import jinja2
import jinja2.ext
import jinja2.sandbox
from jinja_random import Maker
from jinja_templates import CASES

NOW = datetime(2026, 11, 22, 21, 4, 5)  # a Sunday; tests/jinja_render.cc has the same


class Generation(jinja2.ext.Extension):
    """{% generation %}: just its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class PlainNamespace(jinja2.utils.Namespace):
    """Refuses names that begin with an underscore."""

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            PlainNamespace._check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        PlainNamespace._check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def _check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda text: NOW.strftime(text)
    env.globals["namespace"] = PlainNamespace
    return env


ENV = environment()


@functools.lru_cache(maxsize=16)
def compiled(template):
    return ENV.from_string(template)


def render(template, context):
    """The text, or None when jinja2 refuses."""
    try:
        return compiled(template).render(**context)
    except Exception:
        return None


class Program:
    def __init__(self, path):
        self.child = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def render(self, template, context):
        self.child.stdin.write(json.dumps({"template": template, "context": context}, ensure_ascii=False) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            sys.exit(f"{self.child.args[0]} ended at: {template!r} {context!r}")
        return json.loads(line)


def conversations(rng, n):
    """Contexts as a request makes them: of one to six turns, some with tools, thoughts and arguments."""
    words = [
        "Hi!",
        "  two  words ",
        "línea\nnueva\n",
        "<|im_end|>",
        "",
        "a 'q' \"d\" \\",
        "日本語",
        "<think>x</think>\n\ny",
        "7",
    ]
    parameters = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where?"},
            "days": {"type": ["integer", "null"], "enum": [1, 2]},
            "list": {"type": "array", "items": {"type": "number"}},
        },
        "required": ["city"],
    }
    tools = [
        {
            "type": "function",
            "function": {"name": "weather", "description": "Tells the weather <b>&", "parameters": parameters},
        },
        {
            "type": "function",
            "function": {"name": "now", "description": "Time", "parameters": {"type": "object", "properties": {}}},
        },
    ]
    out = []
    for _ in range(n):
        messages = []
        if rng.random() < 0.5:
            messages.append({"role": "system", "content": rng.choice(words)})
        calls = 0
        for turn in range(rng.randint(1, 3)):
            content = rng.choice(words)
            if rng.random() < 0.15:
                content = [{"type": "text", "text": content}]
            messages.append({"role": "user", "content": content})
            if rng.random() < 0.3:
                calls += 1
                arguments = {"city": rng.choice(words), "days": 2}
                call = {
                    "type": "function",
                    "id": f"call{calls:05d}",
                    "function": {"name": "weather", "arguments": arguments},
                }
                if rng.random() < 0.2:
                    call["function"]["arguments"] = json.dumps(arguments)
                message = {"role": "assistant", "content": rng.choice(["", None, "Well."]), "tool_calls": [call]}
                if rng.random() < 0.3:
                    message["reasoning_content"] = "thoughts"
                messages.append(message)
                messages.append(
                    {"role": "tool", "tool_call_id": call["id"], "name": "weather", "content": rng.choice(words)}
                )
                if rng.random() < 0.3:
                    continue
            if turn < 2 or rng.random() < 0.5:
                answer = {"role": "assistant", "content": rng.choice(words)}
                if rng.random() < 0.3:
                    answer["reasoning_content"] = "so\nso"
                messages.append(answer)
        context = {
            "messages": messages,
            "tools": tools if rng.random() < 0.5 else None,
            "documents": None,
            "add_generation_prompt": rng.random() < 0.7,
            "bos_token": "<s>",
            "eos_token": "</s>",
        }
        for name, values in (
            ("enable_thinking", [True, False]),
            ("thinking", [True, False]),
            ("reasoning_effort", ["low", "high"]),
            ("date_string", ["26 Jul 2024"]),
        ):
            if rng.random() < 0.25:
                context[name] = rng.choice(values)
        out.append(context)
    return out


def compare(program, template, context, name, counts):
    want, got = render(template, context), program.render(template, context)
    kind = "text" if want is not None else "refused"
    counts[kind] = counts.get(kind, 0) + 1
    if got.get("text") == want:
        return True
    counts["differ"] = counts.get("differ", 0) + 1
    if counts["differ"] <= 20:
        print(f"{name}:\n  context {json.dumps(context, ensure_ascii=False)[:600]}\n  jinja2 {want!r}\n  ours   {got}")
        if want is None:
            try:
                ENV.from_string(template).render(**context)
            except Exception as error:
                print("  because", type(error).__name__, error)
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", nargs=2, metavar=("DIR", "PROGRAM"))
    parser.add_argument("--random", nargs=2, metavar=("N", "PROGRAM"))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    counts = {}
    if args.real:
        program = Program(args.real[1])
        for path in sorted(pathlib.Path(args.real[0]).glob("*.jinja")):
            text = path.read_text(encoding="utf-8")
            before = counts.get("differ", 0)
            rendered = 0
            for context in conversations(random.Random(args.seed), 50):
                compare(program, text, context, path.name, counts)
                rendered += render(text, context) is not None
            differ = counts.get("differ", 0) - before
            print(f"{path.name}: {50 - differ} of 50 equal, {rendered} of them texts")
    elif args.random:
        program, maker = Program(args.random[1]), Maker(args.seed)
        for i in range(int(args.random[0])):
            template, context = maker.case()
            if not compare(program, template, context, f"case {i}: {template!r}", counts) and counts["differ"] > 50:
                break
    else:
        out = []
        for name, template in CASES:
            contexts = conversations(random.Random(name), 6)
            cases = [{"context": c, "text": render(template, c)} for c in contexts]
            out.append({"name": name, "template": template, "cases": cases})
        path = pathlib.Path("tests/golden/jinja/cases.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
        print(path, path.stat().st_size, "bytes")
        path = path.with_name("expressions.json")
        texts = [[template, render(template, {})] for template, _ in json.loads(path.read_text(encoding="utf-8"))]
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in texts)
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
        print(path, path.stat().st_size, "bytes")
        return 0
    print(counts)
    return 1 if counts.get("differ") else 0


if __name__ == "__main__":
    sys.exit(main())
