"""Test that hostile text of models, backends and clients adds no line to a stream and no header to a response."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.warnings import Warnings, safe_name
from support.app import gateway
from support.upstream import DONE, END, call, chunk, frame, head

ENDS = ["\n", "\r", "\r\n", "\n\n", "\u2028", "\u2029", "\u0085", "\0", "\x0b", "\x0c", "\x1b[2J", "\ufeff", "\ud800"]
EVIL = "\n\ndata: evil\r\revent: evil\r\n\r\n: evil\u2028\u0085\0"
# A line of a stream of the gateway: an event's name, its data, a comment, or nothing.
LINE = re.compile(rb"(?:data: (?:\{.*\}|\[DONE\])|event: [a-z_.]+|: (?:keep-alive|gateway-warnings [!-~ ]+))?")


def checked_events(body):
    """Check each line, wherever a client sees the end of one; return the decoded data of the events."""
    lines = re.split(rb"\r\n|\n|\r", body)
    assert all(LINE.fullmatch(line) for line in lines), body
    assert b"evil" not in re.sub(rb"data: \{.*\}", b"", body) or b": gateway-warnings" in body
    return [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


HOSTILE = st.lists(
    st.sampled_from([*ENDS, "data: evil", "event: evil", ": evil", "id: 1", "x", '"', "\\"]), min_size=1, max_size=6
).map("".join)


def hostile_frames(evil):
    """Return the frames of a response with the hostile text in every member."""
    logprobs = {
        "content": [
            {
                "token": evil,
                "logprob": -1,
                "bytes": None,
                "top_logprobs": [{"token": evil, "logprob": -1, "bytes": None}],
            }
        ]
    }
    citation = {"type": "url_citation", "url_citation": {"url": evil, "title": evil, "start_index": 0, "end_index": 1}}
    first = {"index": 0, "delta": {"role": evil, "content": evil, "reasoning_content": evil}, "logprobs": logprobs}
    return [
        frame(choices=[first], id=evil, model=evil, system_fingerprint=evil, service_tier=evil, object=evil),
        chunk(annotations=[citation]),
        chunk(thinking_blocks=[{"type": "thinking", "thinking": evil, "signature": evil}]),
        chunk(tool_calls=call(evil, '{"a', id=evil)),
        chunk(tool_calls=call(None, evil)),
        frame(choices=[{"index": 0, "delta": {}, "finish_reason": evil, "stop_reason": evil}]),
        frame(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 1, evil: evil}),
    ]


REQUESTS = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "logprobs": True, "top_logprobs": 1}),
    ("/v1/responses", {"input": "hi", "include": ["message.output_text.logprobs"], "store": True}),
    ("/v1/completions", {"prompt": "hi", "logprobs": 1}),
]


@pytest.mark.parametrize("path, fields", REQUESTS)
@pytest.mark.parametrize("evil", [EVIL, *ENDS[:-1]])
async def test_backend_text_adds_no_line_to_a_stream_and_no_header(path, fields, evil):
    tools = [{"type": "function", "function": {"name": "f"}}]
    fields = fields | ({"tools": tools} if "chat" in path else {})
    script = [head(), *hostile_frames(evil), DONE, END]
    refused = [head(), frame(error={"message": evil, "code": evil, "type": evil, "param": evil}), END]
    late = [head(), chunk("x"), frame(error={"message": evil, "code": evil}), END]
    scripts = [steps for steps in (script, refused, late) for _ in range(2)]
    async with gateway(*scripts, stream={"grace_seconds": 0}) as site:
        for _ in range(3):
            answer = await site.client.post(path, json={"model": "m", "stream": True, **fields})
            assert checked_events(answer.content)
            whole = await site.client.post(path, json={"model": "m", **fields})
            assert isinstance(whole.json(), dict)
            assert not {"evil", "x-evil"} & {*whole.headers, *answer.headers}
        assert len(site.upstream.posts) == len(scripts)


@given(HOSTILE)
def test_warning_name_is_visible_ascii_without_a_comma(name):
    ledger = Warnings()
    ledger.add("forwarded", name)
    assert re.fullmatch(r"forwarded:[!-+\--~]{1,64}", ledger.header_value())
    assert safe_name(safe_name(name)) == safe_name(name)


async def test_field_name_of_a_client_adds_no_header_and_no_line():
    async with gateway([head(), chunk("x"), chunk(finish="stop"), DONE, END]) as site:
        for name in (EVIL, "x\r\nx-evil: 1", "é\u2028", "a, forwarded:b", "x" * 9000):
            part = {"role": "user", "content": [{"type": "text", "text": "x"}], name: 1}
            for path, fields in REQUESTS:
                body = {"model": "m", **fields, name: {name: name}} | ({"messages": [part]} if "chat" in path else {})
                for stream in (False, True):
                    answer = await site.client.post(
                        path, json={**body, "stream": stream}, headers={"x-gateway-debug": "1"}
                    )
                    assert answer.status_code == 200, answer.text
                    assert "x-evil" not in answer.headers
                    assert all(re.fullmatch("[ -~]*", value) for value in answer.headers.values())
                    assert not stream or checked_events(answer.content)
