#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Made questions that tools answer, in the manner of the Berkeley Function-Calling Leaderboard's kinds of cases.

    tools/load/tool_cases.py PROGRAM MODEL [-n 200] [--choice auto|required|named] [-- SERVER_FLAGS]

Starts `weir serve` and asks each question once, greedily. Of the kinds below each is asked equally often: one tool that
fits among eight (simple), two calls at once (parallel), an object within the arguments (nested), a value from a list
(enum), a list of values (array), and questions that no tool answers (irrelevant, with `auto` only). Prints for each
kind how many answers call a tool, how many of these consist of well-formed calls (offered tools, arguments under their
schemas), how many were cut short by their length, and how many are right: just the expected calls, or none (texts are
compared without case). Exits with 1 if a call of an answer that was not cut short is not well-formed.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import urllib.request

# Small models repeat themselves for as long as they may.
STRING, INTEGER, NUMBER = {"type": "string", "maxLength": 40}, {"type": "integer"}, {"type": "number"}


def schema(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


COLOURS = ["red", "green", "blue", "white"]
# name: description, parameters
TOOLS = {
    "get_weather": ("Says the weather of a city.", schema(city=STRING)),
    "get_time": ("Says the time in a city.", schema(city=STRING)),
    "add": ("Adds two whole numbers.", schema(a=INTEGER, b=INTEGER)),
    "book_table": ("Books a table in a restaurant.", schema(restaurant=STRING, people=INTEGER)),
    "play_music": ("Plays a song.", schema(song=STRING)),
    "set_temperature": ("Sets the temperature of a room in degrees.", schema(room=STRING, degrees=NUMBER)),
    "set_light": (
        "Sets the colour of a room's light.",
        schema(room=STRING, colour={"type": "string", "enum": COLOURS}),
    ),
    "add_to_list": (
        "Adds things to the shopping list.",
        schema(things={"type": "array", "items": STRING, "maxItems": 5}),
    ),
    "add_event": (
        "Adds an event to the calendar.",
        schema(title=STRING, start=schema(day=STRING, hour=INTEGER)),
    ),
}
VALUES = {
    "city": ["Paris", "Rome", "Oslo", "Lima", "Cairo", "Tokyo", "Madrid", "Vienna", "Boston", "Dublin"],
    "int": list(range(2, 90)),
    "small": list(range(2, 9)),
    "place": ["Luigi's", "The Anchor", "Blue Door", "Casa Verde", "Old Mill"],
    "song": ["Yesterday", "Hey Jude", "Imagine", "Thriller", "Hallelujah"],
    "room": ["kitchen", "bedroom", "bathroom", "office", "garage"],
    "degree": list(range(16, 26)),
    "colour": COLOURS,
    "thing": ["milk", "bread", "eggs", "rice", "apples", "tea"],
    "title": ["Dentist", "Lunch", "Meeting", "Yoga", "Haircut"],
    "day": ["Monday", "Tuesday", "Friday", "Sunday"],
    "hour": list(range(8, 20)),
}


def simple(pick):
    which = pick([0, 1, 2, 3, 4, 5])
    if which == 0:
        city = pick(VALUES["city"])
        return f"How is the weather in {city}?", [("get_weather", {"city": city})]
    if which == 1:
        city = pick(VALUES["city"])
        return f"What time is it in {city}?", [("get_time", {"city": city})]
    if which == 2:
        a, b = pick(VALUES["int"]), pick(VALUES["int"])
        return f"What is {a} plus {b}?", [("add", {"a": a, "b": b})]
    if which == 3:
        place, people = pick(VALUES["place"]), pick(VALUES["small"])
        return f"Book a table for {people} people at {place}.", [
            ("book_table", {"restaurant": place, "people": people})
        ]
    if which == 4:
        song = pick(VALUES["song"])
        return f"Play the song {song}.", [("play_music", {"song": song})]
    room, degrees = pick(VALUES["room"]), pick(VALUES["degree"])
    return f"Set the {room} to {degrees} degrees.", [("set_temperature", {"room": room, "degrees": degrees})]


def parallel(pick):
    one = pick(VALUES["city"])
    other = pick([city for city in VALUES["city"] if city != one])
    return f"How is the weather in {one}, and how is it in {other}?", [
        ("get_weather", {"city": one}),
        ("get_weather", {"city": other}),
    ]


def nested(pick):
    title, day, hour = pick(VALUES["title"]), pick(VALUES["day"]), pick(VALUES["hour"])
    return f"Add the event {title} on {day} at {hour} o'clock to my calendar.", [
        ("add_event", {"title": title, "start": {"day": day, "hour": hour}})
    ]


def enum(pick):
    room, colour = pick(VALUES["room"]), pick(VALUES["colour"])
    return f"Make the light in the {room} {colour}.", [("set_light", {"room": room, "colour": colour})]


def array(pick):
    one = pick(VALUES["thing"])
    other = pick([thing for thing in VALUES["thing"] if thing != one])
    return f"Put {one} and {other} on the shopping list.", [("add_to_list", {"things": [one, other]})]


def irrelevant(pick):
    word = pick(["house", "river", "window", "friend", "tree"])
    return f"Write one sentence about a {word}.", []


KINDS = [simple, parallel, nested, enum, array, irrelevant]


def offered():
    return [
        {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
        for name, (description, parameters) in TOOLS.items()
    ]


def fits(value, schema):
    kind = schema["type"]
    if kind == "object":
        keys = schema["properties"]
        return (
            isinstance(value, dict) and value.keys() == keys.keys() and all(fits(value[key], keys[key]) for key in keys)
        )
    if kind == "array":
        return (
            isinstance(value, list)
            and len(value) <= schema["maxItems"]
            and all(fits(one, schema["items"]) for one in value)
        )
    if kind == "string":
        return isinstance(value, str) and value in schema.get("enum", [value]) and len(value) <= 40
    return isinstance(value, int if kind == "integer" else (int, float)) and not isinstance(value, bool)


def plain(value):
    """The value with which another one is compared."""
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.lower() if isinstance(value, str) else value


def judge(message, want):
    """(calls a tool, its calls are well-formed, they are the expected ones)"""
    calls, formed = [], True
    for call in message.get("tool_calls") or []:
        name = call["function"]["name"]
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            arguments = None
        formed = formed and name in TOOLS and fits(arguments, TOOLS[name][1])
        calls.append([name, plain(arguments)])
    expected = [[name, plain(arguments)] for name, arguments in want]

    def order(call):
        return json.dumps(call, sort_keys=True)

    return bool(calls), formed, formed and sorted(calls, key=order) == sorted(expected, key=order)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("-n", type=int, default=200)
    parser.add_argument("--choice", default="auto", choices=["auto", "required", "named"], help="tool_choice")
    parser.add_argument("--max-tokens", type=int, default=300)
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    args, flags = parser.parse_args(given[:end]), given[end + 1 :]
    server = subprocess.Popen(
        [args.program, "serve", "-m", args.model, "--port", "0", "--pot", "2048"] + flags,
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
    kinds = KINDS if args.choice == "auto" else KINDS[:-1]
    rng = random.Random(1)
    counts = {kind.__name__: [0] * 5 for kind in kinds}
    broken = 0
    try:
        for i in range(args.n):
            kind = kinds[i % len(kinds)]
            question, want = kind(rng.choice)
            choice = args.choice
            if choice == "named":
                choice = {"type": "function", "function": {"name": want[0][0]}}
            body = {
                "messages": [{"role": "user", "content": question}],
                "tools": offered(),
                "tool_choice": choice,
                "parallel_tool_calls": kind is parallel,
                "temperature": 0,
                "max_tokens": args.max_tokens,
            }
            request = urllib.request.Request(
                url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                answered = json.load(answer)["choices"][0]
            called, formed, right = judge(answered["message"], want)
            cut = answered["finish_reason"] == "length"
            if not formed and not cut:
                broken += 1
                print("not well-formed:", json.dumps(answered["message"]), flush=True)
            row = counts[kind.__name__]
            for at, holds in enumerate((True, called, called and formed, called and cut, right)):
                row[at] += holds
            if (i + 1) % 20 == 0:
                print(f"{i + 1}: " + "  ".join(f"{name} {row}" for name, row in counts.items()), flush=True)
    finally:
        server.kill()
    print("| kind | asked | called | well-formed | cut short | right |\n|---|---|---|---|---|---|")
    counts["all"] = [sum(column) for column in zip(*counts.values())]
    for name, row in counts.items():
        print(f"| {name} | " + " | ".join(map(str, row)) + " |")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
