"""Test the official SDK, sync and async, against a running gateway: it reads chat completions of every backend style."""

import json
from typing import NamedTuple

import openai
import pytest

from support.app import gateway, listening
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
from support.sse import payloads
from support.upstream import COUNTS, DONE, END, RESET, chunk, completion_body, frame, head, stream, whole
from support.wait import DEADLINE

pytestmark = pytest.mark.smoke

QUESTION = [{"role": "user", "content": "What is the weather in Oslo and in Rome?"}]


def function(name, *fields):
    schema = {"type": "object", "properties": {field: {"type": "string"} for field in fields}, "required": [*fields]}
    return {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}


TOOLS = [function("weather", "city"), function("clock")]


class Answer(NamedTuple):
    """The parts of a completion that tests compare."""

    text: str | None
    thought: str | None
    calls: tuple
    reason: str
    tokens: int


def read(completion):
    (choice,) = completion.choices
    message = choice.message
    assert message.role == "assistant"
    calls = message.tool_calls or ()
    assert len({one.id for one in calls}) == len(calls), "ids are unique"
    assert all(one.id and one.type == "function" for one in calls)
    return Answer(
        message.content,
        getattr(message, "reasoning_content", None),
        tuple((one.function.name, json.loads(one.function.arguments)) for one in calls),
        choice.finish_reason,
        completion.usage.total_tokens,
    )


def expected(case):
    calls = tuple((name, json.loads(args)) for name, args in case.calls)
    return Answer(case.text, case.thought, calls, case.reason, 9)


def fields(**more):
    return {"model": "m", "messages": QUESTION, "tools": TOOLS, **more}


STREAMED = {"stream": True, "stream_options": {"include_usage": True}}


def fold(chunks):
    """Join chunks as a client without the helper does; each field of a tool call comes only once."""
    text, thought, calls, reason, tokens = "", "", {}, None, 0
    for one in chunks:
        if one.usage:
            tokens = one.usage.total_tokens
        for choice in one.choices:
            text += choice.delta.content or ""
            thought += getattr(choice.delta, "reasoning_content", None) or ""
            for piece in choice.delta.tool_calls or ():
                if piece.id:
                    assert piece.index == len(calls)
                    calls[piece.index] = [piece.function.name, ""]
                calls[piece.index][1] += piece.function.arguments
            assert not (reason and choice.finish_reason), "one finish reason"
            reason = choice.finish_reason or reason
    tool_calls = tuple((name, json.loads(arguments)) for name, arguments in calls.values())
    return Answer(text or (None if tool_calls else ""), thought or None, tool_calls, reason, tokens)


async def whole_async(site):
    async with sdk(site) as client:
        return read(await client.chat.completions.create(**fields()))


async def chunks_async(site):
    async with sdk(site) as client:
        return fold([chunk async for chunk in await client.chat.completions.create(**fields(**STREAMED))])


async def helper_async(site):
    options = {"include_usage": True}
    async with sdk(site) as client, client.chat.completions.stream(**fields(stream_options=options)) as events:
        async for _ in events:
            pass
        return read(await events.get_final_completion())


def helper_sync(client):
    with client.chat.completions.stream(**fields(stream_options={"include_usage": True})) as events:
        for _ in events:
            pass
        return read(events.get_final_completion())


WAYS = {
    "create": (False, whole_async),
    "create, sync": (False, threaded(lambda client: read(client.chat.completions.create(**fields())))),
    "chunks": (True, chunks_async),
    "chunks, sync": (True, threaded(lambda client: fold(list(client.chat.completions.create(**fields(**STREAMED)))))),
    "helper": (True, helper_async),
    "helper, sync": (True, threaded(helper_sync)),
}


@pytest.mark.parametrize("case", CASES)
async def test_sdk_reads_the_same_response_in_each_way(case):
    case = CASES[case]
    ways, want = WAYS, expected(case)
    if case.reason in ("length", "content_filter"):  # the helper raises for these, as a test below shows
        ways = {name: way for name, way in WAYS.items() if "helper" not in name}
    async with listening(
        *(case.streamed if streamed else case.whole for streamed, _ in ways.values()), **WARNING
    ) as site:
        for name, (_, ask) in ways.items():
            got = await ask(site)
            assert got._replace(text=got.text or None) == want._replace(text=want.text or None), name


@pytest.mark.parametrize("case", CASES)
async def test_sdk_reads_a_response_that_upstream_sent_in_the_other_form(case):
    case = CASES[case]
    want = expected(case)
    async with listening(case.streamed, case.whole, **WARNING) as site:
        for name in ("create", "chunks"):
            _, ask = WAYS[name]
            got = await ask(site)
            assert got._replace(text=got.text or None) == want._replace(text=want.text or None), name


async def test_sdk_helper_raises_for_a_response_that_was_cut():
    for case, error in (("cut", openai.LengthFinishReasonError), ("filtered", openai.ContentFilterFinishReasonError)):
        async with listening(CASES[case].streamed) as site, sdk(site) as client:
            with pytest.raises(error):
                async with client.chat.completions.stream(**fields()) as events:
                    async for _ in events:
                        pass


async def test_sdk_parses_a_json_response_whole_and_streamed():
    text = '{"city": "Oslo", "degrees": 7}'
    more = {"model": "m", "messages": QUESTION, "response_format": Weather}
    async with listening(finished({"content": text}, "stop"), letters(text)) as site, sdk(site) as client:
        completion = await client.chat.completions.parse(**more)
        assert completion.choices[0].message.parsed == Weather(city="Oslo", degrees=7)
        sent = site.upstream_body["response_format"]
        assert (sent["type"], sent["json_schema"]["name"], sent["json_schema"]["strict"]) == (
            "json_schema",
            "Weather",
            True,
        )
        async with client.chat.completions.stream(**more) as events:
            kinds = [event.type async for event in events]
            assert (await events.get_final_completion()).choices[0].message.parsed == Weather(city="Oslo", degrees=7)
        assert kinds[-1] == "content.done"


async def test_tool_call_arguments_are_parsed_and_streamed_as_events():
    tools = [openai.pydantic_function_tool(City, name="weather")]
    async with listening(letters(TAGGED), finished({"content": TAGGED}, "stop")) as site, sdk(site) as client:
        async with client.chat.completions.stream(model="m", messages=QUESTION, tools=tools) as events:
            seen = [event async for event in events]
        deltas = [event.arguments_delta for event in seen if event.type == "tool_calls.function.arguments.delta"]
        assert json.loads("".join(deltas)) == {"city": "Oslo"}
        (done,) = [event for event in seen if event.type == "tool_calls.function.arguments.done"]
        assert (done.name, done.parsed_arguments) == ("weather", City(city="Oslo"))
        completion = await client.chat.completions.parse(model="m", messages=QUESTION, tools=tools)
        (one,) = completion.choices[0].message.tool_calls
        assert one.function.parsed_arguments == City(city="Oslo")


async def test_choices_stay_apart_in_any_order():
    script = stream(
        chunk("B", index=1), chunk("A", index=0), chunk("b", index=1), chunk("a", index=0),
        chunk(index=1, finish="stop"), chunk(index=0, finish="stop"), USAGE,
    )  # fmt: skip
    body = completion_body("Aa")
    body["choices"].append({"index": 1, "message": {"role": "assistant", "content": "Bb"}, "finish_reason": "length"})
    async with listening(script, whole(body)) as site, sdk(site) as client:
        async with client.chat.completions.stream(model="m", messages=QUESTION, n=2) as events:
            async for _ in events:
                pass
            final = await events.get_final_completion()
        assert [(one.index, one.message.content, one.finish_reason) for one in final.choices] == [
            (0, "Aa", "stop"),
            (1, "Bb", "stop"),
        ]
        answer = await client.chat.completions.create(model="m", messages=QUESTION, n=2)
        assert [(one.message.content, one.finish_reason) for one in answer.choices] == [
            ("Aa", "stop"),
            ("Bb", "length"),
        ]


async def test_logprobs_come_with_their_text():
    parts = {"content": [LOGPROB]}
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": parts, "finish_reason": None}
    body = completion_body("Hi")
    body["choices"][0]["logprobs"] = parts
    more = {"model": "m", "messages": QUESTION, "logprobs": True, "top_logprobs": 1}
    script = stream(frame(choices=[choice]), chunk(finish="stop"), USAGE)
    async with listening(script, whole(body)) as site, sdk(site) as client:
        async with client.chat.completions.stream(**more) as events:
            async for _ in events:
                pass
            streamed = (await events.get_final_completion()).choices[0].logprobs.content
        answered = (await client.chat.completions.create(**more)).choices[0].logprobs.content
        for content in (streamed, answered):
            (one,) = content
            assert (one.token, one.logprob, one.bytes, one.top_logprobs[0].token) == ("Hi", -0.25, [72, 105], "Hi")


async def test_refusal_comes_with_its_logprobs():
    parts = {"refusal": [{**LOGPROB, "token": "No"}]}
    choice = {"index": 0, "delta": {"refusal": "No"}, "logprobs": parts, "finish_reason": None}
    body = completion_body(None, refusal="No")
    body["choices"][0]["logprobs"] = parts
    async with (
        listening(stream(frame(choices=[choice]), chunk(finish="stop"), USAGE), whole(body)) as site,
        sdk(site) as client,
    ):
        async with client.chat.completions.stream(model="m", messages=QUESTION) as events:
            async for _ in events:
                pass
            streamed = (await events.get_final_completion()).choices[0]
        answered = (await client.chat.completions.create(model="m", messages=QUESTION)).choices[0]
        for choice in (streamed, answered):
            assert choice.message.refusal == "No"
            assert not choice.message.content
            assert choice.logprobs.refusal[0].token == "No"
        assert answered.logprobs.content is answered.message.content is None


async def test_annotations_are_kept():
    async with listening(whole(completion_body("Hi", annotations=[REMARK]))) as site, sdk(site) as client:
        (answer,) = (await client.chat.completions.create(model="m", messages=QUESTION)).choices
        assert answer.message.annotations[0].url_citation.url == "https://example.org"
    async with gateway(stream(chunk("Hi", annotations=[REMARK]), chunk(finish="stop"))) as site:
        deltas = [chunk["choices"][0]["delta"] for chunk in payloads((await site.chat(stream=True)).text)[:-1]]
        assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [[REMARK]]


async def test_usage_has_details_and_comes_with_each_chunk_on_request():
    counts = {
        **COUNTS,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    script = stream(
        chunk("Hi"),
        frame(choices=[{"index": 0, "delta": {"content": "!"}}], usage=counts),
        chunk(finish="stop"),
        frame(choices=[], usage=counts),
    )
    async with listening(script) as site, sdk(site) as client:
        options = {"include_usage": True, "continuous_usage_stats": True}
        response_stream = await client.chat.completions.create(
            model="m", messages=QUESTION, stream=True, stream_options=options
        )
        chunks = [chunk async for chunk in response_stream]
        usage = chunks[-1].usage
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 2, 9)
        assert (usage.prompt_tokens_details.cached_tokens, usage.completion_tokens_details.reasoning_tokens) == (3, 1)
        assert [chunk.usage.total_tokens for chunk in chunks if chunk.usage].count(9) >= 3


async def test_reasoning_field_has_the_name_that_the_model_configures():
    async with (
        listening(CASES["tagged thought"].streamed, model={"reasoning": {"field": "both"}}) as site,
        sdk(site) as client,
    ):
        response_stream = await client.chat.completions.create(model="m", messages=QUESTION, stream=True)
        deltas = [one.choices[0].delta async for one in response_stream if one.choices]
        for field in ("reasoning", "reasoning_content"):
            assert "".join(getattr(delta, field, None) or "" for delta in deltas) == "Hmm."
    async with gateway(CASES["tagged thought"].whole, model={"reasoning": {"field": "reasoning"}}) as site:
        message = (await site.chat()).json()["choices"][0]["message"]
        assert message["reasoning"] == "Hmm."
        assert "reasoning_content" not in message


async def test_function_call_of_the_deprecated_api_reaches_the_sdk():
    old = {"model": "m", "messages": QUESTION, "functions": [TOOLS[0]["function"]]}
    case = CASES["native call"]
    async with listening(case.whole, case.streamed) as site, sdk(site) as client:
        (choice,) = (await client.chat.completions.create(**old)).choices
        assert (choice.message.function_call.name, choice.finish_reason) == ("weather", "function_call")
        assert json.loads(choice.message.function_call.arguments) == {"city": "Oslo"}
        response_stream = await client.chat.completions.create(stream=True, **old)
        pieces = [one.choices[0].delta.function_call async for one in response_stream if one.choices]
        assert json.loads("".join(piece.arguments or "" for piece in pieces if piece)) == {"city": "Oslo"}


async def test_models_are_listed_and_retrieved():
    async with listening(whole(completion_body()), model={"aliases": ["nickname"]}) as site, sdk(site) as client:
        assert [one.id async for one in client.models.list()] == ["m", "nickname"]
        assert (await client.models.retrieve("nickname")).owned_by == "gateway"
        with pytest.raises(openai.NotFoundError):
            await client.models.retrieve("none")


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize(("script", "error", "code"), ERRORS)
async def test_sdk_raises_the_exception_of_a_backend_error(script, error, code, streamed):
    async with listening(script) as site, sdk(site) as client:
        with pytest.raises(error) as caught:
            await client.chat.completions.create(model="m", messages=QUESTION, stream=streamed)
        assert caught.value.code == code
        assert caught.value.request_id.startswith("req_")


async def test_sdk_raises_the_exception_of_a_gateway_error():
    keys = {"keys": [{"name": "a", "key": "right-key", "models": ["m"]}]}
    async with listening(whole(completion_body()), auth=keys, more_models={"z": {}}) as site, sdk(site) as client:
        ask = client.with_options(api_key="right-key").chat.completions.create
        for error, code, param, pending in (
            (
                openai.AuthenticationError,
                "invalid_api_key",
                None,
                client.chat.completions.create(model="m", messages=QUESTION),
            ),
            (openai.PermissionDeniedError, "model_not_allowed", "model", ask(model="z", messages=QUESTION)),
            (openai.NotFoundError, "model_not_found", "model", ask(model="none", messages=QUESTION)),
            (
                openai.BadRequestError,
                "decimal_above_max_value",
                "temperature",
                ask(model="m", messages=QUESTION, temperature=3),
            ),
        ):
            with pytest.raises(error) as caught:
                await pending
            assert (caught.value.code, caught.value.param) == (code, param)


async def test_sdk_raises_for_an_error_in_a_stream_after_its_content():
    async with listening([head(), chunk("Hel"), chunk("lo"), RESET]) as site, sdk(site) as client:
        got = ""
        with pytest.raises(openai.APIError, match=r"closed|broke") as caught:
            async for one in await client.chat.completions.create(model="m", messages=QUESTION, stream=True):
                got += one.choices[0].delta.content
        assert (got, caught.value.code) == ("Hello", "upstream_lost")


async def test_sdk_retries_after_a_503():
    async with listening(whole({"error": "busy"}, 503, retry_after="0"), whole(completion_body("Hi"))) as site:
        async with openai.AsyncOpenAI(
            base_url=f"{site.client.base_url}/v1", api_key="k", timeout=DEADLINE, max_retries=1
        ) as client:
            answer = await client.chat.completions.create(model="m", messages=QUESTION)
        assert answer.choices[0].message.content == "Hi"
        assert len(site.upstream.posts) == 2


async def test_sdk_message_is_accepted_back_with_its_tool_results():
    script = [head(), chunk("Both are fine."), chunk(finish="stop"), USAGE, DONE, END]
    async with listening(CASES["tagged parallel calls"].whole, script) as site, sdk(site) as client:
        message = (await client.chat.completions.create(**fields())).choices[0].message
        results = [{"role": "tool", "tool_call_id": one.id, "content": "fine"} for one in message.tool_calls]
        messages = [*QUESTION, message, *results]
        response_stream = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS, stream=True)
        assert (
            "".join([one.choices[0].delta.content or "" async for one in response_stream if one.choices])
            == "Both are fine."
        )
        _, past, *answers = site.upstream_body["messages"]
        assert [one["id"] for one in past["tool_calls"]] == [one["tool_call_id"] for one in answers]
