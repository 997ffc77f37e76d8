"""Errors of the Messages API."""

from functools import partial

from support.worked_examples import TURNS
from wire.case import WHOLE, call_messages, post
from wire.messages import CAPITAL, PATH, result, tools, turns, user
from wire.refusals import LONG

SINGLE = TURNS["single"]


def refused(response, message, status=400, type="invalid_request_error"):
    assert (response.status, response.problem["type"]) == (status, type), response.body
    assert message in response.problem["message"]


# Errors


@call_messages(user(LONG), needs=("overflow",))
def a_message_that_is_too_long(response):
    refused(response, "prompt is too long")


@call_messages(user(CAPITAL), model="missing")
def a_model_that_is_not_there_for_a_message(response):
    refused(response, "missing", 404, "not_found_error")


@call_messages(*turns(SINGLE.messages), result("toolu_missing", "3"), tools=tools(SINGLE))
def a_tool_result_of_no_tool_use(response):
    assert response.status == 400 and response.problem["type"] == "invalid_request_error"


# A wrong member of the body, and what the message names.
WRONG = {
    "max_tokens": ("many", "max_tokens"), "messages": ([], "messages"), "system": (7, "system"),
    "tool_choice": ({"type": "some"}, "tool_choice"), "stop_sequences": (" ", "stop_sequences"),
    "thinking": ({"type": "often"}, "thinking"), "temperature": ("hot", "temperature"),
}  # fmt: skip
for field, (value, path) in WRONG.items():
    call_messages(user(CAPITAL), name=f"a_wrong_{field}_of_a_message", ways=(WHOLE,), **{field: value})(
        partial(refused, message=path)
    )


@post(PATH, raw=b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}')
def a_message_without_a_limit(response):
    refused(response, "max_tokens: Field required")
