"""Test backends that speak Anthropic's Messages API, for clients of each API, whole and streamed."""

import json
from contextlib import asynccontextmanager

import pytest

from support.anthropic_server import MessagesServer, error, faults, message, text, thinking, tool_use
from support.app import gateway, problem
from support.messages_events import events_of
from support.paths import TESTS
from support.responses_events import checked as checked_response
from support.sse import payloads
from support.upstream import HELLO, KEY, completion_body, whole

KIND = {"kind": "anthropic"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOL = {"name": "weather", "input_schema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}
USE = tool_use("weather", city="Oslo")
TURN = [thinking("hm"), text("Let me see."), USE]
RESULT = {"type": "tool_result", "tool_use_id": "toolu_up", "content": "3C"}
QUESTION = {"role": "user", "content": "How warm is it in Oslo?"}


class Server(MessagesServer):
    """A strict Messages server that responds with the next content each time."""

    def __init__(self, *contents):
        super().__init__(lambda _: self._contents.pop(0) if len(self._contents) > 1 else self._contents[0])
        self._contents = [*contents]


@asynccontextmanager
async def serving(*contents, model=None, backend=None, **sections):
    """Yield a Site whose model `a` is at a strict Messages server, which is `site.server`."""
    async with Server(*contents).serving() as server:
        backends = {"claude": {**KIND, "url": server.url, "api_key": KEY, **(backend or {})}}
        models = {"a": {"backends": ["claude"], "upstream_model": "claude-opus-4-6", **(model or {})}}
        async with gateway(HELLO, more_backends=backends, more_models=models, **sections) as site:
            site.server = server
            yield site


def last_body(site):
    return site.server.posts[-1].json


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_backend_does_a_tool_turn_for_a_chat_client(stream):
    async with serving(TURN, [text("3C")]) as site:
        answer = await site.chat(model="a", messages=[QUESTION], tools=[FUNCTION], stream=stream)
        assistant_message = _folded(answer) if stream else answer.json()["choices"][0]["message"]
        assert (assistant_message["content"], assistant_message["reasoning_content"]) == ("Let me see.", "hm")
        (call,) = assistant_message["tool_calls"]
        assert (call["id"], json.loads(call["function"]["arguments"])) == ("toolu_up", {"city": "Oslo"})
        assistant_message["thinking_blocks"] = [{**block, "index": 0} for block in assistant_message["thinking_blocks"]]
        past = [
            QUESTION,
            {"role": "assistant", **assistant_message},
            {"role": "tool", "tool_call_id": call["id"], "content": "3C"},
        ]
        answer = await site.chat(model="a", messages=past, tools=[FUNCTION])
        assert answer.json()["choices"][0]["message"]["content"] == "3C"
        assert last_body(site)["messages"][1]["content"] == TURN
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 3


def _folded(answer):
    """Return the message that a stream comes to."""
    chunks = payloads(answer.text)[:-1]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk.get("choices")]
    calls = [one for delta in deltas for one in delta.get("tool_calls", ())]
    arguments = "".join(one["function"].get("arguments", "") for one in calls)
    return {
        "content": "".join(delta.get("content") or "" for delta in deltas),
        "reasoning_content": "".join(delta.get("reasoning_content") or "" for delta in deltas),
        "thinking_blocks": [block for delta in deltas for block in delta.get("thinking_blocks", ())],
        "tool_calls": [{**calls[0], "function": {"name": "weather", "arguments": arguments}}],
    }


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_backend_does_a_tool_turn_for_a_responses_client(stream):
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
    more = {"tools": tools, "include": ["reasoning.encrypted_content"], "store": False}
    async with serving(TURN, [text("3C")]) as site:
        answer = await site.respond(model="a", input=[QUESTION], stream=stream, **more)
        output = (checked_response(answer.content) if stream else answer.json())["output"]
        assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
        result = {"type": "function_call_output", "call_id": "toolu_up", "output": "3C"}
        answer = await site.respond(model="a", input=[QUESTION, *output, result], **more)
        assert last_body(site)["messages"][1]["content"] == TURN
        counts = answer.json()["usage"]
        assert counts["input_tokens_details"] == {"cached_tokens": 3, "cache_write_tokens": 2}
        assert (counts["input_tokens"], counts["output_tokens"]) == (10, 9)


SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "c", "page_age": None}],
}
CITED = {"type": "web_search_result_location", "url": "u", "title": "t", "cited_text": "c", "encrypted_index": "i"}
MORE = [
    USE,
    text("And Rome?"),
    tool_use("weather", "toolu_2", city="Rome"),
    tool_use("weather", "toolu_3", city="Bonn"),
]
NATIVE = [thinking("hm"), SEARCH, FOUND, text("It is", citations=[CITED]), text(" warm."), *MORE]
RESULTS = [RESULT, *({**RESULT, "tool_use_id": id} for id in ("toolu_2", "toolu_3"))]


@pytest.mark.parametrize("stream", [False, True])
async def test_anthropic_backend_and_client_of_its_api_see_each_other_unchanged(stream):
    system = [text("s", cache_control={"type": "ephemeral"})]
    tools = [TOOL, {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]
    headers = {"anthropic-version": "2026-10-21", "anthropic-beta": "one,two"}
    fields = {"model": "a", "system": system, "tools": tools, "thinking": {"type": "adaptive"}, "stream": stream}
    async with serving(NATIVE, [text("3C")]) as site:
        answer = await site.message(messages=[QUESTION], headers=headers, **fields)
        content = _message(answer) if stream else answer.json()["content"]
        assert content == NATIVE and "x-gateway-warnings" not in answer.headers
        past = [QUESTION, {"role": "assistant", "content": content}, {"role": "user", "content": RESULTS}]
        answer = await site.message(messages=past, headers=headers, **fields)
        body = {**fields, "model": "claude-opus-4-6", "max_tokens": 100, "messages": past}
        assert last_body(site) == body
        got = site.server.posts[-1].headers
        assert {name: got[name] for name in (*headers, "x-api-key")} == {**headers, "x-api-key": KEY}
        assert "authorization" not in got


CLIENTS = json.loads((TESTS / "backends" / "requests" / "clients" / "messages_api.json").read_text("utf-8"))
CLAUDE_CODE = [name for name in CLIENTS if name.startswith("claude-code")]


async def test_anthropic_backend_gets_the_bytes_of_claude_code_and_its_blocks_arrive():
    """Thinking, cache marks and a server tool are in these requests, and in the content of each response."""
    async with serving(NATIVE, model={"upstream_model": "a"}) as site:
        for name in CLAUDE_CODE:
            sent = compact({"model": "a", **CLIENTS[name]["asks"], "stream": False})
            headers = {"content-type": "application/json"}
            answer = await site.client.post("/v1/messages?beta=true", content=sent, headers=headers)
            assert site.server.posts[-1].body == sent, name
            assert compact(json.loads(answer.content)["content"]) == compact(NATIVE)
    everything = str([CLIENTS[name]["asks"] for name in CLAUDE_CODE])
    assert [
        what for what in ("'thinking'", "redacted_thinking", "cache_control", "web_search_") if what not in everything
    ] == []


def compact(value):
    """Return JSON as clients and services write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


async def test_anthropic_backend_gets_the_token_limit_of_the_operator_in_the_clients_body():
    messages = [{"role": "user", "content": [text("q", cache_control={"type": "ephemeral"})]}]
    async with serving([text("a")], model={"overrides": {"max_tokens": 50}}) as site:
        answer = await site.message(model="a", messages=messages)
        assert last_body(site) == {"model": "claude-opus-4-6", "max_tokens": 50, "messages": messages}
        assert answer.headers["x-gateway-warnings"] == "dropped:max_tokens"


async def test_anthropic_backend_caches_prompts_of_clients_that_cannot_mark_them():
    system = {"role": "system", "content": "s"}
    tool = {"type": "function", "name": "weather", "parameters": SCHEMA}
    async with serving([text("a")], backend={"cache": "auto"}) as site:
        await site.chat(model="a", messages=[system, QUESTION], tools=[FUNCTION])
        await site.respond(model="a", instructions="s", input=[QUESTION], tools=[tool], store=False)
        await site.message(model="a", system="s", messages=[QUESTION], tools=[TOOL])
        chat, response, message = [post.json for post in site.server.posts]
    for body in (chat, response):
        marked = [body["tools"][-1], body["system"][-1], body["messages"][-1]["content"][-1]]
        assert [one["cache_control"] for one in marked] == [{"type": "ephemeral"}] * 3
        assert json.dumps(body).count("cache_control") == 3
    assert "cache_control" not in json.dumps(message)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
async def test_anthropic_backend_gets_other_parameters_of_the_operator_in_a_new_body(path):
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "It is"}]
    turns = [{**one, "content": [text(one["content"])]} for one in messages]
    model = {"defaults": {"top_k": 7}, "upstream_model": "claude-opus-4-5"}  # goes on from a prefill
    async with serving([text("a")], model=model) as site:
        if counts := path.endswith("count_tokens"):
            site.server._scripts = [whole({"input_tokens": 42})]
        limit = {} if counts else {"max_tokens": 100}
        await site.client.post(path, json={"model": "a", "messages": messages, **limit})
        post = site.server.posts[-1]
        assert post.path == path and post.json["messages"] == turns
        assert post.json.get("top_k") == (None if counts else 7)
        assert faults(post.json, counts=counts) == []


def _message(answer):
    """Return the content that a stream comes to."""
    blocks = {}
    for event in events_of(answer.content):
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {"json": "", **event["content_block"]}
        elif event["type"] == "content_block_delta":
            _extend(blocks[event["index"]], event["delta"])
    return [_whole(block) for block in blocks.values()]


def _extend(block, delta):
    match delta:
        case {"citation": citation}:
            block.setdefault("citations", []).append(citation)
        case {"partial_json": piece}:
            block["json"] += piece
        case _:
            for name in delta.keys() - {"type"}:
                block[name] += delta[name]


def _whole(block):
    piece = block.pop("json")
    return {**block, "input": json.loads(piece)} if piece else block


async def test_anthropic_backend_counts_tokens():
    async with serving([text("a")]) as site:
        site.server._scripts = [whole({"input_tokens": 42})]
        answer = await site.client.post(
            "/v1/messages/count_tokens",
            json={"model": "a", "messages": [QUESTION], "tools": [TOOL]},
            headers={"anthropic-beta": "one"},
        )
        assert answer.json() == {"input_tokens": 42}
        post = site.server.posts[-1]
        assert (post.path, post.headers["anthropic-beta"]) == ("/v1/messages/count_tokens", "one")
        assert faults(post.json, counts=True) == []
        answer = await site.client.post("/v1/responses/input_tokens", json={"model": "a", "input": "Hello"})
        assert answer.json()["input_tokens"] == 42 and faults(post.json, counts=True) == []


ERRORS = {
    "too long": (
        error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
        400,
        "context_length_exceeded",
    ),
    "overloaded": (error("overloaded_error", "Overloaded", 529), 503, "server_is_overloaded"),
    "no such model": (error("not_found_error", "model: claude-0", 404), 404, "model_not_found"),
    "a bad key": (error("authentication_error", "invalid x-api-key", 401), 502, "upstream_auth_error"),
    "too many": (error("rate_limit_error", "Slow down", 429), 429, "rate_limit_exceeded"),
}


@pytest.mark.parametrize(("script", "status", "code"), ERRORS.values(), ids=ERRORS)
async def test_anthropic_backend_errors_are_those_of_the_clients_api(script, status, code):
    async with gateway(script, backend=KIND) as site:
        answer = await site.chat()
        assert (answer.status_code, problem(answer)[2]) == (status, code)


async def test_anthropic_backend_token_limit_is_cut_to_its_room():
    refusal = error(
        "invalid_request_error", "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens"
    )
    async with gateway(refusal, whole(message(text("Hi"))), backend=KIND) as site:
        assert (await site.chat()).json()["choices"][0]["message"]["content"] == "Hi"
        assert site.upstream_body["max_tokens"] == 8192


async def test_anthropic_backend_lists_its_models():
    entry = {"id": "claude-x", "type": "model", "display_name": "X", "created_at": "2026-01-01T00:00:00Z"}
    capabilities = {"thinking": {"supported": True}, "image_input": {"supported": False}, "batch": None}
    listed = {"data": [{**entry, "max_input_tokens": 200000, "capabilities": capabilities}], "has_more": False}
    async with gateway(whole(message(text("Hi"))), backend=KIND, model=False) as site:
        site.upstream.answer_lists_with(whole(listed))
        assert [one["id"] for one in (await site.client.get("/v1/models")).json()["data"]] == ["claude-x"]
        assert (await site.chat(model="claude-x")).status_code == 200
        assert {request.path for request in site.upstream.gets} == {"/v1/models?limit=1000"}
        assert site.upstream.gets[-1].headers["anthropic-version"] == "2023-06-01"


async def test_anthropic_backend_has_no_legacy_completions():
    async with gateway(whole(message(text("Hi"))), backend=KIND) as site:
        answer = await site.client.post("/v1/completions", json={"model": "m", "prompt": "a"})
        assert problem(answer) == (400, "invalid_request_error", "unsupported_value", "model")
        assert "use /v1/chat/completions" in answer.json()["error"]["message"]


# Fallback


LOCAL_CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
LOCAL = whole({**completion_body(None, reasoning_content="mm", tool_calls=[LOCAL_CALL])})
DOWN = whole({"error": "down"}, status=500)


async def test_anthropic_backend_takes_over_from_a_local_model_and_hands_back():
    """A conversation goes from a local model to Anthropic and back; each gets only what it can read."""
    models = {"b": {"backends": ["up"], "fallback": ["a"]}}
    fields = {"model": "b", "tools": [TOOL], "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 4000}
    async with _with_local([LOCAL, DOWN, whole(completion_body("Warm."))], models, TURN) as site:
        first = (await site.message(messages=[QUESTION], **fields)).json()["content"]
        assert [block["type"] for block in first] == ["thinking", "tool_use"]
        past = [QUESTION, {"role": "assistant", "content": first}]
        past.append({"role": "user", "content": [{**RESULT, "tool_use_id": "call_1"}]})
        answer = await site.message(messages=past, **fields)  # the local model is down
        assert answer.json()["content"] == TURN
        assert "translated:model" in answer.headers["x-gateway-warnings"]
        assert last_body(site)["messages"][1]["content"] == [first[1]]
        assert last_body(site)["thinking"] == {"type": "disabled"}
        past += [{"role": "assistant", "content": TURN}, {"role": "user", "content": [RESULT]}]
        answer = await site.message(messages=past, **fields)
        assert answer.json()["content"] == [text("Warm.")]
        thoughts = [
            one.get("reasoning_content") for one in site.upstream_body["messages"] if one["role"] == "assistant"
        ]
        assert thoughts == ["mm", "hm"]


async def _ask_by_chat(site, past):
    """Return the response to a conversation of chat messages, and what it adds to the conversation."""
    limits = {"reasoning_effort": "medium", "max_completion_tokens": 4000}
    answer = await site.chat(model="b", messages=past, tools=[FUNCTION], **limits)
    assistant_message = answer.json()["choices"][0]["message"]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "3C"}
        for call in assistant_message.get("tool_calls") or ()
    ]
    return answer, [assistant_message, *results]


async def _ask_by_responses(site, past):
    """Likewise for items of Responses."""
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA}]
    reasoning = {"effort": "medium", "context": "all_turns"}
    more = {"include": ["reasoning.encrypted_content"], "store": False, "max_output_tokens": 4000}
    answer = await site.respond(model="b", input=past, tools=tools, reasoning=reasoning, **more)
    output = answer.json()["output"]
    calls = [item["call_id"] for item in output if item["type"] == "function_call"]
    return answer, [*output, *({"type": "function_call_output", "call_id": id, "output": "3C"} for id in calls)]


@pytest.mark.parametrize("ask", [_ask_by_chat, _ask_by_responses])
async def test_anthropic_backend_and_a_local_model_take_turns_in_one_conversation(ask):
    """Local, Anthropic, local, Anthropic: a signature reaches Anthropic again, and each thought the local model."""
    models = {"b": {"backends": ["up"], "fallback": ["a"]}}
    scripts = [LOCAL, DOWN, whole(completion_body("Warm.")), DOWN]
    async with _with_local(scripts, models, TURN, [text("Cold.")]) as site:
        _, more = await ask(site, past := [QUESTION])
        answer, more = await ask(site, past := [*past, *more])  # the local model is down
        assert "translated:model" in answer.headers["x-gateway-warnings"]
        first, _ = last_body(site)["messages"][1:]
        assert [block["type"] for block in first["content"]] == ["tool_use"] and "thinking" not in last_body(site)
        _, more = await ask(site, past := [*past, *more])
        thoughts = [
            one.get("reasoning_content") for one in site.upstream_body["messages"] if one["role"] == "assistant"
        ]
        assert thoughts == ["mm", "hm"]
        await ask(site, [*past, *more, {"role": "user", "content": "And tomorrow?"}])
        assert faults(last_body(site)) == [] and last_body(site)["thinking"]["type"] == "enabled"
        turns = [turn["content"] for turn in last_body(site)["messages"] if turn["role"] == "assistant"]
        assert turns == [first["content"], TURN, [text("Warm.")]]


@asynccontextmanager
async def _with_local(scripts, models, *contents):
    async with Server(*contents).serving() as server:
        backends = {"claude": {**KIND, "url": server.url}}
        known = {"a": {"backends": ["claude"], "upstream_model": "claude-sonnet-4-5"}, **models}
        async with gateway(*scripts, more_backends=backends, more_models=known) as site:
            site.server = server
            yield site


async def test_anthropic_block_that_a_local_model_cannot_read_is_refused_there():
    mood = {"role": "user", "content": [text("q"), {"type": "mood"}]}
    async with serving([text("a")]) as site:
        answer = await site.message(messages=[mood])
        assert answer.status_code == 400 and "Input tag 'mood'" in answer.json()["error"]["message"]
        assert not site.upstream.posts


async def test_anthropic_warnings_of_a_local_model_stay_there():
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    async with serving([text("a")]) as site:
        assert "x-gateway-warnings" not in (await site.message(model="a", tools=tools)).headers
        assert (await site.message(tools=tools)).headers["x-gateway-warnings"] == "dropped:tools.web_search"


DOCUMENT = {"type": "document", "source": {"type": "base64", "media_type": "text/plain", "data": "SGk="}}


async def test_anthropic_backend_gets_documents_and_a_local_model_their_text():
    messages = [{"role": "user", "content": [DOCUMENT, text("q")]}]
    async with serving([text("a")]) as site:
        await site.message(model="a", messages=messages)
        assert last_body(site)["messages"] == messages
        await site.message(messages=messages)
        assert "Hi" in json.dumps(site.upstream_body["messages"])
