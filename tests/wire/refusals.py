"""What cannot be answered, said as the API says it; and servers that go on all the same."""

from concurrent.futures import ThreadPoolExecutor

from support.worked_examples import user
from wire.case import WHOLE, chat, post, respond
from wire.chat import CAPITAL, OF_FRANCE, STORY

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
LONG = "word " * 6000
END = "2"  # the token <|im_end|>


def refused(response, status, code, param):
    assert (response.status, response.problem["code"], response.problem["param"]) == (status, code, param), (
        response.body
    )
    assert response.problem["type"] == "invalid_request_error"


@chat(user(LONG), needs=("overflow",))
def a_prompt_that_is_too_long(response):
    refused(response, 400, "context_length_exceeded", "messages")


@respond(LONG, needs=("overflow",))
def an_input_that_is_too_long(response):
    assert (response.status, response.problem["code"]) == (400, "context_length_exceeded")


@chat(
    user([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PIXEL}}]),
    needs=("blindness",),
)
def an_image_for_a_model_that_sees_none(response):
    assert response.status == 400 and response.problem["type"] == "invalid_request_error"


@chat(CAPITAL, model="missing")
def a_model_that_is_not_there(response):
    refused(response, 404, "model_not_found", "model")


@respond(CAPITAL["content"], model="missing")
def a_model_that_is_not_there_for_a_response(response):
    refused(response, 404, "model_not_found", "model")


# What a body may be: raw, status, code, param.
BODIES = {
    "no_json": (b'{"model": "m", "messages": [', None, None),
    "no_object": (b"[]", "invalid_type", "body"),
    "no_model": (b'{"messages": [{"role": "user", "content": "Hi"}]}', "missing_required_parameter", "model"),
    "no_messages": (b'{"model": "m"}', "missing_required_parameter", "messages"),
    "empty_messages": (b'{"model": "m", "messages": []}', "empty_array", "messages"),
    "a_role_of_tomorrow": (b'{"model": "m", "messages": [{"role": "bard", "content": "Hi"}]}', "invalid_value", "messages[0].role"),
    "messages_as_text": (b'{"model": "m", "messages": "Hi"}', "invalid_type", "messages"),
}  # fmt: skip
VALUES = {
    "temperature": ("hot", "invalid_type"), "top_p": (3, "decimal_above_max_value"), "n": (0, "integer_below_min_value"),
    "max_tokens": ("many", "invalid_type"), "stream": ("yes", "invalid_type"), "tools": ({}, "invalid_type"),
    "stop": (7, "invalid_type"), "seed": ("x", "invalid_type"),
}  # fmt: skip


def _add_bodies():
    for name, (raw, code, param) in BODIES.items():
        post(CHAT, raw=raw, name=name)(lambda response, code=code, param=param: refused(response, 400, code, param))
    for field, (value, code) in VALUES.items():
        ask = chat(CAPITAL, name=f"a_wrong_{field}", ways=(WHOLE,), **{field: value})
        ask(lambda response, code=code, field=field: refused(response, 400, code, field))


_add_bodies()


@chat(CAPITAL, top_logprobs=2)
def top_chances_without_chances(response):
    assert (response.status, response.problem["param"]) == (400, "top_logprobs")


@chat(CAPITAL, stream_options={"include_usage": True}, ways=(WHOLE,))
def options_of_a_stream_for_what_is_none(response):
    assert (response.status, response.problem["param"]) == (400, "stream_options")


# Many at a time, and those who leave


@chat(CAPITAL, ways=(WHOLE,))
def answers_at_the_same_time_are_their_own(response):
    countries = {"France": "Paris", "Italy": "Rome", "Germany": "Berlin", "Japan": "Tokyo"}
    with ThreadPoolExecutor(4) as pool:
        answers = [
            pool.submit(
                response.gate.ask, response.question.but(messages=[user(f"What is the capital of {country}?")]), way
            )
            for country in countries
            for way in (False, True)
        ]
    for answer, city in zip(answers, [city for city in countries.values() for _ in range(2)], strict=True):
        assert city in answer.result().content


@chat(STORY, max_tokens=8, ways=(WHOLE,))
def a_client_that_leaves_frees_the_server(response):
    """More of them than it answers at a time, each with an answer of minutes, as its end is forbidden."""
    endless = response.question.but(max_tokens=response.gate.server.window - 100, logit_bias={END: -100.0})
    for _ in range(response.gate.server.slots + 1):
        with response.gate.begin(endless) as stream:
            next(stream.iter_lines())
    assert response.again(messages=[CAPITAL], max_tokens=24).content == OF_FRANCE
