"""Test responses whose members have a wrong type: what the client gets, whole and streamed."""

import json

import pytest

from gateway.backends.openai.decoder import ChatDecoder
from gateway.events import Failure, Finish, ReasoningDelta, TextDelta, ToolCallStart, Usage
from gateway.warnings import Warnings
from support.app import gateway
from support.sse import payloads
from support.upstream import chunk, frame, stream, whole


def decoded(ledger=None, n=1, **members):
    """Return the events of one payload, by their type."""
    decoder = ChatDecoder(Warnings() if ledger is None else ledger, n)
    return {type(one): one for one in decoder.decode(json.dumps(members).encode())}


def choice(content="Hi", inside=None, **beside):
    """Return the members of a payload with one choice; `inside` are further members of its message."""
    message = {"role": "assistant", "content": content, **(inside or {})}
    return {"choices": [{"message": message, "finish_reason": "stop", **beside}]}


USAGE = {"prompt_tokens": 3, "completion_tokens": 1}


@pytest.mark.parametrize(
    "members",
    [
        {**choice(), "usage": []},
        {**choice(), "usage": "", "x_groq": []},
        {**choice(), "usage": {**USAGE, "prompt_tokens_details": [], "completion_tokens_details": []}},
        choice(delta=[], usage=[]),
        choice(inside={"refusal": False, "tool_calls": {}, "function_call": "", "annotations": ""}),
        choice(inside={"tool_calls": [None]}),
        {"choices": [*choice()["choices"], None]},
    ],
)
def test_empty_member_of_a_wrong_type_is_an_absent_one(members):
    ledger = Warnings()
    events = decoded(ledger, **members)
    assert (events[TextDelta].text, events[Finish].reason, ledger.entries()) == ("Hi", "stop", [])


@pytest.mark.parametrize(
    ("members", "warnings"),
    [
        ({**choice(), "usage": [USAGE]}, ["dropped:usage"]),
        ({**choice(), "usage": {**USAGE, "prompt_tokens_details": [1]}}, ["dropped:prompt_tokens_details"]),
        (choice(inside={"reasoning": {"a": 1}, "refusal": True}), ["dropped:reasoning", "dropped:refusal"]),
        (choice(inside={"annotations": {"a": 1}}), ["dropped:annotations"]),
    ],
)
def test_member_of_a_wrong_type_that_matters_little_is_dropped(members, warnings):
    ledger = Warnings()
    events = decoded(ledger, **members)
    assert events[TextDelta].text == "Hi" and ReasoningDelta not in events
    assert sorted(ledger.entries()) == warnings


def test_other_members_stay_beside_one_of_a_wrong_type():
    called = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    members = choice(inside={"reasoning": "so", "annotations": 5, "tool_calls": [called]}, extra=1)
    events = decoded(**members, usage={**USAGE, "completion_tokens_details": []})
    assert (events[ReasoningDelta].text, events[ToolCallStart].name) == ("so", "f")
    assert (events[Usage].prompt, events[Usage].completion) == (3, 1)


def called(name, arguments, id="", **beside):
    """Return a tool call that is no list."""
    return {"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}, **beside}


@pytest.mark.parametrize("arguments", ['{"city": "Paris"}', {"city": "Paris"}])
async def test_tool_call_in_the_place_of_the_list_is_a_call_whole_and_streamed(arguments):
    answered = whole(choice(content=None, inside={"tool_calls": called("f", arguments)}))
    pieces = called("f", '{"city": '), called(None, '"Paris"}')
    deltas = [frame(choices=[{"index": 0, "delta": {"role": "assistant", "tool_calls": piece}}]) for piece in pieces]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with gateway(answered, stream(*deltas, chunk(finish="tool_calls"))) as site:
        answer = await site.chat(tools=tools)
        streamed = await site.chat(tools=tools, stream=True)
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"city": "Paris"})
    assert "repaired:tool_calls" in answer.headers["x-gateway-warnings"]
    deltas = [one["choices"][0]["delta"] for one in payloads(streamed.text)[:-1] if one["choices"]]
    functions = [call["function"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert functions[0]["name"] == "f"
    assert json.loads("".join(one["arguments"] for one in functions)) == {"city": "Paris"}


@pytest.mark.parametrize(
    "members",
    [
        choice(content=5),
        choice(inside={"tool_calls": [{"function": {"name": 5}}]}),
        choice(inside={"tool_calls": {"0": {}}}),
        {"choices": {"0": {}}},
        choice(inside={"annotations": 5, "tool_calls": 5}),
        choice(inside=dict.fromkeys(("reasoning_content", "reasoning", "reasoning_text", "refusal", "annotations", "images", "thinking"), 5), usage=5, delta=[5]),
    ],
)  # fmt: skip
def test_member_of_a_wrong_type_that_the_answer_needs_is_a_failure(members):
    ledger = Warnings()
    (failure,) = decoded(ledger, **members).values()
    assert isinstance(failure, Failure) and failure.problem.status == 502
    assert failure.problem.message.startswith("The backend sent an invalid chat completion: Expected ")
    assert ledger.entries() == []


@pytest.mark.parametrize("data", [b"[1]", b'{"usage": []', b'{"usage": [], "choices": [' + b"{" * 5])
def test_payload_that_is_no_object_is_a_failure(data):
    (failure,) = ChatDecoder(Warnings()).decode(data)
    assert isinstance(failure, Failure)


def test_choices_without_index_have_that_of_their_place():
    first, second = choice("a")["choices"][0], choice("b")["choices"][0]
    decoder = ChatDecoder(Warnings(), 2)
    events = decoder.decode(json.dumps({"choices": [first, second]}).encode())
    assert [(one.choice, one.text) for one in events if isinstance(one, TextDelta)] == [(0, "a"), (1, "b")]


def test_choice_beyond_the_requested_ones_is_dropped_also_without_an_index():
    ledger, one = Warnings(), choice("a")["choices"][0]
    assert decoded(ledger, choices=[one, one])[TextDelta].choice == 0
    assert ledger.entries() == ["dropped:choices"]
