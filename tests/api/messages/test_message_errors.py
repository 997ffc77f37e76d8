"""Test the errors of /v1/messages: a status and a body in Anthropic's shape for each problem."""

import json

import pytest

from gateway.api.messages import block_path
from gateway.api.messages.errors import error_body, error_message, error_status, stream_error
from gateway.errors import STOPPED, Problem
from support.messages import IMAGE, QUESTION, assistant, body_of, parsed, result, text, use, user

KINDS = {
    400: (400, "invalid_request_error"), 401: (401, "authentication_error"), 403: (403, "permission_error"),
    404: (404, "not_found_error"), 405: (405, "invalid_request_error"), 413: (413, "request_too_large"),
    415: (415, "invalid_request_error"), 429: (429, "rate_limit_error"), 500: (500, "api_error"),
    502: (502, "api_error"), 503: (529, "overloaded_error"), 504: (504, "timeout_error"),
}  # fmt: skip


@pytest.mark.parametrize("status", KINDS)
def test_problem_has_the_status_and_the_type_of_the_api(status):
    problem = Problem(status, "M", "c")
    body = json.loads(error_body(problem, "req_1"))
    assert body == {"type": "error", "error": {"type": KINDS[status][1], "message": "M"}, "request_id": "req_1"}
    assert error_status(problem) == KINDS[status][0]


STREAMED = {429: "overloaded_error", 503: "overloaded_error", 400: "api_error", 502: "api_error", 504: "api_error"}


@pytest.mark.parametrize("status", STREAMED)
def test_problem_amid_a_stream(status):
    error = {"type": STREAMED[status], "message": "M"}
    assert stream_error(Problem(status, "M"), "req_1") == {"type": "error", "error": error, "request_id": "req_1"}


def test_stop_of_the_gateway_is_an_overload():
    assert stream_error(STOPPED, "")["error"]["type"] == "overloaded_error"


TOO_LONG = "context_length_exceeded"
MESSAGES = {
    "a path": (Problem(400, "It is wrong.", param="messages[0].content[12]"), "messages.0.content.12: It is wrong."),
    "a path that is said": (Problem(400, "a.0: No.", param="a[0]"), "a.0: No."),
    "a value": (Problem(400, "Invalid value: 'x'.", "invalid_value", "a"), "a: Invalid value: 'x'."),
    "no path": (Problem(502, "Invalid type for 'x': no."), "Invalid type for 'x': no."),
    "unknown model": (Problem(404, "The model 'm' does not exist.", "model_not_found", "model"), "model: m. The model 'm' does not exist."),
    "unknown model without a name": (Problem(404, "no such model", "model_not_found", "model"), "model: no such model"),
    "too long": (
        Problem(400, "This model's maximum context length is 20000 tokens and your request has 36614 input tokens.", TOO_LONG, "messages"),
        "prompt is too long: 36614 tokens > 20000 maximum",
    ),
    "too long, as llama.cpp says it": (
        Problem(400, "the request exceeds the available context size (4096 tokens), try increasing it", TOO_LONG, "messages"),
        "prompt is too long: the request exceeds the available context size (4096 tokens), try increasing it",
    ),
    "too long, without numbers": (Problem(400, "input is too long", TOO_LONG), "prompt is too long: input is too long"),
    "too long, as Anthropic says it": (
        Problem(400, "prompt is too long: 9 tokens > 8 maximum", TOO_LONG), "prompt is too long: 9 tokens > 8 maximum",
    ),
}  # fmt: skip


@pytest.mark.parametrize("problem, message", MESSAGES.values(), ids=MESSAGES)
def test_message_says_what_clients_act_on(problem, message):
    assert error_message(problem) == message


# The block that a later error is about


def document(**source):
    return {"type": "document", "source": source}


PATHS = {
    "image": ([user(text("a"), IMAGE)], "messages[0].content[1].image_url.url", "messages[0].content[1]"),
    "image behind a system message": ([user(text("a"), IMAGE)], "messages[1].content[1].type", "messages[0].content[1]"),
    "image of a result": (
        [QUESTION, assistant(use()), user(text("a"), result(content=[text("b"), IMAGE]))],
        "messages[2].content[1].image_url.url",
        "messages[2].content[1].content[1]",
    ),
    "image by URL": (
        [user({"type": "image", "source": {"type": "url", "url": "http://a"}})], "messages[0].content[0]", "messages[0].content[0]",
    ),
    "file": (
        [QUESTION, user(document(type="base64", media_type="application/pdf", data="JVBE"))],
        "messages[1].content[0].file.file_data",
        "messages[1].content[0]",
    ),
    "file by URL": ([user(document(type="url", url="http://a"))], "messages[0].content[0].file", "messages[0].content[0]"),
    "stored file": ([user(document(type="file", file_id="f"))], "messages[0].content[0].file.file_id", "messages[0].content[0]"),
    "stored image": (
        [user(text("a"), {"type": "image", "source": {"type": "file", "file_id": "f"}})],
        "messages[0].content[1].image_url.file_id",
        "messages[0].content[1]",
    ),
    "text": ([user(text("a"), text("b"))], "messages[0].content[1].text", "messages[0].content[1]"),
    "text that was made": ([user(text("a"), document(type="text", data="b"))], "messages[0].content[1].text", None),
    "message": ([QUESTION], "messages[0].role", None),
    "conversation": ([QUESTION], "messages", None),
}  # fmt: skip


@pytest.mark.parametrize("given, param, path", PATHS.values(), ids=PATHS)
def test_block_is_found_for_a_part(given, param, path):
    system = {"system": "s"} if "messages[1].content[1]" in param else {}
    messages = parsed(messages=given, **system).request.messages
    assert block_path(body_of(messages=given), messages, param) == path


def test_part_of_no_known_kind_has_no_block():
    assert block_path(body_of(), [{"role": "user", "content": [{"type": "x"}]}], "messages[0].content[0].type") is None


@pytest.mark.parametrize("param", ["messages[7].content[0]", "messages[0].content[9]", "messages[1].content[0]"])
def test_block_of_a_part_that_does_not_exist_is_unknown(param):
    chat = [{"role": "user", "content": [{"type": "text", "text": "q"}]}, {"role": "assistant", "content": None}]
    assert block_path(body_of(), chat, param) is None
