"""Test compaction: a summary replaces the conversation, at its own endpoint or before a response."""

import asyncio
import json

import openai
import openresponses_types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseCompactionCompactingEvent

from gateway.api.responses import EncoderInputs, SummaryEncoder
from gateway.events import ReasoningDelta, TextDelta
from gateway.request import Request, StoredReasoning, summary_message
from gateway.transforms.context_window import request_after_summary
from gateway.warnings import Warnings
from support.app import gateway, listening, problem
from support.conversations import assistant, user
from support.responses import message_texts
from support.sse import events
from support.upstream import CLOSE, COUNTS, DONE, END, HANG, HELLO, chunk, completion_body, frame, head, stream, whole
from support.wait import DEADLINE, until

BAD = "invalid_request_error"
COUNTER = "/v1/chat/completions/input_tokens"
LLAMACPP = {"backend": {"kind": "llamacpp"}, "model": {"format": "native"}}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
SUMMARY = whole(completion_body("They spoke of Oslo."))
ANSWER = whole(completion_body("It is cold."))
STAND_IN = {"role": "user", "content": "<conversation_summary>They spoke of Oslo.</conversation_summary>"}
TOO_LONG = whole({"error": {"message": "maximum context length is 9 tokens", "code": 400}}, status=400)


QUICK = {"grace_seconds": 0.02, "keepalive_seconds": 0.02}
TALK = [user("Where?"), assistant("In Oslo."), user("And the weather?")]


def compaction_at(threshold):
    return [{"type": "compaction", "compact_threshold": threshold}]


async def compact(site, **fields):
    return await site.client.post("/v1/responses/compact", json={"model": "m", "input": TALK, **fields})


def messages(site):
    return [message["content"] for message in site.upstream_body["messages"]]


def item_types(response):
    return [item["type"] for item in response["output"]]


# The compacted conversation

calls = st.integers(1, 3).map(
    lambda n: [assistant("I look."), *[{"role": "tool", "content": f"{i}"} for i in range(n)]]
)
text_messages = st.sampled_from(["system", "developer", "user", "assistant"]).map(
    lambda role: [{"role": role, "content": "x"}]
)


@given(st.lists(st.one_of(text_messages, calls), min_size=1))
def test_compaction_keeps_instructions_and_unanswered_messages(groups):
    messages = [message for group in groups for message in group]
    left = [*request_after_summary(Request(model="m", messages=tuple(messages)), "Oslo.").messages]
    place = left.index(summary_message("Oslo."))
    before, after = left[:place], left[place + 1 :]
    roles = ("system", "developer")
    assert [one for one in left if one["role"] in roles] == [one for one in messages if one["role"] in roles]
    assert all(one["role"] in roles for one in before) and (not after or after[0]["role"] not in roles)
    assert (before + after)[-1] == messages[-1]
    users = [one for one in left if one["role"] == "user"]
    assert len(users) == 1 + any(one["role"] == "user" for one in messages)
    replies = [i for i, one in enumerate(after) if one["role"] == "tool"]
    assert all(after[i - 1]["role"] in ("assistant", "tool") for i in replies)


def test_compaction_summary_sends_no_bytes_and_becomes_an_item():
    sealed = []
    summary = SummaryEncoder(
        EncoderInputs(lambda prefix: f"{prefix}1", lambda: 1, lambda thought: sealed.append(thought) or "s", str),
        Warnings(),
    )
    outputs = [
        summary.start(),
        summary.encode([ReasoningDelta(0, "Hm.")]),
        summary.encode([TextDelta(0, "Oslo.")]),
        summary.keep_alive(),
    ]
    assert [*outputs, summary.stored_object(), summary.close(stored=False)] == [b"", b"", b"", b"", None, b""]
    assert summary.item() == {"id": "cmp_1", "type": "compaction", "status": "completed", "encrypted_content": "s"}
    assert sealed == [StoredReasoning("Oslo.")]


# /v1/responses/compact


async def test_compaction_output_has_the_user_messages_and_the_summary():
    async with gateway(SUMMARY, ANSWER) as site:
        answer = await compact(site, instructions="Speak French.")
        instructions, *talk, wish = messages(site)
        compacted = answer.json()
        await site.respond(input=[*compacted["output"], user("Go on.")])
        assert site.upstream_body["messages"] == [STAND_IN, user("Go on.")]
        assert (await site.client.get(f"/v1/responses/{compacted['id']}")).status_code == 404
    assert (instructions, talk) == ("Speak French.", [message["content"] for message in TALK])
    assert "summary" in wish
    assert set(compacted) == {"id", "object", "created_at", "output", "usage"}
    assert compacted["object"] == "response.compaction" and compacted["id"].startswith("resp_")
    *users, item = compacted["output"]
    assert message_texts({"output": users}) == ["Where?", "And the weather?"]
    assert all(one["id"] and (one["type"], one["status"]) == ("message", "completed") for one in users)
    assert item["id"].startswith("cmp_") and "Oslo" not in item["encrypted_content"]
    assert compacted["usage"]["total_tokens"] == 9
    assert answer.headers["content-type"] == "application/json"


async def test_compaction_includes_the_previous_response_and_references():
    async with gateway(whole(completion_body("Hello you")), SUMMARY) as site:
        first = (await site.respond(input="Hello")).json()
        reference = {"type": "item_reference", "id": first["output"][0]["id"]}
        chained = (await compact(site, input="And?", previous_response_id=first["id"])).json()
        assert messages(site)[:3] == ["Hello", "Hello you", "And?"]
        referred = (await compact(site, input=[user("Hm?"), reference])).json()
        assert messages(site)[:2] == ["Hm?", "Hello you"]
    assert message_texts(chained) == ["Hello", "And?"] and message_texts(referred) == ["Hm?"]


async def test_compaction_request_leaves_out_tools_and_formats():
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "3"}
    request = {
        "tools": [TOOL],
        "tool_choice": "required",
        "text": {"format": {"type": "json_object"}},
        "top_logprobs": 2,
        "max_output_tokens": 16,
        "stream": True,
        "temperature": 0.5,
    }
    async with gateway(SUMMARY) as site:
        answer = await compact(site, input=[*TALK, call, output], **request)
        assert site.upstream_body.keys() == {"model", "messages", "stream", "temperature"}
        assert [message["role"] for message in site.upstream_body["messages"]][-3:] == ["assistant", "tool", "user"]
    assert item_types(answer.json()) == ["message", "message", "compaction"]


async def test_compaction_summary_has_no_reasoning():
    async with gateway(
        whole(completion_body("<think>Hm.</think>They spoke of Oslo.")), ANSWER, model={"format": "think"}
    ) as site:
        compacted = (await compact(site)).json()
        await site.respond(input=[compacted["output"][-1], user("Go on.")])
        assert site.upstream_body["messages"][0] == STAND_IN


async def test_compaction_summary_that_was_cut_is_a_warning():
    cut = completion_body("They spoke")
    cut["choices"][0]["finish_reason"] = "length"
    async with gateway(whole(cut)) as site:
        answer = await compact(site)
    assert answer.status_code == 200 and answer.headers["x-gateway-warnings"] == "truncated:compaction"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (whole({"error": "busy"}, status=503), (503, "server_error", "server_is_overloaded", None)),
        (whole(completion_body(" \n")), (502, "server_error", "upstream_error", None)),
        (whole(completion_body(None, refusal="I will not.")), (502, "server_error", "upstream_error", None)),
        ([head(type="application/json"), b'{"choices": [', CLOSE], (502, "server_error", "upstream_lost", None)),
        (TOO_LONG, (400, BAD, "context_length_exceeded", "input")),
    ],
)
async def test_compaction_without_a_summary_is_an_error(script, expected):
    async with gateway(script) as site:
        assert problem(await compact(site)) == expected
        assert problem(await site.respond(input=TALK, context_management=compaction_at(1))) == expected
        assert problem(await site.respond(input=TALK, context_management=compaction_at(1), stream=True)) == expected


async def test_compaction_of_a_too_long_conversation_may_truncate_it():
    async with gateway(TOO_LONG, SUMMARY) as site:
        answer = await compact(site, truncation="auto")
        assert len(messages(site)) == 3
    assert answer.status_code == 200 and answer.headers["x-gateway-warnings"] == "truncated:input"
    assert message_texts(answer.json()) == ["Where?", "And the weather?"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": None}, (400, BAD, "missing_required_parameter", "model")),
        ({"model": "other"}, (404, BAD, "model_not_found", "model")),
        ({"input": None}, (400, BAD, "missing_required_parameter", "input")),
        ({"previous_response_id": "resp_x"}, (400, BAD, "previous_response_not_found", "previous_response_id")),
    ],
)
async def test_compaction_refuses_an_invalid_request(fields, expected):
    async with gateway(SUMMARY) as site:
        assert problem(await compact(site, **fields)) == expected
        assert site.upstream.posts == []


async def test_compaction_fits_the_schema_of_open_responses():
    body = {"model": "m", "input": [{"type": "message", **user("Hello")}], "prompt_cache_key": "key"}
    openresponses_types.CompactResponseMethodPublicBody.model_validate_json(json.dumps(body), strict=True)
    async with listening(whole(completion_body("They spoke of Oslo.", reasoning_content="Hm."))) as site:
        answer = await site.client.post("/v1/responses/compact", json=body)
        lacking = await site.client.post("/v1/responses/compact", json={"input": body["input"]})
    compacted = openresponses_types.CompactResource.model_validate_json(answer.text, strict=True)
    assert compacted.object == "response.compaction" and compacted.output[-1].type == "compaction"
    assert problem(lacking) == (400, BAD, "missing_required_parameter", "model")


async def test_compaction_works_with_the_sdk():
    async with (
        listening(SUMMARY, ANSWER) as site,
        openai.AsyncOpenAI(base_url=f"{site.client.base_url}/v1", api_key="none", timeout=DEADLINE) as client,
    ):
        compacted = await client.responses.compact(model="m", input=TALK, prompt_cache_key="key")
        output = [item.model_dump(exclude_unset=True, warnings=False) for item in compacted.output]
        answer = await client.responses.create(model="m", input=[*output, user("Go on.")])
        assert site.upstream_body["messages"] == [STAND_IN, user("Go on.")]
    assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
    assert (compacted.usage.total_tokens, answer.output_text) == (9, "It is cold.")


# context_management


@pytest.mark.parametrize(("threshold", "compacted"), [(41, True), (42, False)])
async def test_compaction_happens_above_the_token_threshold(threshold, compacted):
    scripts = (SUMMARY, ANSWER) if compacted else (ANSWER,)
    async with gateway(*scripts, **LLAMACPP) as site:
        site.upstream.shown[COUNTER] = whole({"input_tokens": 42})
        instructed = {"input": TALK, "instructions": "Be brief."}
        answer = await site.respond(**instructed, context_management=[*compaction_at(99), *compaction_at(threshold)])
        response = answer.json()
        assert len(site.upstream.posts) == len(scripts)
        system = {"role": "system", "content": "Be brief."}
        talk = [STAND_IN, TALK[-1]] if compacted else TALK
        assert site.upstream_body["messages"] == [system, *talk]
    assert item_types(response) == (["compaction", "message"] if compacted else ["message"])
    assert (message_texts(response), response["status"]) == (["It is cold."], "completed")
    assert response["usage"]["total_tokens"] == (18 if compacted else 9)
    assert "x-gateway-warnings" not in answer.headers


@pytest.mark.parametrize("streamed", [False, True])
async def test_compaction_stays_if_a_forced_tool_call_is_retried(streamed):
    called = completion_body(
        None, tool_calls=[{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    )
    async with gateway(SUMMARY, ANSWER, whole(called)) as site:
        fields = {"tools": [TOOL], "tool_choice": "required", "context_management": compaction_at(1)}
        answer = await site.respond(input=TALK, stream=streamed, **fields)
        assert len(site.upstream.posts) == 3
        assert messages(site)[1:-1] == [STAND_IN["content"], "And the weather?", "It is cold."]
    response = events(answer.text)[-1]["response"] if streamed else answer.json()
    assert item_types(response) == ["compaction", "function_call"]
    assert response["usage"]["total_tokens"] == 27 and "It is cold." not in answer.text


async def test_compaction_estimates_the_prompt_if_the_backend_does_not_count():
    async with gateway(ANSWER, SUMMARY, ANSWER) as site:
        short = await site.respond(input=TALK, context_management=compaction_at(1000))
        long = await site.respond(input=[user("Where? " * 1000), *TALK], context_management=compaction_at(1000))
    assert item_types(short.json()) == ["message"] and item_types(long.json()) == ["compaction", "message"]
    assert short.headers["x-gateway-warnings"] == long.headers["x-gateway-warnings"] == "estimated:input_tokens"


async def test_compaction_events_come_before_those_of_the_message():
    streamed = stream(chunk("It is"), chunk(" cold."), chunk(finish="stop"), frame(choices=[], usage=COUNTS))
    async with gateway(SUMMARY, streamed) as site:
        event_list = events((await site.respond(input=TALK, context_management=compaction_at(1), stream=True)).text)
    assert [event["type"].removeprefix("response.") for event in event_list] == [
        "created", "in_progress", "output_item.added", "compaction.compacting", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in event_list] == [*range(len(event_list))]
    added, compacting, done, message = event_list[2:6]
    assert (added["output_index"], done["output_index"], message["output_index"]) == (0, 0, 1)
    assert added["item"]["id"] == done["item"]["id"] == compacting["item_id"]
    ResponseCompactionCompactingEvent.model_validate(compacting, strict=True)
    response = event_list[-1]["response"]
    assert response["output"][0] == done["item"] and message_texts(response) == ["It is cold."]
    assert response["usage"]["total_tokens"] == 18


async def test_compaction_is_read_by_the_stream_of_the_sdk():
    async with (
        listening(SUMMARY, HELLO) as site,
        openai.AsyncOpenAI(base_url=f"{site.client.base_url}/v1", api_key="none", timeout=DEADLINE) as client,
    ):
        request = {"model": "m", "input": TALK, "context_management": compaction_at(1)}
        async with client.responses.stream(**request) as answer:
            types = [event.type async for event in answer]
            response = await answer.get_final_response()
    assert "response.compaction.compacting" in types
    assert [item.type for item in response.output] == ["compaction", "message"] and response.output_text == "Hi"


async def test_compaction_summary_replaces_the_chain_before_it():
    async with gateway(SUMMARY, ANSWER) as site:
        first = (await site.respond(input=TALK, context_management=compaction_at(1))).json()
        kept = (await site.client.get(f"/v1/responses/{first['id']}")).json()
        await site.respond(input="Thanks.", previous_response_id=first["id"])
        assert site.upstream_body["messages"] == [STAND_IN, assistant("It is cold."), user("Thanks.")]
    assert kept["output"] == first["output"]


async def test_compaction_trigger_compacts_at_any_length():
    trigger = {"type": "compaction_trigger"}
    async with gateway(whole(completion_body("Hello you")), SUMMARY, ANSWER) as site:
        first = (await site.respond(input="Hello")).json()
        answer = await site.respond(input=[trigger], previous_response_id=first["id"])
        second = answer.json()
        assert site.upstream_body["messages"] == [STAND_IN, user("Hello"), assistant("Hello you")]
        assert messages_of(site, 1)[:2] == ["Hello", "Hello you"]
        await site.respond(input="Thanks.", previous_response_id=second["id"])
        assert site.upstream_body["messages"] == [STAND_IN, assistant("It is cold."), user("Thanks.")]
    assert item_types(second) == ["compaction", "message"]
    assert "x-gateway-warnings" not in answer.headers, "nothing had to be counted"


def messages_of(site, post):
    return [message["content"] for message in site.upstream.posts[post].json["messages"]]


async def test_compaction_keeps_tool_calls_that_wait_with_their_outputs():
    calls = [{"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}"} for i in range(3)]
    outputs = [{"type": "function_call_output", "call_id": f"c{i}", "output": f"{i}"} for i in range(3)]
    rounds = [item for pair in zip(calls, outputs, strict=True) for item in pair]
    async with gateway(SUMMARY, ANSWER) as site:
        await site.respond(input=[*TALK, *rounds], tools=[TOOL], context_management=compaction_at(1))
        last = site.upstream_body["messages"]
    assert [message["role"] for message in last] == ["user", "user", "assistant", "tool"]
    assert last[0] == STAND_IN and last[1] == TALK[-1]
    assert last[2]["tool_calls"][0]["id"] == last[3]["tool_call_id"] == "c2"


async def test_reasoning_memory_works_after_a_compaction():
    function = {"name": "f", "arguments": "{}"}
    tool_calls = [{"index": 0, "id": "c1", "type": "function", "function": function}]
    call = whole(completion_body(None, reasoning_content="Hm.", tool_calls=tool_calls))
    async with gateway(SUMMARY, call, ANSWER, responses={"reasoning_memory": True}) as site:
        first = (await site.respond(input=TALK, tools=[TOOL], context_management=compaction_at(1))).json()
        made = [item for item in first["output"] if item["type"] == "function_call"]
        output = {"type": "function_call_output", "call_id": made[0]["call_id"], "output": "3"}
        await site.respond(input=[*TALK, *made, output], tools=[TOOL])
        assert site.upstream_body["messages"][-2]["reasoning_content"] == "Hm."


async def test_compaction_works_with_instructions_alone():
    async with gateway(SUMMARY, ANSWER) as site:
        system = {"role": "system", "content": "Be brief."}
        await site.respond(input=[system], context_management=compaction_at(1))
        assert site.upstream_body["messages"] == [system, STAND_IN]


@pytest.mark.parametrize("streamed", [False, True])
async def test_compaction_before_a_failure_gives_the_status_of_the_failure(streamed):
    async with gateway(SUMMARY, whole({"error": "busy"}, status=503, retry_after="7")) as site:
        answer = await site.respond(input=TALK, context_management=compaction_at(1), stream=streamed)
    assert problem(answer) == (503, "server_error", "server_is_overloaded", None)
    assert answer.headers["retry-after"] == "7"


async def test_compaction_sends_keep_alive_events_and_then_its_failure():
    gate = asyncio.Event()
    slow = [head(type="application/json"), gate, b'{"choices": [', CLOSE]
    async with listening(slow, stream=QUICK) as site:
        answer, text = await site.respond_slowly(gate, input=TALK, context_management=compaction_at(1))
        assert len(site.upstream.posts) == 1
    event_types = [event["type"].removeprefix("response.") for event in events(text)]
    assert answer.status_code == 200 and event_types[0] == "created" and event_types[-2:] == ["error", "failed"]
    assert {*event_types[1:-2]} == {"in_progress"} and len(event_types) >= 6


async def test_compaction_that_is_slow_is_followed_by_the_response():
    body = json.dumps(completion_body("They spoke of Oslo.")).encode()
    gate = asyncio.Event()
    slow = [head(type="application/json"), gate, body, END]
    late = [head(), chunk("It is cold."), chunk(finish="stop"), DONE, END]
    async with listening(slow, late, stream=QUICK) as site:
        _, text = await site.respond_slowly(gate, input=TALK, context_management=compaction_at(1))
        assert site.upstream_body["messages"] == [STAND_IN, TALK[-1]]
    response = events(text)[-1]["response"]
    assert (item_types(response), message_texts(response)) == (["compaction", "message"], ["It is cold."])


@pytest.mark.parametrize("scripts", [[[head(), HANG]], [SUMMARY, [head(), HANG]]], ids=["summary", "answer"])
async def test_disconnect_ends_the_upstream_call_in_either_round(scripts):
    async with listening(*scripts) as site:
        task = asyncio.create_task(site.respond(input=TALK, context_management=compaction_at(1)))
        await until(lambda: len(site.upstream.posts), len(scripts))
        task.cancel()
        await until(site.upstream.gone.is_set)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([{"compact_threshold": 5}], ("missing_required_parameter", "context_management[0].type")),
        ([{"type": "other"}], ("invalid_value", "context_management[0].type")),
        (compaction_at(0), ("integer_below_min_value", "context_management[0].compact_threshold")),
        (compaction_at("5"), ("invalid_type", "context_management[0].compact_threshold")),
        ({"type": "compaction"}, ("invalid_type", "context_management")),
    ],
)
async def test_context_management_with_invalid_fields_is_refused(given, expected):
    async with gateway(ANSWER) as site:
        assert problem(await site.respond(context_management=given))[2:] == expected


async def test_context_management_without_a_threshold_is_a_warning():
    async with gateway(ANSWER) as site:
        answer = await site.respond(context_management=[{"type": "compaction"}])
    assert answer.headers["x-gateway-warnings"] == "dropped:context_management"


async def test_compaction_trigger_has_to_be_the_last_item():
    async with gateway(ANSWER) as site:
        answer = await site.respond(input=[{"type": "compaction_trigger"}, user("x")])
        assert problem(answer) == (400, BAD, "unsupported_value", "input[0]")
        assert "last" in answer.json()["error"]["message"]
        assert problem(await site.respond(input=[{"type": "compaction_trigger"}]))[2:] == (
            "missing_required_parameter",
            "input",
        )
