"""The Messages API: text, limits, counts of tokens, and the models in its form."""

import json

from wire.case import call_messages, get, post
from wire.chat import OF_FRANCE

CAPITAL = "What is the capital of France?"
PATH = "/v1/messages"
VERSION = (("anthropic-version", "2023-06-01"),)
SCHEMA = {"type": "object", "properties": {"n": {"const": 7}}, "required": ["n"], "additionalProperties": False}


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def text(content):
    return {"type": "text", "text": content}


def result(id, content, **more):
    return user([{"type": "tool_result", "tool_use_id": id, "content": content, **more}])


def turns(messages):
    """Return the messages of a chat completion as messages of this API."""
    made = []
    for message in messages:
        turn = _turn(message)
        if made and made[-1]["role"] == turn["role"]:
            made[-1]["content"] += turn["content"]
        else:
            made.append(turn)
    return made


def _turn(message):
    if message["role"] == "tool":
        return result(message["tool_call_id"], message["content"])
    content = [text(message["content"])] if message["content"] else []
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    uses = [
        {"type": "tool_use", "id": id, "name": called["name"], "input": json.loads(called["arguments"])}
        for id, called in calls
    ]
    return {"role": message["role"], "content": [*content, *uses]}


def tools(turn):
    functions = [tool["function"] for tool in turn.tools]
    return [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in functions
    ]


# Text


@call_messages(user(CAPITAL))
def a_message_is_text(response):
    assert response.meant == (OF_FRANCE, "", [], "stop")
    assert (response.body["model"], response.body["stop_reason"]) == ("m", "end_turn")


@call_messages(user([text("What is the capital"), text("of France?")]), system=[text("Be brief.")])
def blocks_are_one_message(response):
    assert "Paris" in response.content
    assert response.again(system="Be brief.").meant == response.meant


@call_messages(user(CAPITAL), assistant(OF_FRANCE), user("And of Italy?"))
def a_conversation_of_messages_goes_on(response):
    assert "Rome" in response.content


@call_messages(user(CAPITAL), assistant("The capital of France is"), needs=("prefills",))
def the_beginning_of_a_message_is_continued(response):
    assert response.content.strip() == "Paris."


@call_messages(user(CAPITAL), max_tokens=3)
def the_limit_of_a_message_cuts(response):
    assert (response.body["stop_reason"], response.finish) == ("max_tokens", "length")
    assert response.content and OF_FRANCE.startswith(response.content)


@call_messages(user(CAPITAL), stop_sequences=[" Rome", " is"])
def a_stop_sequence_ends_a_message(response):
    assert response.content == "The capital of France" and response.finish == "stop"
    assert response.body["stop_sequence"] in (None, " is")


@call_messages(
    user("A JSON object with n=7, please."),
    output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    needs=("json_schema",),
)
def a_message_follows_its_schema(response):
    assert json.loads(response.content) == {"n": 7}


@call_messages(user(CAPITAL))
def a_message_is_counted(response):
    assert response.usage["output_tokens"] >= 7 and input_tokens(response) > 10


# Counts and models


@post(f"{PATH}/count_tokens", messages=[user(CAPITAL)], system="Answer in one word.")
def the_tokens_of_a_message(response):
    answer = response.gate.ask(response.question._replace(path=PATH).but(max_tokens=1))
    assert {*response.body} == {"input_tokens"}
    assert response.body["input_tokens"] == input_tokens(answer) or "estimated:input_tokens" in response.warnings


def input_tokens(response):
    return sum(
        response.usage[name] for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    )


@get("/v1/models", name="the_models_are_listed_for_messages", headers=VERSION)
def _(response):
    (model,) = response.body["data"]
    assert (model["id"], model["type"], response.body["has_more"], response.body["last_id"]) == (
        "m",
        "model",
        False,
        "m",
    )


@get("/v1/models/m", name="a_model_for_messages_has_its_context_length", headers=VERSION, needs=("window",))
def _(response):
    assert (response.body["id"], response.body["max_input_tokens"]) == ("m", response.gate.server.window)
