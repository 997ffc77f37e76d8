"""Test tool call ids: the upstream gets ids that the family's templates take, and clients keep their own."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.formats import FORMATS
from gateway.request import Request
from gateway.transforms.past_tool_calls import convert_call_ids
from gateway.warnings import Warnings
from support.app import gateway
from support.format_events import untraced
from support.upstream import call, chunk, completion_body, stream, whole

USER = {"role": "user", "content": "Go"}
RENAMED = "renamed:messages.tool_calls.id"


def message_with_calls(*given):
    """Return an assistant message with a tool call for each (id, name); a lone id is a call of f."""
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}
            for id, name in (one if isinstance(one, tuple) else (one, "f") for one in given)
        ],
    }


def result(id):
    return {"role": "tool", "tool_call_id": id, "content": "x"}


def ids_of(messages):
    return [[one["id"] for one in message.get("tool_calls", ())] or message.get("tool_call_id") for message in messages]


def ids_and_warnings(ids, *messages):
    """Return the ids that the server gets, and the warnings."""
    ledger = Warnings()
    request = convert_call_ids(Request(model="m", messages=messages), ids, ledger)
    return [one for one in ids_of(request.messages) if one], ledger.entries()


def test_formats_declare_which_tool_call_ids_they_take():
    assert {name: row.ids for name, row in FORMATS.items() if row.ids != "call"} == {
        "mistral": "nine",
        "kimi_k2": "counted",
    }


def test_tool_call_ids_that_are_counted_name_the_tool():
    messages = [
        USER, message_with_calls("call_a", ("call_b", "g")), result("call_b"), result("call_a"), USER, message_with_calls("call_c"), result("call_c"),
    ]  # fmt: skip
    assert ids_and_warnings("counted", *messages) == (
        [["functions.f:0", "functions.g:1"], "functions.g:1", "functions.f:0", ["functions.f:2"], "functions.f:2"],
        [RENAMED],
    )


def test_tool_call_ids_of_nine_letters_replace_any_id():
    (((one, other), again), entries) = ids_and_warnings(
        "nine", message_with_calls("call_a", "call_b"), result("call_a")
    )
    assert re.fullmatch("[A-Za-z0-9]{9}", one) and re.fullmatch("[A-Za-z0-9]{9}", other)
    assert one == again != other and entries == [RENAMED]


KEPT = [
    ("nine", [message_with_calls("aB3aB3aB3", "aB3aB3aB4"), result("aB3aB3aB3"), result("aB3aB3aB4")]),
    (
        "counted",
        [message_with_calls("functions.f:0", "functions.f:7"), result("functions.f:7"), result("functions.f:0")],
    ),
    ("counted", [message_with_calls(("functions.a.b:c:12", "a.b:c"))]),
    ("call", [message_with_calls("x", "x"), result("x")]),
    ("nine", [USER]),
    ("counted", []),
]


@pytest.mark.parametrize(("ids", "messages"), KEPT)
def test_tool_call_ids_that_fit_are_passed_unchanged(ids, messages):
    request, ledger = Request(model="m", messages=tuple(messages)), Warnings()
    assert convert_call_ids(request, ids, ledger) is request and ledger.entries() == []


RENEWED = [
    # ids of the family with another tool, or without a place
    (["functions.g:0"], ["functions.f:0"]),
    (["functions.f:"], ["functions.f:0"]),
    (["functions.f:x"], ["functions.f:0"]),
    # ids that fit are kept, others are replaced
    (["x", "functions.f:0"], ["functions.f:0", "functions.f:1"]),
    (["functions.f:1", "x"], ["functions.f:1", "functions.f:2"]),
    # one id for two calls
    (["functions.f:0", "functions.f:0"], ["functions.f:0", "functions.f:1"]),
]


@pytest.mark.parametrize(("given", "expected"), RENEWED)
def test_tool_call_ids_are_unique(given, expected):
    assert ids_and_warnings("counted", message_with_calls(*given)) == ([expected], [RENAMED])


@pytest.mark.parametrize("ids", ["nine", "counted"])
def test_tool_result_gets_the_id_of_the_last_call_before_it(ids):
    ((first,), one, (second,), other), _ = ids_and_warnings(
        ids, message_with_calls("c"), result("c"), message_with_calls("c"), result("c")
    )
    assert (first, second) == (one, other) and one != other


def test_tool_result_without_a_call_keeps_its_id():
    assert ids_and_warnings("nine", message_with_calls("c"), result("d"))[0][1] == "d"


ID = st.text("ab1", min_size=1, max_size=2) | st.sampled_from(["functions.f:0", "functions.f:1", "functions.g:1", "aaaaaaaaa", "aaaaaaaab"])  # fmt: skip
TURN = st.lists(st.tuples(ID, st.sampled_from("fg")), min_size=1, max_size=3).map(
    lambda given: [message_with_calls(*given), *(result(id) for id, _ in given)]
)


@given(st.lists(TURN, max_size=4), st.sampled_from(["nine", "counted"]))
@untraced
def test_tool_call_ids_are_stable_as_a_conversation_grows(turns, ids):
    """Ids fit, are unique and are stable: a longer conversation begins with the messages of the shorter."""
    sent = ()
    for n in range(len(turns) + 1):
        messages = tuple(message for turn in turns[:n] for message in turn)
        now = convert_call_ids(Request(model="m", messages=messages), ids, Warnings()).messages
        assert now[: len(sent)] == sent
        sent = now
    given = [one for message in sent for one in message.get("tool_calls", ())]
    form = {"nine": "[A-Za-z0-9]{9}", "counted": r"functions\.[fg]:[0-9]+"}[ids]
    assert all(re.fullmatch(form, one["id"]) for one in given)
    assert len({one["id"] for one in given}) == len(given)
    assert {one["tool_call_id"] for one in sent if one["role"] == "tool"} <= {one["id"] for one in given}
    again = convert_call_ids(Request(model="m", messages=sent), ids, Warnings())
    assert again.messages == sent


@pytest.mark.parametrize("ids", ["nine", "counted"])
def test_tool_call_ids_are_found_fast_if_many_are_taken(ids):
    n = 30_000
    taken = [f"functions.f:{i}" for i in range(n, 2 * n)]
    sent, _ = ids_and_warnings(ids, message_with_calls(*taken), message_with_calls(*["x"] * n))
    assert len({*sent[0], *sent[1]}) == 2 * n


# Through the gateway

TOOL = {"type": "function", "function": {"name": "f"}}
PAST = [USER, message_with_calls("call_1"), result("call_1")]
MODELS = [
    ("mistral-small", {}, "nine"),
    ("mistral-small", {"format": "native"}, "nine"),
    ("any", {"format": "mistral"}, "nine"),
    ("kimi-k2-instruct", {}, "counted"),
    ("kimi-k2-instruct", {"format": "native"}, "counted"),
    ("qwen3", {}, "call"),
    ("any", {"format": "native"}, "call"),
]


@pytest.mark.parametrize(("model", "settings", "ids"), MODELS)
async def test_tool_call_ids_depend_on_the_model_and_not_on_the_parser(model, settings, ids):
    async with gateway(
        whole(completion_body()), model={"upstream_model": model, **settings}, backend={"kind": "vllm"}
    ) as site:
        answer = await site.chat(messages=PAST, tools=[TOOL])
        (sent,), received = [one for one in ids_of(site.upstream_body["messages"]) if one]
        assert sent == received and (answer.headers.get("x-gateway-warnings") or "").count(RENAMED) == (ids != "call")
        form = {"nine": "[A-Za-z0-9]{9}", "counted": "functions.f:0", "call": "call_1"}[ids]
        assert re.fullmatch(form, sent)


async def test_tool_call_id_of_a_new_call_is_new_to_both_sides():
    """The first id is the client's for an old call, the second its translation, the third is new."""
    past = [USER, message_with_calls(("functions.f:5", "g"), "a"), result("a"), result("functions.f:5")]
    new = ["functions.f:5", "functions.g:0", "functions.f:1", "functions.f:9"]
    frames = [chunk(tool_calls=call("f", "{}", place=i, id=id)) for i, id in enumerate(new)]
    script = stream(*frames, chunk(finish="tool_calls"))
    async with gateway(script, model={"upstream_model": "kimi-k2"}) as site:
        answer = await site.chat(messages=past, tools=[TOOL])
        assert next(filter(None, ids_of(site.upstream_body["messages"]))) == ["functions.g:0", "functions.f:1"]
        given = [one["id"] for one in answer.json()["choices"][0]["message"]["tool_calls"]]
        assert given[3] == "functions.f:9" and all(id.startswith("call_") for id in given[:3])


async def test_tool_call_ids_use_flat_names():
    """The Responses API has names in namespaces, and custom tools."""
    called = {"type": "custom_tool_call", "call_id": "c1", "name": "edit", "namespace": "code", "input": "x"}
    output = {"type": "custom_tool_call_output", "call_id": "c1", "output": "ok"}
    tools = [{"type": "namespace", "name": "code", "description": "d", "tools": [{"type": "custom", "name": "edit"}]}]
    async with gateway(whole(completion_body()), model={"upstream_model": "kimi-k2"}) as site:
        answer = await site.respond(input=[{"role": "user", "content": "x"}, called, output], tools=tools)
        assert answer.status_code == 200
        assert [one for one in ids_of(site.upstream_body["messages"]) if one] == [
            ["functions.code__edit:0"],
            "functions.code__edit:0",
        ]
