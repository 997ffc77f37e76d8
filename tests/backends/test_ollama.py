"""Test the native API of Ollama: its responses, streamed and whole, in both client APIs."""

import json
from itertools import count

import httpx
import pytest

from gateway.backends.ollama import OllamaDecoder
from gateway.errors import Problem
from gateway.events import (
    ExtraField,
    Failure,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolArgsDelta,
    ToolCallEnd,
    ToolCallStart,
    Usage,
)
from gateway.formats import FORMATS
from gateway.formats.parser import ParseContext
from gateway.pipeline.tool_calls import ParserSettings
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.server.app import create_app
from gateway.warnings import Warnings
from support.app import Site, gateway, problem, settings
from support.ollama import NAME, Turn, calls, content_line, ollama, thinks
from support.ollama_gateway import CITY, FLAT, TOOLS, USER, site
from support.pipeline import merge, singly
from support.sampling import places
from support.sse import events, payloads
from support.upstream import END, HANG, head, whole

BAD, FAULT = "invalid_request_error", "server_error"
ONCE = {"enforce": {"empty": "warn"}}  # a thought alone is not asked for again


# Responses


LONG = "Ein Vogel 🐦 sagt „é“ und \u2028 mehr. " * 40
ARGS = '{"city":"Oslo"}'
ONE_CALL = ("weather", {"city": "Oslo"}, "call_ab12cd34")
OTHER_CALL = ("clock", {}, "call_ef56gh78")
HERMES = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
CHANCES = [{"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [{"token": "Hi", "logprob": -0.5}]}]
ANSWERS = {  # the lines of Ollama: reasoning, content, tool calls, finish reason
    "text": (Turn([content_line("Hi")]), "", "Hi", [], "stop"),
    "text in pieces": (Turn([content_line("H"), content_line("i"), content_line(" you")]), "", "Hi you", [], "stop"),
    "long text": (Turn([content_line(LONG[i : i + 7]) for i in range(0, len(LONG), 7)]), "", LONG, [], "stop"),
    "quotes and lines": (Turn([content_line('a "b"\n'), content_line("\\n {}")]), "", 'a "b"\n\\n {}', [], "stop"),
    "white space": (Turn([content_line("a"), content_line(" "), content_line("\n"), content_line("b")]), "", "a \nb", [], "stop"),
    "nothing": (Turn([]), "", "", [], "stop"),
    "empty lines of text": (Turn([content_line(""), content_line("")]), "", "", [], "stop"),
    "empty text between": (Turn([content_line("a"), content_line(""), content_line("b")]), "", "ab", [], "stop"),
    "text on the last line": (
        Turn(raw=b'{"message":{"role":"assistant","content":"Hi"},"done":true,"done_reason":"stop"}\n'), "", "Hi", [], "stop"),
    "no role": (Turn(raw=b'{"message":{"content":"Hi"},"done":false}\n{"done":true}\n'), "", "Hi", [], "stop"),
    "no reason": (Turn(raw=b'{"message":{"content":"Hi"},"done":true}\n'), "", "Hi", [], "stop"),
    "no line end": (Turn(raw=b'{"message":{"content":"Hi"}}\n{"done":true,"done_reason":"length"}'), "", "Hi", [], "length"),
    "other line ends": (Turn(raw=b'{"message":{"content":"Hi"}}\r\n\r\n{"done":true}\r\n'), "", "Hi", [], "stop"),
    "content that is null": (Turn(raw=b'{"message":{"content":null,"thinking":"Hm"}}\n{"message":{"content":"Hi"},"done":true}\n'), "Hm", "Hi", [], "stop"),
    "members of tomorrow": (Turn(raw=b'{"message":{"content":"Hi","mood":{}},"x":[1]}\n{"done":true,"y":null}\n'), "", "Hi", [], "stop"),
    "half a character": (Turn(raw=b'{"message":{"content":"H\\ud83di"}}\n{"done":true}\n'), "", "H\ufffdi", [], "stop"),
    "a thought": (Turn([thinks("Hm"), thinks("m."), content_line("Hi")]), "Hmm.", "Hi", [], "stop"),
    "a thought and text in one line": (Turn([thinks("Hm", "Hi")]), "Hm", "Hi", [], "stop"),
    "a thought alone": (Turn([thinks("Hm")]), "Hm", "", [], "stop"),
    "a thought that is cut": (Turn([thinks("Hm")], reason="length"), "Hm", "", [], "length"),
    "text that is cut": (Turn([content_line("Hi")], reason="length"), "", "Hi", [], "length"),
    "a thought, text, a thought": (Turn([thinks("a"), content_line("b"), thinks("c"), content_line("d")]), "ac", "bd", [], "stop"),
    "loaded": (Turn([], reason="load", prompt=0, written=0), "", "", [], "stop"),
    "unloaded": (Turn([], reason="unload", prompt=0, written=0), "", "", [], "stop"),
    "a reason of tomorrow": (Turn([content_line("Hi")], reason="bored"), "", "Hi", [], "stop"),
    "a call": (Turn([calls(ONE_CALL)]), "", "", [("weather", ARGS)], "tool_calls"),
    "a call without arguments": (Turn([calls(OTHER_CALL)]), "", "", [("clock", "{}")], "tool_calls"),
    "a call without its id": (Turn([calls(ONE_CALL[:2])]), "", "", [("weather", ARGS)], "tool_calls"),
    "calls in one line": (Turn([calls(ONE_CALL, OTHER_CALL)]), "", "", [("weather", ARGS), ("clock", "{}")], "tool_calls"),
    "calls in lines of their own": (
        Turn([calls(ONE_CALL), calls(OTHER_CALL)]), "", "", [("weather", ARGS), ("clock", "{}")], "tool_calls"),
    "calls of one id": (
        Turn([calls(ONE_CALL), calls(ONE_CALL)]), "", "", [("weather", ARGS)], "tool_calls"),
    "the same call twice without ids": (
        Turn([calls(ONE_CALL[:2], ONE_CALL[:2])]), "", "", [("weather", ARGS), ("weather", ARGS)], "tool_calls"),
    "text and a call": (Turn([content_line("Wait."), calls(ONE_CALL)]), "", "Wait.", [("weather", ARGS)], "tool_calls"),
    "text and a call in one line": (Turn([calls(ONE_CALL, content="Wait.")]), "", "Wait.", [("weather", ARGS)], "tool_calls"),
    "a thought and a call": (Turn([thinks("Hm"), calls(ONE_CALL)]), "Hm", "", [("weather", ARGS)], "tool_calls"),
    "a thought and a call in one line": (Turn([calls(ONE_CALL, thinking="Hm")]), "Hm", "", [("weather", ARGS)], "tool_calls"),
    "a call on the last line": (
        Turn(raw=b'{"message":{"content":"","tool_calls":[{"id":"call_1","function":{"index":0,"name":"weather","arguments":{"city":"Oslo"}}}]},"done":true,"done_reason":"stop"}\n'),
        "", "", [("weather", ARGS)], "tool_calls"),
    "arguments as a text": (
        Turn([calls(("weather", ARGS))]), "", "", [("weather", ARGS)], "tool_calls"),
    "no arguments at all": (Turn([calls(("clock", None))]), "", "", [("clock", "{}")], "tool_calls"),
    "calls that are cut off behind": (Turn([calls(ONE_CALL)], reason="length"), "", "", [("weather", ARGS)], "length"),
    "a name that nobody offered": (Turn([calls(("rm", {"a": [1, {"b": None}]}))]), "", "", [("rm", '{"a":[1,{"b":null}]}')], "tool_calls"),
    "a call in the text": (Turn([content_line(HERMES[:9]), content_line(HERMES[9:])]), "", "", [("weather", '{"city": "Oslo"}')], "tool_calls"),
    "text around a call in it": (Turn([content_line("Wait. " + HERMES)]), "", "Wait.", [("weather", '{"city": "Oslo"}')], "tool_calls"),
    "a thought in the text": (Turn([content_line("<think>Hm</think>"), content_line("Hi")]), "Hm", "Hi", [], "stop"),
    "no counts": (Turn([content_line("Hi")], prompt=0, written=0), "", "Hi", [], "stop"),
}  # fmt: skip
UNLIKE = {  # one index for all calls, or arguments that Ollama never sends
    "calls of one id", "the same call twice without ids", "calls in lines of their own", "arguments as a text",
    "no arguments at all",
}  # fmt: skip
STREAMED = [name for name, (turn, *_) in ANSWERS.items() if turn.raw is None and name not in UNLIKE]


def chat_stream(answer):
    text, thought, made, finish = "", "", [], None
    for chunk in payloads(answer.text):
        for choice in chunk["choices"] if chunk != "[DONE]" else ():
            delta, finish = choice["delta"], choice["finish_reason"] or finish
            text, thought = text + (delta.get("content") or ""), thought + (delta.get("reasoning_content") or "")
            for call in delta.get("tool_calls", ()):
                if "id" in call:
                    made.append([call["function"]["name"], ""])
                made[call["index"]][1] += call["function"].get("arguments", "")
    assert payloads(answer.text)[-1] == "[DONE]"
    return thought, text, [tuple(call) for call in made], finish


def chat_whole(answer):
    (choice,) = answer.json()["choices"]
    message = choice["message"]
    made = [(call["function"]["name"], call["function"]["arguments"]) for call in message.get("tool_calls", ())]
    return message.get("reasoning_content", ""), message["content"] or "", made, choice["finish_reason"]


def response_parts(body):
    thought = text = ""
    made = []
    for item in body["output"]:
        if item["type"] == "reasoning":
            thought += "".join(part["text"] for part in item["summary"])
        elif item["type"] == "message":
            text += "".join(part["text"] for part in item["content"])
        else:
            made.append((item["name"], item["arguments"]))
    stopped = "tool_calls" if made else "stop"
    return thought, text, made, "length" if body["status"] == "incomplete" else stopped


@pytest.mark.parametrize("name", ANSWERS)
async def test_ollama_response_is_the_same_streamed_and_whole_in_both_apis(name):
    turn, *expected = ANSWERS[name]
    expected = tuple(expected)
    async with site(turn, model=ONCE) as one:
        assert chat_stream(await one.chat(stream=True, tools=TOOLS)) == expected
        event = events((await one.respond(stream=True, tools=FLAT)).text)[-1]
        assert response_parts(event["response"]) == expected
        if turn.raw is None:
            assert chat_whole(await one.chat(tools=TOOLS)) == expected
            assert response_parts((await one.respond(tools=FLAT)).json()) == expected
        assert set(one.server.paths) == {"/api/chat"}


@pytest.mark.parametrize("name", ["a thought", "calls in one line", "text and a call", "text in pieces"])
async def test_ollama_response_may_come_in_any_packets(name):
    turn, *expected = ANSWERS[name]
    async with site(turn, pieces=singly) as one:
        assert chat_stream(await one.chat(stream=True, tools=TOOLS)) == tuple(expected)


@pytest.mark.parametrize("name", STREAMED)
async def test_ollama_v1_gives_the_same_response(name):
    turn, *expected = ANSWERS[name]
    async with site(turn, kind="openai", model=ONCE) as one:
        assert chat_stream(await one.chat(stream=True, tools=TOOLS)) == tuple(expected)
        assert set(one.server.paths) == {"/v1/chat/completions"}


# Bytes under every cut


def events_and_warnings(pieces, format="native", whole=False, broken=None, limit=8 << 20):
    ledger = Warnings()
    context = ParseContext({"weather": CITY, "clock": {}})
    parser_settings = ParserSettings(FORMATS[format].parse, context, map("call_{}".format, count()).__next__, ledger)
    up = UpstreamReader(OllamaDecoder(ledger), parser_settings, lambda: 40, limit=limit)
    up.set_content_type("application/json; charset=utf-8" if whole else "application/x-ndjson")
    event_list = [event for piece in pieces for event in up.feed(piece)]
    return merge([*event_list, *(up.fail(broken) if broken else up.close())]), ledger.entries()


@pytest.mark.parametrize("name", [name for name in ANSWERS if name != "long text"])
def test_ollama_events_are_the_same_under_every_cut(name):
    data = ANSWERS[name][0].data()
    expected = events_and_warnings([data], "auto")
    assert events_and_warnings(singly(data), "auto") == expected
    for place in places(len(data), most=len(data)):
        assert events_and_warnings([data[:place], data[place:]], "auto") == expected


def test_ollama_events_have_reasoning_text_and_tool_calls():
    turn = Turn([thinks("Hm", "Hi"), calls(ONE_CALL, OTHER_CALL)])
    event_list, _ = events_and_warnings([turn.data()])
    assert [event for event in event_list if not isinstance(event, Usage | ExtraField)] == [
        ReasoningDelta(0, "Hm"),
        TextDelta(0, "Hi"),
        ToolCallStart(0, 0, "call_ab12cd34", "weather"),
        ToolArgsDelta(0, 0, ARGS),
        ToolCallEnd(0, 0),
        ToolCallStart(0, 1, "call_ef56gh78", "clock"),
        ToolArgsDelta(0, 1, "{}"),
        ToolCallEnd(0, 1),
        Finish(0, "tool_calls"),
    ]


@pytest.mark.parametrize(
    ("counts", "usage", "listed"),
    [
        ({}, Usage(7, 2), []),
        ({"prompt": 0}, Usage(10, 2), ["estimated:usage"]),  # the whole prompt was in the cache
        ({"written": 0}, Usage(7, 0), []),
        ({"prompt": 0, "written": 0}, Usage(10, 1), ["estimated:usage"]),
    ],
)
def test_ollama_usage_is_estimated_if_not_counted(counts, usage, listed):
    event_list, ledger = events_and_warnings([Turn([content_line("Hi")], **counts).data()])
    assert [event for event in event_list if isinstance(event, Usage)] == [usage]
    assert ledger == listed


BROKEN = {
    "an error after text": (b'{"message":{"content":"Hi"}}\n{"error":"out of memory"}\n', "out of memory"),
    "an error with its status": (b'{"message":{"content":"Hi"}}\n{"error":"no memory","status":500}\n', "no memory"),
    "an error without its line end": (b'{"message":{"content":"Hi"}}\n{"error":"out of memory"}', "out of memory"),
    "an error of the runner": (
        b'{"message":{"content":"Hi"}}\n{"error":"{\\"error\\":{\\"code\\":500,\\"message\\":\\"no slot\\"}}"}\n', "no slot"),
    "an error that only looks like one of the runner": (b'{"message":{"content":"Hi"}}\n{"error":"{x"}\n', "{x"),
    "no end": (b'{"message":{"content":"Hi"}}\n', "The backend closed the connection before its response was complete."),
    "half a line": (b'{"message":{"content":"Hi"}}\n{"message":{"con', "The backend closed the connection before its response was complete."),
    "no JSON": (b'{"message":{"content":"Hi"}}\nBad Gateway\n', None),
    "JSON of another kind": (b'{"message":{"content":"Hi"}}\n[1]\n', None),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_ollama_failure_comes_after_the_text_with_its_message(name):
    data, message = BROKEN[name]
    for pieces in ([data], singly(data)):
        event_list, _ = events_and_warnings(pieces)
        assert event_list[0] == TextDelta(0, "Hi") and len(event_list) == 2
        assert isinstance(event_list[1], Failure) and event_list[1].problem.status == 502
        assert message in (None, event_list[1].problem.message)


LOST = Problem(502, "The connection is gone.", "upstream_lost")


def test_ollama_connection_lost_keeps_the_events_before():
    data = Turn([content_line("Hi")]).data()
    assert events_and_warnings([data], broken=LOST) == events_and_warnings([data])
    assert events_and_warnings([data[:-1]], broken=LOST) == events_and_warnings([data])  # only its line end is missing
    event_list, _ = events_and_warnings([data[:-2]], broken=LOST)
    assert event_list == [TextDelta(0, "Hi"), Failure(LOST)]
    event_list, _ = events_and_warnings([data.splitlines()[-1]], whole=True, broken=LOST)
    assert event_list == [Failure(LOST)]


def test_ollama_body_that_is_no_response_is_a_failure():
    for body in (b"{", b"[]", b"", b"<html>"):
        (event,), _ = events_and_warnings([body], whole=True)
        assert isinstance(event, Failure) and event.problem.code == "upstream_error"


def test_ollama_line_that_is_too_long_is_a_failure_after_the_text():
    event_list, _ = events_and_warnings([Turn([content_line("Hi"), content_line("x" * 1000)]).data()], limit=500)
    assert event_list[0] == TextDelta(0, "Hi") and event_list[1].problem.code == "frame_too_long"


def test_ollama_logprobs_stay_with_their_text():
    (text, *_), _ = events_and_warnings([Turn([content_line("Hi", logprobs=CHANCES)]).data()])
    assert [(one.token, one.logprob, one.top_logprobs[0].token) for one in text.logprobs] == [("Hi", -0.5, "Hi")]


async def test_ollama_logprobs_are_asked_for_and_sent():
    async with site(Turn([content_line("Hi", logprobs=CHANCES), content_line(" you")])) as one:
        for stream in (True, False):
            answer = await one.chat(stream=stream, logprobs=True, top_logprobs=1)
            bodies = [answer.json()] if not stream else payloads(answer.text)[:-1]
            found = [c["logprobs"]["content"] for body in bodies for c in body["choices"] if c.get("logprobs")]
            assert [token["token"] for tokens in found for token in tokens] == ["Hi"]
        assert one.server.bodies[-1]["logprobs"] is True and one.server.bodies[-1]["top_logprobs"] == 1


async def test_ollama_tool_call_ids_are_kept_and_missing_ones_made():
    async with site(Turn([calls(ONE_CALL, OTHER_CALL[:2], ("weather", {"city": "Rome"}, ONE_CALL[2]))])) as one:
        message = (await one.chat(tools=TOOLS)).json()["choices"][0]["message"]
    first, second, third = (call["id"] for call in message["tool_calls"])
    assert first == "call_ab12cd34" and len({first, second, third}) == 3
    assert second.startswith("call_") and third.startswith("call_")


async def test_ollama_tool_calls_beyond_one_are_dropped_without_parallel_calls():
    async with site(Turn([calls(ONE_CALL, OTHER_CALL)])) as one:
        answer = await one.chat(tools=TOOLS, parallel_tool_calls=False)
        assert chat_whole(answer) == ("", "", [("weather", ARGS)], "tool_calls")
        assert "parallel_tool_calls" not in one.server.bodies[-1]


async def test_ollama_usage_is_sent():
    async with site(Turn([content_line("Hi")], prompt=11, written=3)) as one:
        assert (await one.chat()).json()["usage"]["total_tokens"] == 14
        streamed = payloads((await one.chat(stream=True, stream_options={"include_usage": True})).text)
        assert streamed[-2]["usage"]["prompt_tokens"] == 11 and streamed[-2]["usage"]["completion_tokens"] == 3
        assert (await one.respond()).json()["usage"]["output_tokens"] == 3


# Failures


async def error_of(one, **fields):
    """Return the error of a request that fails before its first output, the same streamed and whole."""
    answers = [await one.chat(stream=stream, **fields) for stream in (True, False)]
    (first, message), *others = [(problem(answer), answer.json()["error"]["message"]) for answer in answers]
    assert others == [(first, message)]
    return first, message


async def test_ollama_model_that_is_missing_is_an_error():
    async with site(Turn(), model={"upstream_model": "gone"}) as one:
        assert await error_of(one) == ((404, BAD, "model_not_found", "model"), "model 'gone' not found")


async def test_ollama_model_without_tools_is_an_error():
    async with site(Turn(), able=("completion",)) as one:
        expected = (400, BAD, None, None), f"registry.ollama.ai/library/{NAME} does not support tools"
        assert await error_of(one, tools=TOOLS) == expected


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (500, "llama runner process has terminated", (502, FAULT, "upstream_error", None)),
        (503, "server busy, please try again.  maximum pending requests exceeded", (503, FAULT, "server_is_overloaded", None)),
        (400, "the input length exceeds the context length", (400, BAD, "context_length_exceeded", "messages")),
        (400, "the prompt is longer than the context length currently available to the model; shorten the prompt",
         (400, BAD, "context_length_exceeded", "messages")),
        (401, "unauthorized", (502, FAULT, "upstream_auth_error", None)),
    ],
)  # fmt: skip
async def test_ollama_failure_before_the_first_output_has_its_status(status, message, expected):
    async with site(Turn(error=message, status=status)) as one:
        assert (await error_of(one))[0] == expected


async def test_ollama_failure_after_output_is_sent_with_its_message():
    async with site(Turn([content_line("Hi")], error="llama-server returned invalid tool call arguments")) as one:
        payloads_sent = payloads((await one.chat(stream=True)).text)
        assert payloads_sent[-1]["error"]["message"] == "llama-server returned invalid tool call arguments"
        assert [choice["delta"].get("content") for one in payloads_sent[:-1] for choice in one["choices"]][-1] == "Hi"
        event = events((await one.respond(stream=True)).text)[-1]
        assert event["type"] == "response.failed"
        assert event["response"]["error"]["message"] == "llama-server returned invalid tool call arguments"
        assert (await one.chat()).status_code == 502


async def test_ollama_prompt_that_is_too_long_is_refused():
    long = [{"role": "user", "content": "word " * 20}, USER]
    async with site(Turn([content_line("Hi")]), window=10) as one:
        (status, *_), message = await error_of(one, messages=long)
        assert (status, _[1]) == (400, "context_length_exceeded") and message.startswith("request (999 tokens) exceeds")
        assert (await one.chat(messages=long, options={"num_ctx": 100})).status_code == 200
        assert len(one.server.seen) == 2
        assert (await one.chat(messages=long, truncate=True)).status_code == 200
        assert one.server.seen == [USER]


async def test_ollama_prompt_is_truncated_if_the_response_allows_it():
    past = [{"role": "user", "content": "word " * 20}, {"role": "assistant", "content": "Yes."}, USER]
    async with site(Turn([content_line("Hi")]), window=10) as one:
        answer = await one.respond(input=past, truncation="auto")
        assert answer.status_code == 200 and "truncated:input" in answer.headers["x-gateway-warnings"]
        assert one.server.seen[-1]["content"] == "Hello"


async def test_ollama_response_is_read_by_its_content_type():
    line = {"message": {"role": "assistant", "content": "Hi"}, "done": True, "done_reason": "stop"}
    async with gateway(whole(line), backend={"kind": "ollama"}) as one:
        assert chat_stream(await one.chat(stream=True)) == ("", "Hi", [], "stop")
    async with gateway(
        whole(json.dumps(line).encode() + b"\n", type="Application/X-NDJSON; charset=utf-8"), backend={"kind": "ollama"}
    ) as one:
        assert chat_whole(await one.chat()) == ("", "Hi", [], "stop")


@pytest.mark.parametrize("streamed", [True, False])
async def test_ollama_response_ends_at_its_last_line(streamed):
    lines = [{"message": {"content": "Hi"}}, {"message": {"content": " Bob"}, "done": True, "done_reason": "stop"}]
    body = (json.dumps(line).encode() + b"\n" for line in lines)
    backend = {"kind": "ollama", "timeouts": {"idle": 0}}
    async with gateway([head(type="application/x-ndjson"), *body, HANG], backend=backend) as one:
        answer = await one.chat(stream=streamed)
        assert (chat_stream if streamed else chat_whole)(answer) == ("", "Hi Bob", [], "stop")
        await one.upstream.gone.wait()


async def test_ollama_models_are_listed():
    async with ollama(Turn([content_line("Hi")])) as server:
        app = create_app(settings(server.url, backend={"kind": "ollama"}, model=False))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://gateway", verify=False) as client,
        ):
            assert [one["id"] for one in (await client.get("/v1/models")).json()["data"]] == [NAME]
            assert (await Site(None, client).chat(model=NAME)).status_code == 200


NOTHING = {
    "no body": whole(b""),
    "no lines": [head(type="application/x-ndjson"), END],
    "empty lines": [head(type="application/x-ndjson"), b"\n\n", END],
    "only its end": whole({"done": True, "done_reason": "stop"}),
    "a message that is null": whole({"message": None, "done": True, "eval_count": 1}),
}


@pytest.mark.parametrize("name", NOTHING)
async def test_response_of_ollama_without_a_message_is_a_failure_of_the_backend(name):
    async with gateway(NOTHING[name], backend={"kind": "ollama"}) as site:
        for streamed in (False, True):
            assert problem(await site.chat(stream=streamed)) == (502, "server_error", "upstream_error", None)
