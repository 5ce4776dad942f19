#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests as Frigate (its providers for OpenAI, llama.cpp and Ollama) and Home Assistant (its integrations of Ollama
and OpenAI) send them, against the real server: what they read of an answer must be there. Needs no packages.

    tests/clients/home_client.py PROGRAM MODEL MMPROJ
"""

import base64
import json
import struct
import sys
import urllib.error
import urllib.request
import zlib

from server import Server

REVIEW = {
    "type": "object",
    "title": "ReviewMetadata",
    "properties": {
        "title": {"type": "string", "description": "A short title", "maxLength": 20, "title": "Title"},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1, "title": "Confidence"},
        "potential_threat_level": {"type": "integer", "minimum": 0, "maximum": 2},
        "other_concerns": {
            "anyOf": [{"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 2}, {"type": "null"}],
            "default": None,
        },
    },
    "required": ["title", "confidence", "potential_threat_level"],
    "additionalProperties": False,
}
SWITCH = {
    "type": "function",
    "function": {
        "name": "HassTurnOn",
        "description": "Turns on a device or entity",
        "parameters": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "area": {"type": "string"},
                "domain": {"type": "array", "items": {"type": "string"}},
            },
            "required": [],
        },
    },
}


def check(what, holds, shown=""):
    print(("ok    " if holds else "WRONG ") + what + (f": {shown!r}" if not holds else ""))
    if not holds:
        raise SystemExit(1)


def picture(colour=(200, 40, 40), width=32, height=24):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes(colour) * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(png).decode()


class Client:
    def __init__(self, url):
        self.url = url

    def open(self, path, body=None):
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": "Bearer none"},
        )
        try:
            return urllib.request.urlopen(request, timeout=120)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"WRONG {path} answers {error.code}: {error.read().decode()}") from error

    def refused(self, path, body):
        request = urllib.request.Request(self.url + path, data=json.dumps(body).encode())
        try:
            urllib.request.urlopen(request, timeout=120)
        except urllib.error.HTTPError as error:
            return error.read().decode()
        raise SystemExit(f"WRONG {path} is not refused")

    def json(self, path, body=None):
        with self.open(path, body) as answer:
            return json.load(answer)

    def lines(self, path, body):
        with self.open(path, body) as answer:
            return [json.loads(line) for line in answer if line.strip()]

    def events(self, path, body):
        with self.open(path, body) as answer:
            data = [line[6:].decode() for line in answer if line.startswith(b"data: ")]
        return [json.loads(one) for one in data if one.strip() != "[DONE]"]


def frigate(client, model):
    entry = next(one for one in client.json("/v1/models")["data"] if one["id"] == model)
    check("the model's entry says that it sees", "image" in entry["architecture"]["input_modalities"], entry)
    check("and how long its context is", entry["meta"]["n_ctx"] > 0 and entry["max_model_len"] > 0, entry)
    props = client.json("/props?model=" + model)
    check("so do the properties", props["modalities"]["vision"] is True, props)
    check("with the context", props["default_generation_settings"]["n_ctx"] > 0, props)
    check("the template", "chat_template" in props and "chat_template_caps" in props, list(props))

    parts = [{"type": "text", "text": "What is seen?"}, {"type": "text", "text": "Front door, 12:01"}]
    parts.append({"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + picture(), "detail": "low"}})
    form = {"type": "json_schema", "json_schema": {"name": "review_metadata", "strict": True, "schema": REVIEW}}
    body = {"model": model, "messages": [{"role": "user", "content": parts}], "response_format": form}
    answer = client.json("/v1/chat/completions", {**body, "chat_template_kwargs": {"enable_thinking": False}})
    review = json.loads(answer["choices"][0]["message"]["content"])
    check("a review has the form", {"title", "confidence", "potential_threat_level"} <= set(review), review)
    old = [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + picture()}}, "What is seen?"]
    body = {"model": model, "messages": [{"role": "user", "content": old}], "max_tokens": 4}
    check("an older one's bare text is read", client.json("/v1/chat/completions", body)["choices"], "")

    one = {"model": model, "messages": [{"role": "user", "content": parts[:1]}], "max_tokens": 1}
    two = {**one, "messages": [{"role": "user", "content": parts[:1] + parts[2:]}]}
    tokens = [client.json("/v1/chat/completions", body)["usage"]["prompt_tokens"] for body in (one, two)]
    check("a picture's tokens can be counted", tokens[1] > tokens[0], tokens)

    told = [{"role": "user", "content": "Turn on the light."}]
    body = {"model": model, "messages": told, "tools": [SWITCH], "tool_choice": "auto", "max_tokens": 12}
    message = client.json("/v1/chat/completions", body)["choices"][0]
    check("tools may be offered", message["finish_reason"] in ("stop", "length", "tool_calls"), message)
    body = {"model": model, "messages": told, "max_tokens": 12, "ignore_eos": True, "timings_per_token": True}
    body |= {"stream": True, "stream_options": {"include_usage": True}}
    chunks = client.events("/v1/chat/completions", body)
    said = [one for one in chunks if one["choices"] and one["choices"][0]["delta"].get("content")]
    counts = [one.get("timings", {}).get("predicted_n", 0) for one in said]
    check("a stream counts as it goes", counts and counts[0] > 0 and counts == sorted(counts), chunks)
    check("and at its end", chunks[-1]["usage"]["completion_tokens"] > 0, chunks[-1])

    content = [{"prompt_string": "a red door"}, {"prompt_string": "two"}]
    vectors = client.json("/embeddings", {"model": model, "content": content})
    check("texts have embeddings", len(vectors.get("data", vectors)) == 2, vectors)
    content[1] = {"prompt_string": "<__media__>\n", "multimodal_data": [picture()]}
    said = client.refused("/embeddings", {"model": model, "content": content})
    check("pictures have none, which is said", "content[1]" in said, said)


def frigate_ollama(client, model):
    show = client.json("/api/show", {"model": model})
    check("what the model can do is shown", "vision" in show["capabilities"], show.get("capabilities"))
    body = {
        "model": model,
        "messages": [{"role": "user", "content": "Describe:\nfirst\n[img]\nsecond\n[img]", "images": [picture()] * 2}],
        "options": {"temperature": 0.5, "repeat_penalty": 1.05, "presence_penalty": 0.3, "num_ctx": 4096},
        "format": REVIEW,
        "stream": False,
        "think": False,
    }
    answer = client.json("/api/chat", body)
    check("a review has the form", "title" in json.loads(answer["message"]["content"]), answer)
    check("and is counted", answer["eval_count"] > 0 and answer["prompt_eval_count"] > 0, answer)
    # Two places and three pictures: the third has none and comes first.
    colours = [picture(), picture((20, 200, 60)), picture((10, 30, 250))]
    body["messages"] = [{"role": "user", "content": "first [img] second [img] What is seen?", "images": colours}]
    body |= {"options": {"temperature": 0, "num_predict": 24}, "format": None}
    said = client.json("/api/chat", body)["message"]["content"]

    def show(i):
        return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + colours[i]}}

    def say(text):
        return {"type": "text", "text": text}

    def chat(parts):
        body = {"model": model, "messages": [{"role": "user", "content": parts}], "max_tokens": 24, "temperature": 0}
        body |= {"logprobs": True}
        choice = client.json("/v1/chat/completions", body)["choices"][0]
        return choice["message"]["content"], [one["logprob"] for one in choice["logprobs"]["content"]]

    rightly = [show(2), say("first "), show(0), say(" second "), show(1), say(" What is seen?")]
    wrongly = [show(0), say("first "), show(1), say(" second "), show(2), say(" What is seen?")]
    check("pictures stand where they should", said == chat(rightly)[0], (said, chat(rightly)[0]))
    check("and it matters where", chat(rightly)[1] != chat(wrongly)[1])
    vectors = client.json("/api/embed", {"model": model, "input": ["a door", "a car"]})
    check("texts have embeddings", len(vectors["embeddings"]) == 2, vectors)
    said = client.refused("/api/embed", {"model": model, "input": ["a door", {"image": picture()}]})
    check("pictures have none, which is said", "input[1]" in said, said)


def home_assistant_ollama(client, model):
    call = {"function": {"name": "HassTurnOn", "arguments": {"area": "kitchen"}}}
    body = {
        "model": model,
        "messages": [
            {"role": "system", "content": "You control a house."},
            {"role": "user", "content": "Turn on the kitchen light."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": json.dumps({"data": {"success": True}, "error": None})},
        ],
        "tools": [SWITCH],
        "stream": True,
        "keep_alive": -1,
        "options": {"num_ctx": 8192},
        "think": False,
    }
    lines = client.lines("/api/chat", body)
    check("a chat with tools streams", lines[-1]["done"] and "content" in lines[0]["message"], lines)
    body |= {"tools": None, "format": REVIEW, "keep_alive": "30s"}
    said = "".join(line["message"].get("content", "") for line in client.lines("/api/chat", body))
    check("a task has its form", "title" in json.loads(said), said)


def home_assistant_openai(client, model):
    function = {"type": "function", "strict": False, **SWITCH["function"]}
    strict = {**REVIEW, "strict": True}
    body = {
        "model": model,
        "input": [
            {"type": "message", "role": "developer", "content": "You control a house."},
            {"type": "message", "role": "user", "content": "Turn on the kitchen light."},
            {"type": "function_call", "name": "HassTurnOn", "arguments": '{"area": "kitchen"}', "call_id": "call_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": '{"success": true}'},
        ],
        "max_output_tokens": 200,
        "top_p": 1.0,
        "temperature": 1.0,
        "user": "01JCONVERSATION",
        "store": False,
        "stream": True,
        "tools": [function],
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
    ends = ("response.completed", "response.incomplete")
    events = client.events("/v1/responses", body)
    check("a response with tools streams", events[-1]["type"] in ends, events[-1])
    look = [
        {"type": "input_text", "text": "What is seen?"},
        {"type": "input_image", "image_url": "data:image/png;base64," + picture(), "detail": "auto"},
    ]
    body = {key: body[key] for key in ("model", "top_p", "temperature", "user", "store", "stream")}
    body["input"] = [{"type": "message", "role": "user", "content": look}]
    body["text"] = {"format": {"type": "json_schema", "name": "front_door", "schema": strict}, "verbosity": "low"}
    events = client.events("/v1/responses", body)
    said = "".join(one["delta"] for one in events if one["type"] == "response.output_text.delta")
    check("a task about a picture has its form", "title" in json.loads(said), said)
    check("and is counted", events[-1]["response"]["usage"]["input_tokens"] > 0, events[-1])


def main():
    program, model, mmproj = sys.argv[1:4]
    with Server(program, model, ["--mmproj", mmproj, "--pot", "1024"]) as server:
        client = Client(server.url)
        model = client.json("/v1/models")["data"][0]["id"]
        for play in (frigate, frigate_ollama, home_assistant_ollama, home_assistant_openai):
            print(play.__name__.replace("_", " "))
            play(client, model)


if __name__ == "__main__":
    main()
