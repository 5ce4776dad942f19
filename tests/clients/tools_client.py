#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official `openai` client calls tools: whole and streamed, several at once, with results and thoughts.

    tests/clients/tools_client.py PROGRAM

The model is made here and says what the test needs. Needs the Python packages `openai`, `gguf` and `numpy`; exits with
77 (skipped) where one is missing. Exits with 1 and says what was wrong.
"""

import json
import os
import sys
import tempfile

from server import Server, skip

try:
    import openai
    import pydantic
    import scripted_model
except ImportError as missing:
    skip(str(missing))

JINJA = (
    "{# <tool_call> </tool_call> <think> </think> #}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "({{ c.function.name }} {{ c.function.arguments.city }} {{ c.id }}){% endfor %};{% endfor %}"
    ">{{ messages[-1].content }}"
)
SCRIPTS = {
    "1": [
        "<think>\nTwo cities.\n</think>\n\n",
        "Let me see.\n",
        "!<tool_call>",
        '\n{"name": "get_weather", "arguments": {"city": "Pa',
        'ris"}}\n',
        "!</tool_call>",
        '\n<tool_call>\n{"name": "get_weather", "arguments": {"ci',
        'ty": "Rome"}}\n</tool_call>',
    ],
    "2": ["<think>\nBoth ", "are warm.\n</think>\n\n", "It is warm in Paris ", "and in Rome."],
    "3": ['<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os', 'lo"}}', "\n</tool_call>"],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Says the weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def check(what, holds, shown=""):
    print(("ok    " if holds else "WRONG ") + what + (f": {shown!r}" if not holds else ""))
    if not holds:
        raise SystemExit(1)


def talk(client, model):
    ask = dict(model=model, temperature=0, max_tokens=64, tools=TOOLS)
    messages = [{"role": "user", "content": "Is it warm in Paris and Rome? 1"}]
    choice = client.chat.completions.create(messages=messages, **ask).choices[0]
    calls = choice.message.tool_calls
    check("the answer ends with its calls", choice.finish_reason == "tool_calls", choice)
    check("the calls are parsed", [json.loads(c.function.arguments)["city"] for c in calls] == ["Paris", "Rome"], calls)
    check("each has an id of its own", len({c.id for c in calls}) == 2, calls)
    check("words before them are content", choice.message.content == "Let me see.", choice)
    check("thoughts are apart", choice.message.reasoning_content == "Two cities.", choice)

    content, thoughts, streamed, finish = "", "", [], None
    usage = None
    for chunk in client.chat.completions.create(
        messages=messages, stream=True, stream_options={"include_usage": True}, **ask
    ):
        usage = chunk.usage or usage
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        finish = chunk.choices[0].finish_reason or finish
        content += delta.content or ""
        thoughts += getattr(delta, "reasoning_content", None) or ""
        for call in delta.tool_calls or []:
            if call.id:
                check("a call's first delta has its place and name", call.index == len(streamed), chunk)
                streamed.append([call.function.name, ""])
            streamed[call.index][1] += call.function.arguments or ""
    check("streamed it says the same", (content, thoughts) == ("Let me see.", "Two cities."), (content, thoughts))
    check("and calls the same", streamed == [[c.function.name, c.function.arguments] for c in calls], streamed)
    check("and ends the same, with its usage", finish == "tool_calls" and usage.completion_tokens > 0, (finish, usage))

    one = client.chat.completions.create(messages=messages, parallel_tool_calls=False, **ask).choices[0]
    check("one call if only one is wanted", len(one.message.tool_calls) == 1, one)

    with_stream = client.chat.completions.stream(messages=messages, **ask)
    with with_stream as stream:
        final = stream.get_final_completion()
    check("the client's own collector agrees", len(final.choices[0].message.tool_calls) == 2, final)

    messages.append(choice.message)  # as the client's documentation does
    for call in calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "20 degrees, code 2"})
    last = client.chat.completions.create(messages=messages, **ask).choices[0]
    check("results are answered", last.message.content == "It is warm in Paris and in Rome.", last)
    check("without further calls", last.message.tool_calls is None and last.finish_reason == "stop", last)

    must = [{"role": "user", "content": "Is it warm in Oslo? 3"}]
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        called = client.chat.completions.create(messages=must, tool_choice=choice, **ask).choices[0]
        calls = called.message.tool_calls
        check(f"a call that must be made ({choice})", called.finish_reason == "tool_calls" and len(calls) == 1, called)
        check("with its arguments", json.loads(calls[0].function.arguments) == {"city": "Oslo"}, calls)

    class Weather(pydantic.BaseModel):
        """Says the weather."""

        city: str

    tool = openai.pydantic_function_tool(Weather, name="get_weather")
    check("the client's own tools are strict", tool["function"]["strict"], tool)
    parsed = client.chat.completions.parse(messages=must, **{**ask, "tools": [tool]}).choices[0]
    weather = parsed.message.tool_calls[0].function.parsed_arguments
    check("a strict call is parsed by the client", weather == Weather(city="Oslo"), parsed)

    try:
        client.chat.completions.create(messages=messages, tool_choice="sometimes", **ask)
    except openai.BadRequestError as error:
        check("a wrong choice is refused by name", error.body["param"] == "tool_choice", error.body)
    else:
        check("a wrong choice is refused", False)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "scripted.gguf")
        scripted_model.write(path, SCRIPTS, JINJA)
        with Server(sys.argv[1], path, ["--pot", "2048"]) as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=300)
            talk(client, client.models.list().data[0].id)


if __name__ == "__main__":
    main()
