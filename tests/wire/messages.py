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


def text(said):
    return {"type": "text", "text": said}


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
def a_message_is_text(said):
    assert said.meant == (OF_FRANCE, "", [], "stop")
    assert (said.body["model"], said.body["stop_reason"]) == ("m", "end_turn")


@call_messages(user([text("What is the capital"), text("of France?")]), system=[text("Be brief.")])
def blocks_are_one_message(said):
    assert "Paris" in said.content
    assert said.again(system="Be brief.").meant == said.meant


@call_messages(user(CAPITAL), assistant(OF_FRANCE), user("And of Italy?"))
def a_conversation_of_messages_goes_on(said):
    assert "Rome" in said.content


@call_messages(user(CAPITAL), assistant("The capital of France is"), needs=("prefills",))
def the_beginning_of_a_message_is_continued(said):
    assert said.content.strip() == "Paris."


@call_messages(user(CAPITAL), max_tokens=3)
def the_limit_of_a_message_cuts(said):
    assert (said.body["stop_reason"], said.finish) == ("max_tokens", "length")
    assert said.content and OF_FRANCE.startswith(said.content)


@call_messages(user(CAPITAL), stop_sequences=[" Rome", " is"])
def a_stop_sequence_ends_a_message(said):
    assert said.content == "The capital of France" and said.finish == "stop"
    assert said.body["stop_sequence"] in (None, " is")


@call_messages(
    user("A JSON object with n=7, please."),
    output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
    needs=("json_schema",),
)
def a_message_follows_its_schema(said):
    assert json.loads(said.content) == {"n": 7}


@call_messages(user(CAPITAL))
def a_message_is_counted(said):
    assert said.usage["output_tokens"] >= 7 and input_tokens(said) > 10


# Counts and models


@post(f"{PATH}/count_tokens", messages=[user(CAPITAL)], system="Answer in one word.")
def the_tokens_of_a_message(said):
    answer = said.gate.ask(said.question._replace(path=PATH).but(max_tokens=1))
    assert {*said.body} == {"input_tokens"}
    assert said.body["input_tokens"] == input_tokens(answer) or "estimated:input_tokens" in said.warnings


def input_tokens(said):
    return sum(said.usage[name] for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"))


@get("/v1/models", name="the_models_are_listed_for_messages", headers=VERSION)
def _(said):
    (model,) = said.body["data"]
    assert (model["id"], model["type"], said.body["has_more"], said.body["last_id"]) == ("m", "model", False, "m")


@get("/v1/models/m", name="a_model_for_messages_says_how_much_it_takes", headers=VERSION, needs=("window",))
def _(said):
    assert (said.body["id"], said.body["max_input_tokens"]) == ("m", said.gate.server.window)
