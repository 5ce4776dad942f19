#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official `openai` client against the real server.

    tests/clients/openai_client.py PROGRAM [MODEL]

Needs the Python package `openai`; exits with 77 (skipped) where it is missing. Exits with 1 and says what was wrong.
"""

import sys

from server import Server, model_or_skip, skip

try:
    import openai
except ImportError:
    skip("the Python package openai is not installed")

MESSAGES = [{"role": "user", "content": "Name a river."}]


def check(what, holds, shown=""):
    print(("ok    " if holds else "WRONG ") + what + (f": {shown!r}" if not holds else ""))
    if not holds:
        raise SystemExit(1)


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise SystemExit(f"WRONG not refused with {kind.__name__}")


def main():
    model = model_or_skip(sys.argv[2] if len(sys.argv) > 2 else None)
    with Server(sys.argv[1], model, ["--pot", "256", "--api-key", "secret"]) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="secret", max_retries=0, timeout=300)
        model = client.models.list().data[0].id
        check("the model is listed and found", client.models.retrieve(model).id == model)

        anew = {"cache_prompt": False}
        whole = client.chat.completions.create(
            model=model, messages=MESSAGES, max_tokens=16, temperature=0, extra_body=anew
        )
        text = whole.choices[0].message.content
        check("a chat is answered", bool(text) and whole.usage.completion_tokens <= 16, whole)
        check(
            "its usage adds up",
            whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens,
            whole.usage,
        )

        chunks = list(
            client.chat.completions.create(
                model=model,
                messages=MESSAGES,
                max_tokens=16,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
                extra_body=anew,
            )
        )
        streamed = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        check("streamed it says the same", streamed == text, (streamed, text))
        check("the stream ends with its usage", chunks[-1].usage == whole.usage, chunks[-1])

        hot = dict(
            model=model, messages=MESSAGES, max_tokens=24, temperature=1.2, top_p=1, extra_body={"top_k": 0, "min_p": 0}
        )
        one = client.chat.completions.create(seed=1, **hot).choices[0].message.content
        check(
            "a seed says the same again",
            client.chat.completions.create(seed=1, **hot).choices[0].message.content == one,
        )
        check(
            "another seed says something else",
            client.chat.completions.create(seed=2, **hot).choices[0].message.content != one,
        )
        stop = text[len(text) // 2 :][:4]
        stopped = client.chat.completions.create(
            model=model, messages=MESSAGES, max_tokens=16, temperature=0, stop=[stop]
        )
        check(
            "a stop string ends an answer before it",
            stopped.choices[0].message.content == text[: text.index(stop)]
            and stopped.choices[0].finish_reason == "stop",
            (stopped.choices[0], stop),
        )

        scored = (
            client.chat.completions.create(
                model=model, messages=MESSAGES, max_tokens=8, temperature=0, logprobs=True, top_logprobs=3
            )
            .choices[0]
            .logprobs.content
        )
        check(
            "a chat's likelihoods",
            all(t.logprob <= 0 and len(t.top_logprobs) == 3 and t.top_logprobs[0].token == t.token for t in scored),
            scored,
        )

        prompt = "The river carries what the rain gives."
        echo = client.completions.create(model=model, prompt=prompt, max_tokens=1, temperature=0, echo=True, logprobs=2)
        likely = echo.choices[0].logprobs
        check("a completion repeats its prompt", echo.choices[0].text.startswith(prompt), echo.choices[0].text)
        check(
            "with a likelihood for all tokens but the first",
            likely.token_logprobs[0] is None and all(x <= 0 for x in likely.token_logprobs[1:]),
            likely.token_logprobs,
        )
        check(
            "and offsets that spell it",
            all(echo.choices[0].text[at:].startswith(token) for at, token in zip(likely.text_offset, likely.tokens)),
            likely,
        )
        two = client.completions.create(model=model, prompt=[prompt, "Once upon a time"], max_tokens=4, temperature=0)
        check("two prompts have two answers", [c.index for c in two.choices] == [0, 1], two)

        long = client.chat.completions.create(
            model=model,
            max_tokens=4,
            temperature=0,
            messages=[{"role": "user", "content": "The river carries what the rain gives. " * 200 + "What carries?"}],
        )
        check("no prompt is too long", long.usage.prompt_tokens > 1000 and long.weir["dropped"] > 0, long)

        wrong = openai.OpenAI(base_url=server.url + "/v1", api_key="guess", max_retries=0)
        refused(openai.AuthenticationError, wrong.models.list)
        both = client.chat.completions.create(model=model, messages=MESSAGES, n=2, max_tokens=4)
        check("a question has as many answers as it asks for", [c.index for c in both.choices] == [0, 1], both)
        error = refused(
            openai.BadRequestError, lambda: client.chat.completions.create(model=model, messages=MESSAGES, n=100)
        )
        check("what is not supported is refused by name", error.body["param"] == "n", error.body)
        refused(openai.NotFoundError, lambda: client.models.retrieve("another"))


if __name__ == "__main__":
    main()
