"""Test /v1/responses over HTTP with a scripted upstream: whole, streamed, errors, truncation, reasoning and files."""

import asyncio
import base64
import json

import pytest

from support.app import bearer, gateway, listening, problem
from support.responses import message_texts
from support.sse import comments, events, text_of_stream
from support.upstream import CLOSE, DONE, END, HELLO, RESET, chunk, completion_body, frame, head, whole

BAD = "invalid_request_error"
TOO_LONG = whole(
    {"error": {"message": "This model's maximum context length is 9 tokens.", "type": "BadRequestError", "code": 400}},
    status=400,
)
THOUGHT = whole(completion_body("<think>Hm.</think>Hello"))


def types(text):
    return [event["type"].removeprefix("response.") for event in events(text)]


async def test_whole_response_has_the_shape_of_the_api():
    async with gateway(whole(completion_body("Hello"))) as site:
        answer = await site.respond()
        response = answer.json()
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    assert (response["object"], response["status"], response["model"]) == ("response", "completed", "m")
    assert message_texts(response) == ["Hello"] and response["usage"]["total_tokens"] == 9
    assert response["id"].startswith("resp_")
    assert response["completed_at"] >= response["created_at"] > 1_700_000_000
    assert site.upstream_body == {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": False}


async def test_stream_has_the_events_of_the_api():
    async with gateway(HELLO) as site:
        answer = await site.respond(stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert types(answer.text) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert answer.text.endswith("data: [DONE]\n\n")
    assert site.upstream_body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("stream", [False, True])
async def test_error_before_the_first_event_has_its_status(stream):
    async with gateway(whole({"error": "busy"}, status=503, retry_after="7")) as site:
        answer = await site.respond(stream=stream)
    assert problem(answer) == (503, "server_error", "server_is_overloaded", None)
    assert answer.headers["retry-after"] == "7"


async def test_stream_error_closes_open_items_and_the_response_fails():
    async with gateway([head(), chunk("Hel"), RESET]) as site:
        answer = await site.respond(stream=True)
    found = events(answer.text)
    assert [event["type"].removeprefix("response.") for event in found[4:]] == [
        "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "error", "failed",
    ]  # fmt: skip
    assert found[-2]["code"] == found[-2]["error"]["code"] == "upstream_lost"
    failed = found[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
    assert (message_texts(failed), failed["output"][0]["status"]) == (["Hel"], "incomplete")
    assert answer.text.endswith("data: [DONE]\n\n")


async def test_whole_response_that_breaks_off_is_an_error():
    async with gateway([head(type="application/json"), b'{"choices": [', CLOSE]) as site:
        assert problem(await site.respond())[0] == 502


async def test_keep_alive_events_fill_a_silence():
    go = asyncio.Event()
    now = asyncio.get_running_loop().time

    def on_text(text):
        if text.count("event: response.in_progress") > 3 and not go.is_set():
            assert now() - begun > 0.29, "no more often than every 0.1 seconds"
            go.set()

    script = [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END]
    async with listening(script, stream={"keepalive_seconds": 0.1}) as site:
        begun = now()
        _, text = await text_of_stream(site, "/v1/responses", on_text, input="Hello")
    found = events(text)
    beats = [event for event in found[5:] if event["type"] == "response.in_progress"]
    assert len(beats) >= 3 and all(beat["response"]["output"] == [] for beat in beats)
    assert [event["sequence_number"] for event in found] == [*range(len(found))]


async def test_prompt_too_long_is_an_error_in_both_apis():
    async with gateway(TOO_LONG) as site:
        assert problem(await site.respond()) == (400, BAD, "context_length_exceeded", "input")
        assert problem(await site.chat()) == (400, BAD, "context_length_exceeded", "messages")


@pytest.mark.parametrize("stream", [False, True])
async def test_truncation_shortens_the_prompt_until_it_fits(stream):
    history = [{"role": ("user", "assistant")[i % 2], "content": f"{i}"} for i in range(5)]
    good = HELLO if stream else whole(completion_body("Hello"))
    async with gateway(TOO_LONG, TOO_LONG, good) as site:
        answer = await site.respond(input=history, truncation="auto", stream=stream)
        sizes = [len(post.json["messages"]) for post in site.upstream.posts]
    assert answer.status_code == 200
    assert sizes[0] == 5 and sizes == sorted(sizes, reverse=True) and len({*sizes}) == 3
    assert site.upstream_body["messages"][-1]["content"] == "4"
    assert answer.headers["x-gateway-warnings"] == "truncated:input"


async def test_truncation_that_is_not_enough_is_an_error():
    async with gateway(TOO_LONG) as site:
        answer = await site.respond(input=[{"role": "user", "content": f"{i}"} for i in range(9)], truncation="auto")
        assert problem(answer) == (400, BAD, "context_length_exceeded", "input")
        assert len(site.upstream.posts) <= 6 and len(site.upstream_body["messages"]) == 1


async def test_truncation_is_not_used_for_another_error():
    async with gateway(whole({"error": "no"}, status=400)) as site:
        answer = await site.respond(input=[{"role": "user", "content": f"{i}"} for i in range(9)], truncation="auto")
        assert answer.status_code == 400 and len(site.upstream.posts) == 1


async def test_warnings_known_late_come_before_the_last_event():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk(finish="odd"), frame(choices=[]), DONE, END]
    fields = {"input": "Hello", "tools": [{"type": "web_search"}], "top_k": 1}
    async with listening(script) as site:
        headers, text = await text_of_stream(site, "/v1/responses", lambda _: go.set(), **fields)
    assert headers["x-gateway-warnings"] == "dropped:tools.web_search, forwarded:top_k"
    assert comments(text) == [": gateway-warnings repaired:finish_reason, estimated:usage"]


async def test_strict_mode_refuses_a_tool_that_would_be_dropped():
    async with gateway(HELLO) as site:
        answer = await site.respond(tools=[{"type": "web_search"}], headers={"x-gateway-strict": "1"})
    assert problem(answer) == (400, BAD, "unsupported_parameter", "tools.web_search")


async def test_strict_mode_lets_a_conversation_go_on_without_its_earlier_reasoning():
    """Agents send all items of a conversation with each request."""
    earlier = [
        {"role": "user", "content": "q"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"role": "assistant", "content": "a"},
    ]
    async with gateway(HELLO, model={"strict": True}) as site:
        answer = await site.respond(input=[*earlier, {"role": "user", "content": "r"}])
    assert answer.status_code == 200 and "dropped:input.reasoning" in answer.headers["x-gateway-warnings"]


async def test_reasoning_is_unsealed_only_for_the_api_key_that_received_it():
    keys = [{"name": name, "key": f"{name}-{'k' * 20}"} for name in ("ann", "bob")]
    ann, bob = (bearer(key["key"]) for key in keys)
    settings = {"auth": {"keys": keys}, "model": {"format": "think"}}
    async with gateway(THOUGHT, **settings) as site:
        thought, message = (await site.respond(store=False, headers=ann)).json()["output"]
        assert thought["summary"] == [{"type": "summary_text", "text": "Hm."}]
        assert "Hm." not in thought["encrypted_content"]
        replayed = [
            {"role": "user", "content": "q"},
            {**thought, "summary": []},
            message,
            {"role": "user", "content": "r"},
        ]
        body = {"input": replayed, "reasoning": {"context": "all_turns"}}
        await site.respond(**body, headers=ann)
        assert site.upstream_body["messages"][1] == {
            "role": "assistant",
            "content": "Hello",
            "reasoning_content": "Hm.",
        }
        answer = await site.respond(**body, headers=bob)
        assert "reasoning_content" not in site.upstream_body["messages"][1]
    assert answer.headers["x-gateway-warnings"].startswith("dropped:input.reasoning")


@pytest.mark.parametrize(("carrier", "wanted"), [("text", "content"), ("summary", "summary"), ("hidden", None)])
async def test_reasoning_is_in_the_field_that_the_operator_configures(carrier, wanted):
    async with gateway(THOUGHT, model={"format": "think", "reasoning": {"as": carrier}}) as site:
        thought = (await site.respond()).json()["output"][0]
    found = {name: thought[name][0]["text"] for name in ("summary", "content") if thought.get(name)}
    assert found == ({wanted: "Hm."} if wanted else {})


@pytest.mark.parametrize("carrier", ["summary", "hidden"])
async def test_stored_reasoning_goes_back_to_the_model_whether_or_not_the_client_sees_it(carrier):
    called = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    script = whole(completion_body(None, reasoning_content="Hm.", tool_calls=[called]))
    output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    async with gateway(script, model={"reasoning": {"as": carrier}}) as site:
        first = (await site.respond(tools=[{"type": "function", "name": "f"}])).json()
        await site.respond(input=[output], previous_response_id=first["id"])
        _, past, _ = site.upstream_body["messages"]
        shown = (await site.client.get(f"/v1/responses/{first['id']}")).text
    assert past["reasoning_content"] == "Hm."
    assert "Hm." not in shown or carrier == "summary"


async def test_input_file_is_read_in_both_apis():
    data = "data:text/plain;base64," + base64.b64encode(b"Forty-two.").decode()
    async with gateway(whole(completion_body("Hi"))) as site:
        part = {"type": "input_file", "filename": "a.txt", "file_data": data}
        answer = await site.respond(
            input=[{"role": "user", "content": [part, {"type": "input_text", "text": "What?"}]}]
        )
        of_response = site.upstream_body["messages"]
        part = {"type": "file", "file": {"filename": "a.txt", "file_data": data}}
        await site.chat(messages=[{"role": "user", "content": [part, {"type": "text", "text": "What?"}]}])
    assert of_response == site.upstream_body["messages"]
    assert "Forty-two." in of_response[0]["content"] and of_response[0]["content"].endswith("\nWhat?")
    assert answer.headers["x-gateway-warnings"] == "translated:file"


async def test_input_file_that_is_not_base64_is_an_error_of_the_input():
    part = {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,###"}
    async with gateway(HELLO) as site:
        status, type, _, param = problem(await site.respond(input=[{"role": "user", "content": [part]}]))
    assert (status, type) == (400, BAD) and param.startswith("input")


async def test_config_min_output_tokens_and_repair_dangling_calls_apply():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    async with gateway(HELLO, responses={"min_output_tokens": 1, "repair_dangling_calls": True}) as site:
        answer = await site.respond(input=[{"role": "user", "content": "q"}, call], max_output_tokens=1, stream=True)
    assert answer.status_code == 200 and site.upstream_body["messages"][-1]["role"] == "tool"


async def test_method_other_than_post_is_refused():
    async with gateway(HELLO) as site:
        answer = await site.client.get("/v1/responses")
        assert problem(answer) == (405, BAD, "method_not_supported", None) and answer.headers["allow"] == "POST"
        assert (await site.client.delete("/v1/responses")).status_code == 405
        answer = await site.client.get("/v1/responses", headers={"upgrade": "websocket", "connection": "upgrade"})
        assert problem(answer)[:2] == (426, BAD)
        paths = (await site.client.get("/openapi.json")).json()["paths"]
    schema = paths["/v1/responses"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["model", "input"] and "get" not in paths["/v1/responses"]


async def test_request_with_an_unreadable_body_or_unknown_model_is_refused():
    async with gateway(HELLO) as site:
        assert problem(await site.respond(b"{")) == (400, BAD, None, None)
        assert problem(await site.respond(model="other")) == (404, BAD, "model_not_found", "model")
        assert problem(await site.respond(b"\xff")) == (400, BAD, None, None)
        assert json.loads((await site.respond(input=[])).text)["error"]["param"] == "input"
