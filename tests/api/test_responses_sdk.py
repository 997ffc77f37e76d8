"""Test the official SDK, sync and async, against a running gateway: it reads responses of every backend style.

The cases are those of test_chat_sdk.py, so that both APIs agree on them.
"""

import asyncio
import json
from typing import NamedTuple

import openai
import pytest

from support.app import listening
from support.sdk_cases import (
    CASES,
    ERRORS,
    LOGPROB,
    REMARK,
    TAGGED,
    USAGE,
    WARNING,
    City,
    Weather,
    finished,
    letters,
    sdk,
    threaded,
)
from support.upstream import DONE, END, RESET, chunk, completion_body, frame, head, stream, whole
from support.wait import DEADLINE

QUESTION = "What is the weather in Oslo and in Rome?"
HERMES = {"format": "hermes_json"}


def function(name, *fields):
    schema = {"type": "object", "properties": {field: {"type": "string"} for field in fields}, "required": [*fields]}
    schema["additionalProperties"] = False
    return {"type": "function", "name": name, "parameters": schema, "strict": True}


TOOLS = [function("weather", "city"), function("clock")]
STATUS = {"length": ("incomplete", "max_output_tokens"), "content_filter": ("incomplete", "content_filter")}


class Answer(NamedTuple):
    """The parts of a response that tests compare."""

    text: str
    thought: str
    calls: tuple
    status: tuple
    kinds: tuple
    tokens: int


def expected(case):
    calls = tuple((name, json.loads(arguments)) for name, arguments in case.calls)
    message = ("message",) if case.text or not (case.calls or case.thought) else ()
    kinds = (*(("reasoning",) if case.thought else ()), *message, *(("function_call",) * len(calls)))
    return Answer(case.text or "", case.thought or "", calls, STATUS.get(case.reason, ("completed", None)), kinds, 9)


def read(response):
    output = response.output
    assert len({item.id for item in output}) == len(output), "ids are unique"
    assert all(item.status == "completed" for item in output[:-1])
    calls = [item for item in output if item.type == "function_call"]
    assert len({item.call_id for item in calls}) == len(calls)
    reason = response.incomplete_details and response.incomplete_details.reason
    return Answer(
        response.output_text,
        "".join(part.text for item in output if item.type == "reasoning" for part in item.summary),
        tuple((item.name, json.loads(item.arguments)) for item in calls),
        (response.status, reason),
        tuple(item.type for item in output),
        response.usage.total_tokens,
    )


def fold(events):
    """Join events as a client without the helper does; the response at the end has to be the same."""
    text, thought, calls, kinds = "", "", {}, []
    assert [event.sequence_number for event in events] == [*range(len(events))]
    for event in events:
        match event.type:
            case "response.output_item.added":
                assert event.output_index == len(kinds)
                kinds.append(event.item.type)
                if event.item.type == "function_call":
                    calls[event.item.id] = [event.item.name, ""]
            case "response.output_text.delta":
                text += event.delta
            case "response.reasoning_summary_text.delta":
                thought += event.delta
            case "response.function_call_arguments.delta":
                calls[event.item_id][1] += event.delta
    final = read(events[-1].response)
    pieces = tuple((name, json.loads(arguments)) for name, arguments in calls.values())
    assert final == final._replace(text=text, thought=thought, calls=pieces, kinds=tuple(kinds))
    return final


def fields(**more):
    return {"model": "m", "input": QUESTION, "tools": TOOLS, "store": False, **more}


async def whole_async(site):
    async with sdk(site) as client:
        return read(await client.responses.create(**fields()))


async def events_async(site):
    async with sdk(site) as client:
        return fold([event async for event in await client.responses.create(**fields(stream=True))])


async def helper_async(site):
    async with sdk(site) as client, client.responses.stream(**fields()) as events:
        async for _ in events:
            pass
        return read(await events.get_final_response())


def helper_sync(client):
    with client.responses.stream(**fields()) as events:
        return read(events.get_final_response())


WAYS = {
    "create": (False, whole_async),
    "create, sync": (False, threaded(lambda client: read(client.responses.create(**fields())))),
    "events": (True, events_async),
    "events, sync": (True, threaded(lambda client: fold(list(client.responses.create(**fields(stream=True)))))),
    "helper": (True, helper_async),
    "helper, sync": (True, threaded(helper_sync)),
}


@pytest.mark.parametrize("case", CASES)
async def test_sdk_reads_the_same_response_in_each_way(case):
    case = CASES[case]
    ways = WAYS
    if case.reason in STATUS:  # the helper raises for these, as a test below shows
        ways = {name: way for name, way in WAYS.items() if "helper" not in name}
    async with listening(
        *(case.streamed if streamed else case.whole for streamed, _ in ways.values()), **WARNING
    ) as site:
        for name, (_, ask) in ways.items():
            assert await ask(site) == expected(case), name


@pytest.mark.parametrize("case", CASES)
async def test_sdk_reads_a_response_that_upstream_sent_in_the_other_form(case):
    case = CASES[case]
    async with listening(case.streamed, case.whole, **WARNING) as site:
        for name in ("create", "events"):
            _, ask = WAYS[name]
            assert await ask(site) == expected(case), name


@pytest.mark.parametrize("case", ["cut", "filtered"])
async def test_sdk_helper_raises_for_a_cut_response_after_all_its_events(case):
    async with listening(CASES[case].streamed) as site, sdk(site) as client, client.responses.stream(**fields()) as all:
        events = [event async for event in all]
        assert events[-1].type == "response.incomplete"
        assert events[-1].response.output[0].status == "incomplete"
        with pytest.raises(RuntimeError, match=r"response\.completed"):
            await all.get_final_response()


async def both(case, request, *, model=None):
    """Return the response to a whole request, the one that the helper builds from a stream, and all its events."""
    async with listening(case.whole, case.streamed, model=model) as site, sdk(site) as client:
        whole = await client.responses.create(**request)
        async with client.responses.stream(**request) as events:
            seen = [event async for event in events]
            streamed = await events.get_final_response()
    return whole, streamed, seen


class Script(NamedTuple):
    """An upstream response in both forms."""

    whole: list
    streamed: list


def raw(text):
    return Script(finished({"content": text}, "stop"), letters(text))


def tagged(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


async def test_sdk_parses_a_json_response_whole_and_streamed():
    script = raw('{"city": "Oslo", "degrees": 7}')
    request = {"model": "m", "input": QUESTION, "text_format": Weather}
    async with listening(script.whole, script.streamed) as site, sdk(site) as client:
        parsed = await client.responses.parse(**request)
        assert parsed.output_parsed == Weather(city="Oslo", degrees=7)
        sent = site.upstream_body["response_format"]
        assert (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["strict"]) == (
            "json_schema",
            "Weather",
            True,
        )
        assert parsed.text.format.type == "json_schema"
        async with client.responses.stream(**request) as events:
            done = [event.parsed async for event in events if event.type == "response.output_text.done"]
            assert [(await events.get_final_response()).output_parsed] == done == [Weather(city="Oslo", degrees=7)]


async def test_tool_call_arguments_are_parsed_and_streamed_as_events():
    request = {"model": "m", "input": QUESTION, "tools": [openai.pydantic_function_tool(City, name="weather")]}
    request["tools"] = [{"type": "function", **request["tools"][0]["function"]}]
    whole, streamed, seen = await both(raw(TAGGED), request)
    deltas = [event.delta for event in seen if event.type == "response.function_call_arguments.delta"]
    assert len(deltas) > 1 and json.loads("".join(deltas)) == {"city": "Oslo"}
    (done,) = [event for event in seen if event.type == "response.function_call_arguments.done"]
    for response in (whole, streamed):
        (item,) = response.output
        assert (item.name, item.arguments) == ("weather", done.arguments)


PATCH = '*** Begin\n-"old" \\ line\n+né 😀\ttab\n*** End'


async def test_custom_tool_input_is_plain_text():
    request = {
        "model": "m",
        "input": QUESTION,
        "tools": [{"type": "custom", "name": "patch", "format": {"type": "text"}}],
    }
    whole, streamed, seen = await both(raw(tagged("patch", input=PATCH)), request, model=HERMES)
    deltas = [event.delta for event in seen if event.type == "response.custom_tool_call_input.delta"]
    assert len(deltas) > 5 and "".join(deltas) == PATCH
    for response in (whole, streamed):
        (item,) = response.output
        assert (item.type, item.name, item.input) == ("custom_tool_call", "patch", PATCH)


async def test_tool_call_of_a_namespace_has_its_namespace():
    request = {"model": "m", "input": QUESTION}
    request["tools"] = [
        {"type": "namespace", "name": "geo", "description": "Places.", "tools": [function("weather", "city")]}
    ]
    script = raw(tagged("geo__weather", city="Oslo"))
    async with listening(script.whole, script.streamed, model=HERMES) as site, sdk(site) as client:
        whole = await client.responses.create(**request)
        assert [tool["function"]["name"] for tool in site.upstream_body["tools"]] == ["geo__weather"]
        async with client.responses.stream(**request) as events:
            streamed = await events.get_final_response()
    for response in (whole, streamed):
        (item,) = response.output
        assert (item.name, item.namespace, json.loads(item.arguments)) == ("weather", "geo", {"city": "Oslo"})


async def test_refusal_is_the_same_whole_and_streamed():
    script = Script(
        whole(completion_body(None, refusal="No.")),
        stream(chunk(refusal="N"), chunk(refusal="o."), chunk(finish="stop"), USAGE),
    )
    whole_one, streamed, seen = await both(script, {"model": "m", "input": QUESTION})
    assert "".join(event.delta for event in seen if event.type == "response.refusal.delta") == "No."
    for response in (whole_one, streamed):
        (part,) = response.output[0].content
        assert (response.status, part.type, part.refusal, response.output_text) == ("completed", "refusal", "No.", "")


async def test_logprobs_come_with_their_text():
    parts = {"content": [LOGPROB]}
    body = completion_body("Hi")
    body["choices"][0]["logprobs"] = parts
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": parts, "finish_reason": None}
    script = Script(whole(body), stream(frame(choices=[choice]), chunk(finish="stop"), USAGE))
    request = {"model": "m", "input": QUESTION, "include": ["message.output_text.logprobs"], "top_logprobs": 1}
    whole_one, streamed, seen = await both(script, request)
    (delta,) = [event for event in seen if event.type == "response.output_text.delta"]
    assert (delta.logprobs[0].token, delta.logprobs[0].top_logprobs[0].logprob) == ("Hi", -0.25)
    for response in (whole_one, streamed):
        (one,) = response.output[0].content[0].logprobs
        assert (one.token, one.logprob, one.bytes, one.top_logprobs[0].token) == ("Hi", -0.25, [72, 105], "Hi")


async def test_annotations_are_kept():
    script = Script(
        whole(completion_body("Hi", annotations=[REMARK])),
        stream(chunk("Hi", annotations=[REMARK]), chunk(finish="stop"), USAGE),
    )
    whole_one, streamed, seen = await both(script, {"model": "m", "input": QUESTION})
    (added,) = [event for event in seen if event.type == "response.output_text.annotation.added"]
    assert added.annotation.url == "https://example.org"
    for response in (whole_one, streamed):
        (remark,) = response.output[0].content[0].annotations
        assert (remark.type, remark.url, remark.end_index) == ("url_citation", "https://example.org", 2)


async def test_usage_is_counted_in_detail():
    counts = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    counts |= {"prompt_tokens_details": {"cached_tokens": 3}, "completion_tokens_details": {"reasoning_tokens": 1}}
    script = Script(
        whole({**completion_body("Hi"), "usage": counts}),
        stream(chunk("Hi"), chunk(finish="stop"), frame(choices=[], usage=counts)),
    )
    for response in (await both(script, {"model": "m", "input": QUESTION}))[:2]:
        usage = response.usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 2, 9)
        assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (3, 1)


async def test_warning_of_a_dropped_tool_is_in_a_header():
    tools = [*TOOLS, {"type": "web_search"}]
    async with listening(raw("Hi").whole, raw("Hi").streamed) as site, sdk(site) as client:
        for more in ({}, {"stream": True}):
            answer = await client.responses.with_raw_response.create(**fields(tools=tools, **more))
            assert "dropped:tools.web_search" in answer.headers["x-gateway-warnings"].split(", ")
            assert answer.headers["x-request-id"].startswith("req_")


# Reasoning

CARRIERS = [
    ("summary", {}, ["Hmm."], []),
    ("text", {}, [], ["Hmm."]),
    ("both", {}, ["Hmm."], ["Hmm."]),
    ("hidden", {}, [], []),
    ("summary", {"include": ["reasoning.content"]}, [], ["Hmm."]),
    ("text", {"reasoning": {"summary": "auto"}}, ["Hmm."], []),
]


@pytest.mark.parametrize(("setting", "request_fields", "summary", "content"), CARRIERS)
async def test_reasoning_is_in_the_fields_that_operator_and_client_choose(setting, request_fields, summary, content):
    model = {"reasoning": {"as": setting}}
    whole, streamed, seen = await both(
        CASES["tagged thought"], {"model": "m", "input": QUESTION, **request_fields}, model=model
    )
    for response in (whole, streamed):
        thoughts = [item for item in response.output if item.type == "reasoning"]
        assert [part.text for item in thoughts for part in item.summary] == summary
        assert [part.text for item in thoughts for part in item.content or ()] == content
        assert response.output_text == "Hello"
    for kind, parts in (("reasoning_summary_text", summary), ("reasoning_text", content)):
        deltas = [event.delta for event in seen if event.type == f"response.{kind}.delta"]
        assert "".join(deltas) == "".join(parts)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("setting", ["summary", "text", "hidden"])
async def test_conversation_continues_with_the_output_of_the_sdk(setting, streamed):
    """The backend gets the reasoning back, also if the client could not read it."""
    first = CASES["a thought, a word and a call"]
    answer = raw("Both are fine.")
    scripts = (first.streamed, answer.streamed) if streamed else (first.whole, answer.whole)
    async with listening(*scripts, model={"reasoning": {"as": setting}}) as site, sdk(site) as client:

        async def ask(items):
            request = fields(input=items, include=["reasoning.encrypted_content"])
            if not streamed:
                return await client.responses.create(**request)
            async with client.responses.stream(**request) as events:
                return await events.get_final_response()

        begun = await ask([{"role": "user", "content": QUESTION}])
        thought, message, called = begun.output
        assert thought.encrypted_content.startswith("gw1.") and "Hmm" not in thought.encrypted_content
        assert (message.content[0].text, called.name) == ("Wait.", "weather")
        result = {"type": "function_call_output", "call_id": called.call_id, "output": "fine"}
        ended = await ask([{"role": "user", "content": QUESTION}, *begun.output, result])
        assert ended.output_text == "Both are fine."
        question, past, output = site.upstream_body["messages"]
        assert (question["content"], output["content"]) == (QUESTION, "fine")
        assert (past["content"], past["reasoning_content"]) == ("Wait.", "Hmm.")
        assert [one["id"] for one in past["tool_calls"]] == [output["tool_call_id"]] == [called.call_id]


# Failures


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("script", "error", "code"), ERRORS)
async def test_sdk_raises_the_exception_of_a_backend_error(script, error, code, streamed):
    async with listening(script) as site, sdk(site) as client:
        with pytest.raises(error) as caught:
            await client.responses.create(model="m", input=QUESTION, stream=streamed)
        assert caught.value.code == code
        assert caught.value.request_id.startswith("req_")


async def test_sdk_raises_the_exception_of_a_gateway_error():
    keys = {"keys": [{"name": "a", "key": "right-key", "models": ["m"]}]}
    async with listening(whole(completion_body()), auth=keys, more_models={"z": {}}) as site, sdk(site) as client:
        ask = client.with_options(api_key="right-key").responses.create
        for error, code, param, pending in (
            (openai.AuthenticationError, "invalid_api_key", None, client.responses.create(model="m", input="Hi")),
            (openai.PermissionDeniedError, "model_not_allowed", "model", ask(model="z", input="Hi")),
            (openai.NotFoundError, "model_not_found", "model", ask(model="none", input="Hi")),
            (
                openai.BadRequestError,
                "decimal_above_max_value",
                "temperature",
                ask(model="m", input="Hi", temperature=3),
            ),
            (openai.BadRequestError, "missing_required_parameter", "input", ask(model="m")),
            (openai.BadRequestError, "missing_required_parameter", "input", ask(model="m", input=[])),
            (
                openai.BadRequestError,
                "previous_response_not_found",
                "previous_response_id",
                ask(model="m", input="Hi", previous_response_id="resp_1"),
            ),
            (openai.NotFoundError, None, "conversation", ask(model="m", input="Hi", conversation="conv_1")),
        ):
            with pytest.raises(error) as caught:
                await pending
            assert (caught.value.code, caught.value.param) == (code, param)


@pytest.mark.parametrize("more", [{"background": True, "store": False}, {"prompt": {"id": "pmpt_1"}}])
async def test_request_with_unsupported_fields_is_refused(more):
    async with listening(whole(completion_body())) as site, sdk(site) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model="m", input="Hi", **more)
        assert caught.value.param == next(iter(more)) and not site.upstream.posts


async def test_sdk_raises_for_an_error_in_a_stream_after_its_content():
    async with listening([head(), chunk("Hel"), chunk("lo"), RESET]) as site, sdk(site) as client:
        got = ""
        with pytest.raises(openai.APIError, match=r"closed|broke") as caught:
            async for one in await client.responses.create(model="m", input=QUESTION, stream=True):
                got += one.delta if one.type == "response.output_text.delta" else ""
        assert (got, caught.value.code) == ("Hello", "upstream_lost")


async def test_stream_error_is_an_error_event_and_a_failed_response():
    """A client that reads on after the error event gets the failed response."""
    async with listening([head(), chunk("Hel"), chunk("lo"), RESET]) as site:
        answer = await site.client.post("/v1/responses", json={"model": "m", "input": QUESTION, "stream": True})
    *_, error, failed, last = answer.text.removesuffix("\n\n").split("\n\n")
    assert last == "data: [DONE]"
    error, failed = (json.loads(block.partition("data: ")[2]) for block in (error, failed))
    assert (error["type"], error["code"], error["error"]["code"]) == ("error", "upstream_lost", "upstream_lost")
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    (item,) = failed["response"]["output"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "Hello")
    assert failed["response"]["error"]["message"] == error["message"]


async def test_sdk_retries_after_a_503():
    async with listening(whole({"error": "busy"}, 503, retry_after="0"), whole(completion_body("Hi"))) as site:
        async with openai.AsyncOpenAI(
            base_url=f"{site.client.base_url}/v1", api_key="k", timeout=DEADLINE, max_retries=1
        ) as client:
            answer = await client.responses.create(model="m", input=QUESTION)
        assert answer.output_text == "Hi"
        assert len(site.upstream.posts) == 2


async def test_keep_alive_events_are_known_to_the_sdk():
    go, seen = asyncio.Event(), []
    script = [head(), chunk("Hel"), go, chunk("lo"), chunk(finish="stop"), USAGE, DONE, END]
    async with (
        listening(script, stream={"keepalive_seconds": 0.02}) as site,
        sdk(site) as client,
        client.responses.stream(model="m", input=QUESTION) as events,
    ):
        async for event in events:
            seen.append(event)
            if [one.type for one in seen].count("response.in_progress") == 4:
                go.set()
        assert (await events.get_final_response()).output_text == "Hello"
    assert [event.sequence_number for event in seen] == [*range(len(seen))]
