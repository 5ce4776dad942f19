#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Made questions that one tool answers, in the manner of the Berkeley Function-Calling Leaderboard's simple cases.

    tools/load/tool_cases.py PROGRAM MODEL [-n 200] [-- SERVER_FLAGS]

Starts `weir serve` and asks each question once, greedily, with the same eight tools. Prints how many answers call a
tool, how many of all answers are one well-formed call (an offered tool, arguments that fit its schema), and how many
are right (the expected tool with the expected arguments; texts are compared without case).
"""

import argparse
import json
import random
import re
import subprocess
import sys
import urllib.request

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}

# name, description, parameters, question, values of each parameter
TOOLS = [
    ("get_weather", "Says the weather of a city.", {"city": STRING}, "How is the weather in {city}?", {"city": "city"}),
    ("get_time", "Says the time in a city.", {"city": STRING}, "What time is it in {city}?", {"city": "city"}),
    ("add", "Adds two whole numbers.", {"a": INTEGER, "b": INTEGER}, "What is {a} plus {b}?", {"a": "int", "b": "int"}),
    (
        "multiply",
        "Multiplies two whole numbers.",
        {"a": INTEGER, "b": INTEGER},
        "What is {a} times {b}?",
        {"a": "int", "b": "int"},
    ),
    (
        "book_table",
        "Books a table in a restaurant.",
        {"restaurant": STRING, "people": INTEGER},
        "Book a table for {people} people at {restaurant}.",
        {"restaurant": "place", "people": "small"},
    ),
    ("play_music", "Plays a song.", {"song": STRING}, "Play the song {song}.", {"song": "song"}),
    (
        "set_temperature",
        "Sets the temperature of a room in degrees.",
        {"room": STRING, "degrees": NUMBER},
        "Set the {room} to {degrees} degrees.",
        {"room": "room", "degrees": "degree"},
    ),
    ("translate", "Translates a word.", {"word": STRING, "language": STRING},
     "Translate the word {word} into {language}.", {"word": "word", "language": "language"}),
]  # fmt: skip
VALUES = {
    "city": ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Tokyo", "Madrid", "Vienna", "Boston", "Dublin"],
    "int": list(range(2, 90)),
    "small": list(range(2, 9)),
    "place": ["Luigi's", "The Anchor", "Blue Door", "Casa Verde", "Old Mill"],
    "song": ["Yesterday", "Hey Jude", "Imagine", "Thriller", "Hallelujah"],
    "room": ["kitchen", "bedroom", "bathroom", "office", "garage"],
    "degree": list(range(16, 26)),
    "word": ["house", "river", "bread", "window", "friend"],
    "language": ["French", "German", "Spanish", "Italian", "Polish"],
}


def offered():
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": description,
                "parameters": {"type": "object", "properties": parameters, "required": list(parameters)},
            },
        }
        for name, description, parameters, _, _ in TOOLS
    ]


def fits(value, schema):
    if schema is STRING:
        return isinstance(value, str)
    return isinstance(value, int if schema is INTEGER else (int, float)) and not isinstance(value, bool)


def judge(message, name, want):
    """(calls a tool, one well-formed call, the right one)"""
    calls = message.get("tool_calls") or []
    if len(calls) != 1:
        return bool(calls), False, False
    called = {tool[0]: tool[2] for tool in TOOLS}.get(calls[0]["function"]["name"])
    try:
        arguments = json.loads(calls[0]["function"]["arguments"])
    except ValueError:
        return True, False, False
    formed = (
        called is not None
        and isinstance(arguments, dict)
        and arguments.keys() == called.keys()
        and all(fits(value, called[key]) for key, value in arguments.items())
    )
    same = formed and calls[0]["function"]["name"] == name
    right = same and all(str(arguments[key]).lower() == str(value).lower() for key, value in want.items())
    return True, formed, right


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("-n", type=int, default=200)
    parser.add_argument("--choice", default="auto", help="tool_choice")
    parser.add_argument("flags", nargs="*")
    args = parser.parse_args()
    server = subprocess.Popen(
        [args.program, "serve", "-m", args.model, "--port", "0", "--pot", "2048"] + args.flags,
        stderr=subprocess.PIPE,
        text=True,
    )
    said, url = "", None
    for line in server.stderr:
        said += line
        if found := re.search(r"http://\S+:\d+", line):
            url = found[0]
            break
    if url is None:
        sys.exit("the server does not serve:\n" + said)
    rng = random.Random(1)
    n_called = n_formed = n_right = 0
    try:
        for i in range(args.n):
            name, _, _, question, kinds = TOOLS[i % len(TOOLS)]
            want = {key: rng.choice(VALUES[kind]) for key, kind in kinds.items()}
            body = {
                "messages": [{"role": "user", "content": question.format(**want)}],
                "tools": offered(),
                "tool_choice": args.choice,
                "parallel_tool_calls": False,
                "temperature": 0,
                "max_tokens": 80,
            }
            request = urllib.request.Request(
                url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                message = json.load(answer)["choices"][0]["message"]
            called, formed, right = judge(message, name, want)
            n_called, n_formed, n_right = n_called + called, n_formed + formed, n_right + right
            if i < 3 or (i + 1) % 50 == 0:
                print(f"{i + 1}: called {n_called}, well-formed {n_formed}, right {n_right}", flush=True)
    finally:
        server.kill()
    print(f"n {args.n}  called {n_called}  well-formed {n_formed}  right {n_right}")


if __name__ == "__main__":
    main()
