#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls that real chat templates write are read back by src/text/dialects.

    python3 tools/golden/dialects.py DIR PROGRAM

For every DIR/*.jinja Python's jinja2 renders an assistant's message with calls of tools; PROGRAM
(build/PRESET/tests/read_answer) takes the rendered answer apart, byte by byte. Prints a line for each template: its
dialect, and what came back as it was sent. Exits with 1 if a template of a dialect other than "generic" shows calls
that do not come back.

Needs: jinja2. Run from the repository root.
"""

import json
import pathlib
import subprocess
import sys

import jinja

ENDS = """
<|im_end|> </s> <|eot_id|> <|eom_id|> <|end_of_text|> <｜end▁of▁sentence｜> <|END_OF_TURN_TOKEN|> <seed:eos> [e~[
<|call|> <turn|> <|tool_response> <end_of_sentence> <SPECIAL_12> <|role_end|> </assistant> <sep> <|user|>
<end_of_turn> <|end|>
""".split()
PROPERTIES = {"city": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": "string"}}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "A sample.",
            "parameters": {"type": "object", "properties": PROPERTIES, "required": ["city"]},
        },
    }
    for name in ("get_weather", "get_time")
]
CASES = [
    ("", [("get_weather", {"city": "Paris", "days": 2})]),
    ("", [("get_time", {"city": "São Paulo", "note": 'two\n"lines", {braces}'})]),
    ("Let me see.", [("get_weather", {"city": "Paris"})]),
    ("", [("get_weather", {"city": "Paris"}), ("get_time", {"city": "Rome", "days": -1})]),
]


def rendered(template, messages, generation):
    return template.render(
        messages=messages,
        tools=TOOLS,
        add_generation_prompt=generation,
        bos_token="<s>",
        eos_token="</s>",
        documents=None,
    )


def answer_of(template, content, calls, as_text):
    """The answer's text, and whether the prompt has begun thoughts; None where the template shows no calls."""
    user = [{"role": "user", "content": "How is it?"}]
    shown = [
        {
            "type": "function",
            "id": f"call0000{i}",
            "function": {"name": name, "arguments": json.dumps(arguments) if as_text else arguments},
        }
        for i, (name, arguments) in enumerate(calls)
    ]
    prompt = rendered(template, user, True)
    whole = rendered(template, user + [{"role": "assistant", "content": content, "tool_calls": shown}], False)
    at = 0
    while at < min(len(prompt), len(whole)) and prompt[at] == whole[at]:
        at += 1
    if at < len(prompt):  # not in the middle of a marker
        begin = max(prompt.rfind(c, 0, at) for c in "<[")
        if begin >= 0 and not any(c in prompt[begin:at] for c in ">]\n"):
            at = begin
    text = whole[at:]
    cuts = [text.find(end) for end in ENDS if end in text and not (end == "<|end|>" and "<|channel|>" in text)]
    text = text[: min(cuts)] if cuts else text
    opened = prompt[:at].rstrip().endswith(("<think>", "[THINK]", "<|START_THINKING|>"))
    if not all(name in text for name, _ in calls):
        return None
    return text, opened


def main():
    folder, program = sys.argv[1:]
    environment = jinja.environment()
    reader = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    n_wrong = 0
    for path in sorted(pathlib.Path(folder).glob("*.jinja")):
        source = path.read_text()
        template = environment.from_string(source)
        same = shown = 0
        dialect, wrong = "?", ""
        for content, calls in CASES:
            answer = None
            for as_text in (False, True):
                try:
                    answer = answer_of(template, content, calls, as_text)
                    break
                except Exception:  # a template's own refusal
                    continue
            if answer is None:
                continue
            shown += 1
            request = {"template": source, "text": answer[0], "tools": TOOLS, "in_thoughts": answer[1]}
            reader.stdin.write(json.dumps(request) + "\n")
            reader.stdin.flush()
            read = json.loads(reader.stdout.readline())
            dialect = read["dialect"]
            try:
                back = [(c["name"], json.loads(c["arguments"])) for c in read["calls"]]
            except ValueError:
                back = None
            if back == calls:
                same += 1
            elif not wrong:
                wrong = f"\n    {answer[0]!r}\n    {read!r}"
        n_wrong += same < shown and dialect != "generic"
        print(f"{path.stem:60} {dialect:14} {same}/{shown}" + (wrong if dialect != "generic" else ""))
    reader.stdin.close()
    print(f"{n_wrong} templates with calls that do not come back")
    return n_wrong > 0


if __name__ == "__main__":
    sys.exit(main())
