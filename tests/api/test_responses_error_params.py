"""Test that an error about a part of a message names the path at which the client sent it."""

import pytest

from gateway.api.responses import has_parts, place
from support.app import HELLO_MESSAGES, gateway, problem
from support.sse import events, payloads
from support.upstream import HELLO, chunk, frame, stream

URL, FILE = "http://example.com/a", {"type": "input_file", "file_data": "?"}
BODY = {
    "instructions": [{"role": "system", "content": [{"type": "input_image", "image_url": "ftp://first"}]}],
    "input": [
        "text",
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": URL}]},
        {"type": "function_call_output", "call_id": "c", "output": [FILE]},
    ],
}
MESSAGES = (
    {"role": "system", "content": [{"type": "image_url", "image_url": {"url": "ftp://first"}}]},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": URL}}]},
    {"role": "tool", "tool_call_id": "c", "content": [{"type": "file", "file": {"file_data": "?"}}]},
)
PLACES = {
    "messages[0].content[0].image_url.url": "instructions[0].content[0].image_url",
    "messages[1].content[1].image_url.url": "input[1].content[1].image_url",
    "messages[2].content[0].file.file_data": "input[2].output[0].file_data",
    "messages[2].content[0].file.file_id": None,
    "messages[3].content[0]": None,
    "messages[1].content[0].text.none": None,
    "messages[1].content[0]": None,
    "messages": None,
}


@pytest.mark.parametrize("param", PLACES)
def test_place_is_that_of_the_same_value(param):
    assert place(BODY, MESSAGES, param) == PLACES[param]


def test_place_of_what_came_from_the_store_is_unknown():
    assert place({"input": "b"}, MESSAGES, "messages[1].content[1].image_url.url") is None


def test_messages_of_text_alone_have_no_parts():
    assert has_parts(MESSAGES) and not has_parts([{"role": "user", "content": "a"}, {"role": "assistant"}])


@pytest.mark.parametrize("instructions", [None, "Be brief."])
async def test_file_error_of_a_response_names_the_path_in_its_input(instructions):
    items = [{"role": "user", "content": "Hi"}, {"role": "user", "content": [FILE]}]
    async with gateway(HELLO) as site:
        answer = await site.respond(input=items, instructions=instructions)
        path = "input[1].content[0].file_data"
        assert problem(answer) == (400, "invalid_request_error", "invalid_value", path)
        assert f"Invalid '{path}'" in answer.json()["error"]["message"]


TOO_LONG = {"message": "This model's maximum context length is 9 tokens. Reduce the messages.", "code": 400}
# The path, the fields of a request, the first piece of its response, and what the client calls the messages.
STREAMED = {
    "response": ("/v1/responses", {"input": "Hello"}, chunk("Hi"), "input"),
    "background response": ("/v1/responses", {"input": "Hello", "background": True}, chunk("Hi"), "input"),
    "chat completion": ("/v1/chat/completions", {"messages": HELLO_MESSAGES}, chunk("Hi"), "messages"),
    "completion": ("/v1/completions", {"prompt": "Hello"}, frame(choices=[{"index": 0, "text": "Hi"}]), "prompt"),
}


@pytest.mark.parametrize("kind", STREAMED)
async def test_error_within_a_stream_names_the_parameter_of_its_api(kind):
    path, fields, piece, name = STREAMED[kind]
    async with gateway(stream(piece, frame(error=TOO_LONG))) as site:
        answer = await site.client.post(path, json={"model": "m", "stream": True, **fields})
    assert "Hi" in answer.text
    error = next(data["error"] for data in events(answer.text) or payloads(answer.text) if data.get("error"))
    assert (error["code"], error["param"]) == ("context_length_exceeded", name)
