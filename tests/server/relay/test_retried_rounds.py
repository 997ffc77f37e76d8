"""Test the policies `enforce.empty` and `enforce.arguments` on real sockets: requests, responses, usage and warnings."""

import asyncio

import pytest

from support.app import gateway, listening, on_both_loops
from support.mcp_requests import ECHO, MCP, calling, of_type
from support.mcp_server import operators, toys
from support.raw_requests import request_bytes
from support.responses_events import checked
from support.sse import comments, payloads, text_of
from support.upstream import CLOSE, COUNTS, HANG, call, chunk, completion_body, frame, head, stream, whole
from support.wait import DEADLINE

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
TOOLS, FLAT = [WEATHER], [{"type": "function", **WEATHER["function"]}]
USAGE = frame(choices=[], usage=COUNTS)
EMPTY = stream(chunk(reasoning_content="I look"), chunk(reasoning_content=" it up."), chunk(finish="stop"), USAGE)
ANSWER = stream(chunk(reasoning_content=" Now."), chunk("It is "), chunk("sunny."), chunk(finish="stop"), USAGE)
PLAIN = stream(chunk("It is "), chunk("sunny."), chunk(finish="stop"), USAGE)
CALLED = stream(chunk(tool_calls=call("weather", '{"city": "Oslo"}', id="c1")), chunk(finish="tool_calls"), USAGE)
REFUSED = whole({"error": {"message": "Too long.", "type": "invalid_request_error", "code": 400}}, 400)
STREAMED = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])


async def ask(site, api, streamed, **fields):
    """Return reasoning, text, calls, tokens and warnings of a response."""
    if api == "chat":
        usage = {"stream_options": {"include_usage": True}} if streamed else {}
        answer = await site.chat(stream=streamed, tools=TOOLS, **usage, **fields)
        assert answer.status_code == 200
        parts = chat_stream(answer.text) if streamed else chat_whole(answer.json())
    else:
        answer = await site.respond(stream=streamed, tools=FLAT, **fields)
        parts = response_parts(checked(answer.content) if streamed else answer.json())
    warnings = answer.headers.get("x-gateway-warnings", "") + "".join(comments(answer.text) if streamed else ())
    return parts, [one.strip() for one in warnings.replace(": gateway-warnings ", ",").split(",") if one.strip()]


def chat_stream(text):
    deltas = [choice["delta"] for one in payloads(text)[:-1] for choice in one["choices"]]
    pieces = [made["function"] for delta in deltas for made in delta.get("tool_calls") or ()]
    arguments = "".join(piece.get("arguments") or "" for piece in pieces)
    calls = [(piece["name"], arguments) for piece in pieces if piece.get("name")]
    tokens = payloads(text)[-2]["usage"]["total_tokens"]
    return text_of(text, "reasoning_content"), text_of(text), calls, tokens


def chat_whole(body):
    message = body["choices"][0]["message"]
    made = [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls") or ()]
    return message.get("reasoning_content") or "", message["content"] or "", made, body["usage"]["total_tokens"]


def response_parts(body):
    assert body["status"] == "completed"
    thoughts = [part["text"] for item in body["output"] if item["type"] == "reasoning" for part in item["summary"]]
    texts = [part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]]
    calls = [(item["name"], item["arguments"]) for item in body["output"] if item["type"] == "function_call"]
    return "".join(thoughts), "".join(texts), calls, body["usage"]["total_tokens"]


@STREAMED
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("kind", ["openai", "vllm", "llamacpp", "sglang"])
async def test_empty_turn_is_retried_in_the_same_response(kind, api, streamed):
    async with gateway(EMPTY, ANSWER, backend={"kind": kind}) as site:
        parts, warnings = await ask(site, api, streamed)
        first, second = (post.json for post in site.upstream.posts)
    assert parts == ("I look it up. Now.", "It is sunny.", [], 18)
    assert [one for one in warnings if "empty" in one] == ["emulated:empty"]
    *messages, last = second["messages"]
    if kind == "llamacpp":
        assert last == {"role": "assistant", "content": "", "reasoning_content": "I look it up."}
        assert messages == first["messages"]
    else:
        assert second == first


@STREAMED
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Qwen/Qwen3.8-32B", "<think>I look</think>\n\n<tool_call>\n</tool_call>"),
        ("zai-org/GLM-4.7", "<think>I look</think><tool_call></tool_call>"),
        ("NousResearch/Hermes-4-70B", "<think>I look</think>\n<tool_call>\n{}\n</tool_call>"),
        (
            "moonshotai/Kimi-K2-Thinking",
            "<think>I look</think><|tool_calls_section_begin|><|tool_calls_section_end|>",
        ),
    ],
)
async def test_empty_call_of_a_family_is_retried(name, text, api, streamed):
    empty = stream(*map(chunk, (text[:20], text[20:-7], text[-7:])), chunk(finish="stop"), USAGE)
    answer = stream(chunk("<think>Now."), chunk("</think>\n\nIt is sunny."), chunk(finish="stop"), USAGE)
    async with gateway(empty, answer, backend={"kind": "vllm"}, model={"upstream_model": name}) as site:
        parts, warnings = await ask(site, api, streamed)
    assert parts == ("I lookNow.", "It is sunny.", [], 18) and "emulated:empty" in warnings


@STREAMED
async def test_text_after_a_continued_thought_is_text_if_the_server_parses(streamed):
    async with gateway(EMPTY, PLAIN, backend={"kind": "llamacpp"}) as site:
        parts, _ = await ask(site, "chat", streamed)
    assert parts == ("I look it up.", "It is sunny.", [], 18)


async def test_thought_that_a_server_repeats_is_sent_once():
    again = whole(completion_body("It is sunny.", reasoning_content="I look it up. Now."))
    async with gateway(
        whole(completion_body("", reasoning_content="I look it up.")), again, backend={"kind": "llamacpp"}
    ) as site:
        parts, _ = await ask(site, "chat", False)
    assert parts == ("I look it up. Now.", "It is sunny.", [], 18)


async def test_thought_is_not_continued_if_the_gateway_reads_the_text():
    empty = stream(chunk("<think>I look</think>"), chunk(finish="stop"), USAGE)
    async with gateway(empty, PLAIN, backend={"kind": "llamacpp"}, model={"format": "hermes_json"}) as site:
        parts, _ = await ask(site, "chat", True)
        assert site.upstream_body == site.upstream.posts[0].json
    assert parts[:2] == ("I look", "It is sunny.")


@STREAMED
@pytest.mark.parametrize(
    ("fields", "model"),
    [
        ({"tools": None}, {}),
        ({"tool_choice": "none"}, {}),
        ({"n": 2}, {}),
        ({}, {"enforce": {"empty": "warn"}}),
    ],
)
async def test_empty_turn_is_not_retried_unless_a_tool_may_be_called(fields, model, streamed):
    async with gateway(EMPTY, ANSWER, model=model) as site:
        answer = await site.chat(**{"tools": TOOLS, "stream": streamed, **fields})
        assert len(site.upstream.posts) == 1
    assert ("unenforced:empty" in answer.text + str(answer.headers)) is bool(model)


@STREAMED
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize(
    ("second", "thought", "tokens"),
    [
        (EMPTY, "I look it up.I look it up.", 18),
        (REFUSED, "I look it up.", 9),
        ([CLOSE], "I look it up.", 9),
        ([head(), chunk(reasoning_content="So"), CLOSE], "I look it up.So", 9),
    ],
    ids=["empty", "refused", "no answer", "broken off"],
)
async def test_retry_that_fails_leaves_the_first_turn(second, thought, tokens, api, streamed):
    async with gateway(EMPTY, second) as site:
        parts, warnings = await ask(site, api, streamed)
        assert len(site.upstream.posts) > 1
    assert parts == (thought, "", [], tokens)
    assert "unenforced:empty" in warnings


@STREAMED
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
async def test_forced_call_that_is_missing_after_reasoning_is_retried(choice, streamed):
    async with gateway(EMPTY, CALLED) as site:
        parts, warnings = await ask(site, "chat", streamed, tool_choice=choice)
    assert parts[1:3] == ("", [("weather", '{"city": "Oslo"}')])
    assert "unenforced:tool_choice" not in warnings


@STREAMED
async def test_empty_turn_after_a_hosted_call_is_retried(streamed):
    async with toys() as server, gateway(calling(ECHO), EMPTY, ANSWER, tools=operators(server)) as site:
        answer = await site.respond(stream=streamed, tools=[MCP])
        response = checked(answer.content) if streamed else answer.json()
        posts = [post.json["messages"] for post in site.upstream.posts]
    (made,) = of_type(response, "mcp_call")
    assert made["status"] == "completed" and response_parts(response)[1] == "It is sunny."
    assert [message["role"] for message in posts[2]] == ["user", "assistant", "tool"] and posts[1] == posts[2]


async def test_hosted_call_of_a_retry_is_run():
    async with toys() as server, gateway(EMPTY, calling(ECHO), ANSWER, tools=operators(server)) as site:
        response = checked((await site.respond(stream=True, tools=[MCP])).content)
        assert len(site.upstream.posts) == 3
    (made,) = of_type(response, "mcp_call")
    assert made["status"] == "completed" and response_parts(response)[1] == "It is sunny."


@on_both_loops
async def test_disconnect_in_the_retry_closes_the_upstream_call():
    async with listening(EMPTY, [head(), chunk(reasoning_content="More"), HANG]) as site:
        reader, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        writer.write(request_bytes(stream=True, tools=TOOLS))
        await reader.readuntil(b"More")
        writer.close()
        async with asyncio.timeout(DEADLINE):
            await site.upstream.gone.wait()


# Arguments

RETRY = {"model": {"enforce": {"arguments": "retry"}}}
INVALID, HELPED = "invalid:tool_calls.function.arguments", "emulated:tool_calls.function.arguments"
OSLO = [("weather", '{"city": "Oslo"}')]


def structured(*pieces, finish="tool_calls", text=None):
    """Return a stream with a call in chunks."""
    first, *others = pieces
    calls = [chunk(tool_calls=call("weather", first, id="c9")), *(chunk(tool_calls=call(None, one)) for one in others)]
    return stream(*([chunk(text)] if text else []), *calls, chunk(finish=finish), USAGE)


BROKEN = {
    "cut in a string": (structured('{"city"', ': "Os'), '{"city": "Os'),
    "cut in a key": (structured('{"ci'), '{"ci'),
    "no JSON": (structured("the city of ", "Oslo"), "the city of Oslo"),
    "cut in text": (
        stream(
            chunk('<tool_call>{"name": "weather", "argu'), chunk('ments": {"city": "Os'), chunk(finish="stop"), USAGE
        ),
        '{"city": "Os',
    ),
}


@STREAMED
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("case", BROKEN)
async def test_invalid_arguments_are_retried_if_the_operator_wants_it(case, api, streamed):
    async with gateway(BROKEN[case][0], CALLED, **RETRY) as site:
        parts, warnings = await ask(site, api, streamed)
        first, second = (post.json for post in site.upstream.posts)
    assert parts == ("", "", OSLO, 18) and first == second
    assert HELPED in warnings and INVALID not in warnings


@STREAMED
@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("case", BROKEN)
async def test_invalid_arguments_are_sent_as_they_came_after_a_retry_or_without_one(case, api, streamed):
    script, arguments = BROKEN[case]
    for second, options, tokens in ((script, RETRY, 18), (REFUSED, RETRY, 9), (CALLED, {}, 9)):
        async with gateway(script, second, **options) as site:
            parts, warnings = await ask(site, api, streamed)
            assert len(site.upstream.posts) == (2 if options else 1)
        assert parts == ("", "", [("weather", arguments)], tokens)
        assert INVALID in warnings and HELPED not in warnings


@STREAMED
async def test_text_before_invalid_arguments_stays(streamed):
    async with gateway(structured('{"ci', text="I look. "), structured("{}", text="Again."), **RETRY) as site:
        parts, _ = await ask(site, "chat", streamed)
    assert parts == ("", "I look. Again.", [("weather", "{}")], 18)


@STREAMED
@pytest.mark.parametrize("fields", [{"n": 2}, {}])
async def test_arguments_that_the_limit_cut_are_not_retried(fields, streamed):
    finish = "length" if not fields else "tool_calls"
    async with gateway(structured('{"ci', finish=finish), **RETRY) as site:
        await site.chat(tools=TOOLS, stream=streamed, **fields)
        assert len(site.upstream.posts) == 1


@STREAMED
async def test_response_is_repeated_once_whatever_is_wrong_with_it(streamed):
    for first, second, warning in (
        (EMPTY, structured('{"ci'), INVALID),
        (structured('{"ci'), EMPTY, "unenforced:empty"),
    ):
        async with gateway(first, second, **RETRY) as site:
            _, warnings = await ask(site, "chat", streamed)
            assert len(site.upstream.posts) == 2
        assert warning in warnings


async def test_hosted_call_with_invalid_arguments_is_retried():
    name, _ = ECHO
    broken = stream(chunk(tool_calls=call(name, '{"te', id="c1")), chunk(finish="tool_calls"), USAGE)
    script = broken, calling(ECHO), PLAIN
    async with toys() as server, gateway(*script, tools=operators(server), **RETRY) as site:
        response = checked((await site.respond(stream=True, tools=[MCP])).content)
        assert len(site.upstream.posts) == 3
    (made,) = of_type(response, "mcp_call")
    assert made["status"] == "completed" and response_parts(response)[1] == "It is sunny."
