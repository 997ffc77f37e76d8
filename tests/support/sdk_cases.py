"""Responses of a server in each style, and the expected results in the official SDK."""

import asyncio
from typing import NamedTuple

import openai
from pydantic import BaseModel

from support.upstream import COUNTS, RESET, call, chunk, completion_body, frame, stream, whole
from support.wait import DEADLINE

USAGE = frame(choices=[], usage=COUNTS)

LOGPROB = {
    "token": "Hi",
    "logprob": -0.25,
    "bytes": [72, 105],
    "top_logprobs": [{"token": "Hi", "logprob": -0.25, "bytes": None}],
}


class Weather(BaseModel):
    """A response in JSON."""

    city: str
    degrees: int


class City(BaseModel):
    """The arguments of a tool call."""

    city: str


def sdk(site, *, timeout=DEADLINE, **more):
    """Return an async client of a site that does not retry."""
    base_url = f"{site.client.base_url}/v1"
    return openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0, timeout=timeout, **more)


def threaded(ask):
    """Return a coroutine function that calls `ask` with a blocking client of a site, in a thread."""

    def run(url):
        with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
            return ask(client)

    return lambda site: asyncio.to_thread(run, f"{site.client.base_url}/v1")


def letters(text):
    """Return raw text as a model streams it: a few characters at a time."""
    pieces = [text[i : i + 3] for i in range(0, len(text), 3)]
    return stream(*map(chunk, pieces), chunk(finish="stop"), USAGE)


def finished(message, reason):
    """Return a whole response with this message and finish reason."""
    body = completion_body(**message)
    body["choices"][0]["finish_reason"] = reason
    return whole(body)


def called(*calls):
    """Return the tool calls of a message."""
    return [{"id": id, "type": "function", "function": {"name": name, "arguments": args}} for id, name, args in calls]


class Case(NamedTuple):
    """One response, streamed and whole, and the expected result in the SDK."""

    streamed: list
    whole: list
    text: str | None
    thought: str | None = None
    calls: tuple = ()
    reason: str = "stop"
    ask: dict = {}  # noqa: RUF012


OSLO, ROME = ("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Rome"}')

TAGGED = '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call>'

TAGGED_TWO = TAGGED + '\n<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'

WARNING = {"model": {"enforce": {"empty": "warn"}}}  # a response may be empty, without a retry

CASES = {
    "text": Case(stream(chunk("He"), chunk("llo"), chunk(finish="stop"), USAGE), finished({"content": "Hello"}, "stop"), "Hello"),
    "nothing": Case(stream(chunk(finish="stop"), USAGE), finished({"content": ""}, "stop"), ""),
    "cut": Case(stream(chunk("He"), chunk(finish="length"), USAGE), finished({"content": "He"}, "length"), "He", reason="length"),
    "filtered": Case(
        stream(chunk("He"), chunk(finish="content_filter"), USAGE), finished({"content": "He"}, "content_filter"), "He", reason="content_filter"
    ),
    "native thought": Case(
        stream(chunk(reasoning="Hm"), chunk(reasoning="m."), chunk("Hello"), chunk(finish="stop"), USAGE),
        finished({"content": "Hello", "reasoning": "Hmm."}, "stop"),
        "Hello",
        "Hmm.",
    ),
    "tagged thought": Case(letters("<think>Hmm.</think>Hello"), finished({"content": "<think>Hmm.</think>Hello"}, "stop"), "Hello", "Hmm."),
    "native call": Case(
        stream(
            chunk(tool_calls=call("weather", "", id="call_a")),
            chunk(tool_calls=call(None, '{"city": ')),
            chunk(tool_calls=call(None, '"Oslo"}')),
            chunk(finish="tool_calls"),
            USAGE,
        ),
        finished({"content": None, "tool_calls": called(("call_a", *OSLO))}, "tool_calls"),
        None,
        calls=(OSLO,),
        reason="tool_calls",
    ),
    "tagged call": Case(letters(TAGGED), finished({"content": TAGGED}, "stop"), None, calls=(OSLO,), reason="tool_calls"),
    "native parallel calls": Case(
        stream(
            chunk(tool_calls=call(*OSLO, id="call_a")),
            chunk(tool_calls=call(*ROME, id="call_b", place=1)),
            chunk(tool_calls=call("clock", "{}", id="call_c", place=2)),
            chunk(finish="tool_calls"),
            USAGE,
        ),
        finished({"content": None, "tool_calls": called(("call_a", *OSLO), ("call_b", *ROME), ("call_c", "clock", "{}"))}, "tool_calls"),
        None,
        calls=(OSLO, ROME, ("clock", "{}")),
        reason="tool_calls",
    ),
    "parallel calls of one index": Case(
        stream(
            chunk(tool_calls=call(*OSLO, id="call_a")), chunk(tool_calls=call(*ROME, id="call_b")), chunk(finish="stop"), USAGE
        ),
        finished({"content": None, "tool_calls": called(("call_a", *OSLO), ("call_a", *ROME))}, "stop"),
        None,
        calls=(OSLO, ROME),
        reason="tool_calls",
    ),
    "tagged parallel calls": Case(letters(TAGGED_TWO), finished({"content": TAGGED_TWO}, "stop"), None, calls=(OSLO, ROME), reason="tool_calls"),
    "a thought, a word and a call": Case(
        letters(f"<think>Hmm.</think>Wait. {TAGGED}"),
        finished({"content": f"<think>Hmm.</think>Wait. {TAGGED}"}, "stop"),
        "Wait.",
        "Hmm.",
        calls=(OSLO,),
        reason="tool_calls",
    ),
    "a call without arguments": Case(
        stream(chunk(tool_calls=call("clock", "", id="call_a")), chunk(finish="tool_calls"), USAGE),
        finished({"content": None, "tool_calls": called(("call_a", "clock", ""))}, "tool_calls"),
        None,
        calls=(("clock", "{}"),),
        reason="tool_calls",
    ),
}  # fmt: skip

REMARK = {
    "type": "url_citation",
    "url_citation": {"start_index": 0, "end_index": 2, "title": "T", "url": "https://example.org"},
}

ERRORS = [
    (whole({"error": "no"}, 400), openai.BadRequestError, None),
    (
        whole({"error": {"message": "maximum context length is 8"}}, 400),
        openai.BadRequestError,
        "context_length_exceeded",
    ),
    (whole({"error": "model 'x' not found"}, 404), openai.NotFoundError, "model_not_found"),
    (whole({"error": "slow down"}, 429), openai.RateLimitError, "rate_limit_exceeded"),
    (whole({"error": "no"}, 401), openai.InternalServerError, "upstream_auth_error"),
    (whole({"error": "boom"}, 500), openai.InternalServerError, "upstream_error"),
    (whole({"error": "Loading model"}, 503), openai.InternalServerError, "model_loading"),
    ([RESET], openai.InternalServerError, "upstream_lost"),
]
