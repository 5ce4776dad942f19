#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that others wrote, unmodified, against the real server: `openai` (responses, embeddings), `anthropic`,
`ollama`, `mcp`, and LangChain's and LlamaIndex's chat models.

    tests/clients/apis_client.py PROGRAM [MODEL]

A client whose package is missing is left out; without `openai` the script exits with 77 (skipped). Exits with 1 and
says what was wrong.
"""

import asyncio
import importlib
import sys

from server import Server, model_or_skip, skip

PROMPT = "Name a river."
MESSAGES = [{"role": "user", "content": PROMPT}]
LIMIT = 16


def check(what, holds, shown=""):
    print(("ok    " if holds else "WRONG ") + what + (f": {shown!r}" if not holds else ""))
    if not holds:
        raise SystemExit(1)


def package(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise SystemExit(f"WRONG not refused with {kind.__name__}")


def ask_openai(openai, url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0, timeout=300)
    model = client.models.list().data[0].id
    check("the model's id has no spaces", " " not in model, model)
    chat = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=LIMIT, temperature=0)
    text = chat.choices[0].message.content

    plain = dict(model=model, input=PROMPT, max_output_tokens=LIMIT, temperature=0)
    one = client.responses.create(store=False, **plain)
    check("a response says what a chat says", one.output_text == text, (one.output_text, text))
    events = list(client.responses.create(store=False, stream=True, **plain))
    said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    check("and so does a stream of it", said == text and events[0].type == "response.created", said)
    check("which ends with the response", events[-1].response.output_text == text, events[-1])
    longer = {**plain, "max_output_tokens": 400}  # the client's accumulator wants an answer that the model ends
    with client.responses.stream(store=False, **longer) as stream:
        for _ in stream:
            pass
        ended = stream.get_final_response()
    check(
        "the client's own accumulator agrees", ended.output_text.startswith(text) and ended.status == "completed", ended
    )

    first = client.responses.create(instructions="Be short.", **plain)
    check("a response is stored", client.responses.retrieve(first.id).output_text == first.output_text)
    second = client.responses.create(
        model=model, input="And another?", previous_response_id=first.id, max_output_tokens=LIMIT, temperature=0
    )
    check(
        "the next one reads only what is new",
        second.usage.input_tokens < first.usage.input_tokens + 8 and second.weir["seen"] > second.usage.input_tokens,
        second.usage,
    )
    refused(
        openai.ConflictError, lambda: client.responses.create(model=model, input="Hm", previous_response_id=first.id)
    )
    client.responses.delete(second.id)
    refused(openai.NotFoundError, lambda: client.responses.retrieve(second.id))
    talk = client.conversations.create()
    third = client.responses.create(conversation=talk.id, **plain)
    check("a conversation is a session", third.conversation.id == talk.id, third.conversation)
    client.conversations.delete(talk.id)

    rivers, other = (
        e.embedding for e in client.embeddings.create(model=model, input=["A river in France.", "1 + 1 = 2"]).data
    )
    check("embeddings have length 1", abs(sum(x * x for x in rivers) - 1) < 1e-3 and rivers != other)
    floats = client.embeddings.create(model=model, input="A river in France.", encoding_format="float")
    near = max(abs(a - b) for a, b in zip(floats.data[0].embedding, rivers))
    check("as floats and in base64 they are the same", near < 1e-6, near)

    kept = client.chat.completions.with_raw_response.create(
        model=model, messages=MESSAGES, max_tokens=LIMIT, temperature=0, extra_headers={"x-session-id": "new"}
    )
    session = kept.headers["x-session-id"]
    said = kept.parse().choices[0].message.content
    history = MESSAGES + [{"role": "assistant", "content": said}, {"role": "user", "content": "And another?"}]
    again = client.chat.completions.create(
        model=model, messages=history, max_tokens=LIMIT, temperature=0, extra_headers={"x-session-id": session}
    )
    check("a chat goes on in its session", again.usage.prompt_tokens < 32 and again.weir["seen"] > 32, again.usage)
    return text


def ask_anthropic(anthropic, url, text):
    client = anthropic.Anthropic(base_url=url, api_key="secret", max_retries=0, timeout=300)
    # Newer versions of this client no longer name the temperature.
    plain = dict(model="any", messages=MESSAGES, max_tokens=LIMIT, extra_body={"temperature": 0})
    whole = client.messages.create(**plain)
    check("a message says what a chat says", whole.content[0].text == text, (whole.content, text))
    check("it ends for a reason", whole.stop_reason in ("end_turn", "max_tokens"), whole)
    with client.messages.stream(**plain) as stream:
        said = "".join(stream.text_stream)
        final = stream.get_final_message()
    check("a stream says the same", said == text and final.content[0].text == text, said)
    check("with the same usage", final.usage.output_tokens == whole.usage.output_tokens, final.usage)
    counted = client.messages.count_tokens(model="any", messages=MESSAGES).input_tokens
    read = whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
    check("tokens are counted as they are read", counted == read, (counted, read))
    error = refused(
        anthropic.BadRequestError, lambda: client.messages.create(**{**plain, "extra_body": {"temperature": -1}})
    )
    check("errors have that API's shape", error.body["error"]["type"] == "invalid_request_error", error.body)
    wrong = anthropic.Anthropic(base_url=url, api_key="guess", max_retries=0)
    refused(anthropic.AuthenticationError, lambda: wrong.messages.create(**plain))


def ask_ollama(ollama, url, text):
    client = ollama.Client(host=url, headers={"Authorization": "Bearer secret"})
    model = client.list().models[0].model
    options = {"temperature": 0, "num_predict": LIMIT}
    whole = client.chat(model=model, messages=MESSAGES, options=options)
    check("Ollama's chat says what a chat says", whole.message.content == text, (whole.message.content, text))
    said = "".join(
        part.message.content for part in client.chat(model=model, messages=MESSAGES, options=options, stream=True)
    )
    check("and so does a stream of it", said == text, said)
    generated = client.generate(model=model, prompt=PROMPT, options=options)
    check("and a generated text", generated.response == text, generated.response)
    check("the model is shown", "completion" in client.show(model).capabilities)
    check("and runs", client.ps().models[0].model == model)
    check("texts are embedded", len(client.embed(model=model, input=["a", "b"]).embeddings) == 2)
    error = refused(ollama.ResponseError, lambda: client.chat(model=model, messages=MESSAGES, options={"top_p": 7}))
    check("errors name the client's field", "options" in str(error) or "top_p" in str(error), str(error))


def of(said, name):
    """A field of a message; version 2 of the package has other names for some."""
    camel = name.split("_")[0] + "".join(word.capitalize() for word in name.split("_")[1:])
    return getattr(said, name) if hasattr(said, name) else getattr(said, camel)


async def use_memory(session):
    begun = await session.initialize()
    check("the protocol begins", of(begun, "server_info").name == "weir", begun)
    tools = [tool.name for tool in (await session.list_tools()).tools]
    check("five tools are offered", tools == ["append", "ask", "remember", "recall", "watch"], tools)

    async def use(name, arguments, fails=False):
        said = await session.call_tool(name, arguments)
        check(f"{name} {'is refused' if fails else 'works'}", bool(of(said, "is_error")) == fails, said)
        return said

    appended = of(
        await use("append", {"text": "The key to the boat house lies under the blue pot."}), "structured_content"
    )
    kept = of(await use("remember", {"text": "My name is Ada."}), "structured_content")
    check("what is remembered is pinned", kept["pinned"] > appended["pinned"], kept)
    asked = await use("ask", {"question": "Where is the key?", "max_tokens": 24})
    check("a question has an answer", bool(asked.content[0].text), asked)
    await use("append", {"text": "The rain fell on the hills all day and the river rose. " * 60})
    found = await use("recall", {"query": "the key to the boat house"})
    check("what was forgotten is recalled", "blue pot" in found.content[0].text, found)
    wrong = await use("append", {"text": ""}, fails=True)
    check("and says why", "'text'" in wrong.content[0].text, wrong)


async def use_mcp(program, model, url):
    from mcp import ClientSession, StdioServerParameters
    from mcp.client import streamable_http as http
    from mcp.client.stdio import stdio_client

    words = ["mcp", "-m", model, "--pot", "256", "--recall", "words", "--temp", "0"]
    async with stdio_client(StdioServerParameters(command=program, args=words)) as (read, write):
        async with ClientSession(read, write) as session:
            await use_memory(session)
    key = {"Authorization": "Bearer secret"}
    if hasattr(http, "streamable_http_client"):
        transport = http.streamable_http_client(url + "/mcp", http_client=http.create_mcp_http_client(headers=key))
    else:
        transport = http.streamablehttp_client(url + "/mcp", headers=key)
    async with transport as streams:
        async with ClientSession(streams[0], streams[1]) as session:
            await use_memory(session)


def ask_frameworks(url, text):
    said = []
    if package("langchain_openai"):
        from langchain_openai import ChatOpenAI

        chat = ChatOpenAI(base_url=url + "/v1", api_key="secret", model="any", temperature=0, max_tokens=LIMIT)
        said.append(("LangChain's OpenAI chat", chat.invoke(PROMPT).content))
        said.append(("and its stream", "".join(part.content for part in chat.stream(PROMPT))))
    if package("langchain_ollama"):
        from langchain_ollama import ChatOllama

        headers = {"headers": {"Authorization": "Bearer secret"}}
        chat = ChatOllama(base_url=url, model="any", temperature=0, num_predict=LIMIT, client_kwargs=headers)
        said.append(("LangChain's Ollama chat", chat.invoke(PROMPT).content))
    if package("langchain_anthropic"):
        from langchain_anthropic import ChatAnthropic

        chat = ChatAnthropic(base_url=url, api_key="secret", model="any", temperature=0, max_tokens=LIMIT)
        said.append(("LangChain's Anthropic chat", chat.invoke(PROMPT).content))
    if package("llama_index.llms.openai_like"):
        from llama_index.core.llms import ChatMessage
        from llama_index.llms.openai_like import OpenAILike

        llm = OpenAILike(
            api_base=url + "/v1", api_key="secret", model="any", is_chat_model=True, temperature=0, max_tokens=LIMIT
        )
        said.append(("LlamaIndex's chat", llm.chat([ChatMessage(role="user", content=PROMPT)]).message.content))
    for what, words in said:
        check(what + " says the same", words == text, (words, text))


def main():
    packages = {name: package(name) for name in ("openai", "anthropic", "ollama", "mcp")}
    if not packages["openai"]:
        skip("the Python package openai is not installed")
    program, model = sys.argv[1], model_or_skip(sys.argv[2] if len(sys.argv) > 2 else None)
    flags = ["--pot", "256", "--api-key", "secret", "--recall", "words"]
    with Server(program, model, flags) as server:
        text = ask_openai(packages["openai"], server.url)
        for name, ask in (("anthropic", ask_anthropic), ("ollama", ask_ollama)):
            if packages[name]:
                ask(packages[name], server.url, text)
            else:
                print(f"left out: {name} is not installed")
        if packages["mcp"]:
            asyncio.run(use_mcp(program, model, server.url))
        else:
            print("left out: mcp is not installed")
        ask_frameworks(server.url, text)


if __name__ == "__main__":
    main()
