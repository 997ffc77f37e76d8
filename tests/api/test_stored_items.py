"""Test stored items: the long form of each type, and the fields that are shown only if a request includes them."""

import itertools
from functools import cache

import pytest
from openai.types.conversations import conversation_item_list
from openai.types.responses import response_item_list
from pydantic import TypeAdapter

from gateway.api.responses.input_items import ITEMS, HistoryRules, read_input, resolve_references
from gateway.api.responses.stored_items import complete_added_items, complete_item, visible_item
from gateway.errors import BadRequest, NotFound
from gateway.warnings import Warnings

PNG = "data:image/png;base64,AA=="
CALLED = {"call_id": "c1", "name": "f"}
RAN = {"stdout": "ok", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
CITED = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
LIST = {"object": "list", "first_id": "a", "last_id": "a", "has_more": False}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "fine"}
USER = {"role": "user", "content": "Hi"}


def message(role, *content, **more):
    return {"id": "msg_1", "type": "message", "status": "completed", "role": role, "content": [*content], **more}


def text(content):
    return {"type": "input_text", "text": content}


def output_text(content):
    return {"type": "output_text", "text": content, "annotations": [], "logprobs": []}


def image(**more):
    return {"type": "input_image", "detail": "auto", "image_url": PNG, **more}


# The item of the client and the stored item; the first new id is the prefix and 1.
FULL = {
    "a text of the user's": (USER, message("user", text("Hi"))),
    "a text of the assistant's": ({"role": "assistant", "content": "Hi"}, message("assistant", output_text("Hi"))),
    "a text of the developer's": ({"role": "developer", "content": ""}, message("developer", text(""))),
    "a message with parts": (
        {"type": "message", "role": "user", "content": [text("Hi"), {"type": "input_image", "image_url": PNG}]},
        message("user", text("Hi"), image()),
    ),
    "an image as in a chat": (
        {"role": "user", "content": [{"type": "input_image", "image_url": {"url": PNG}, "detail": "low", "file_id": None}]},
        message("user", image(detail="low")),
    ),
    "an image with its detail as in a chat": (
        {"role": "user", "content": [{"type": "input_image", "image_url": {"url": PNG, "detail": "low"}, "detail": None}]},
        message("user", image(detail="low")),
    ),
    "a message as it was answered": (
        message("assistant", {"type": "output_text", "text": "Hi", "annotations": [CITED], "logprobs": None}, phase="final_answer"),
        message("assistant", {**output_text("Hi"), "annotations": [CITED]}, phase="final_answer"),
    ),
    "an id and a status of the client's": (
        {**USER, "id": "mine", "status": "incomplete"},
        message("user", text("Hi"), id="mine", status="incomplete"),
    ),
    "an id that is none": ({**USER, "id": ""}, message("user", text("Hi"))),
    "nulls": ({**USER, "id": None, "status": None, "type": None}, message("user", text("Hi"))),
    "a thought": (
        {"type": "reasoning", "id": "rs_9"},
        {"id": "rs_9", "type": "reasoning", "status": "completed", "summary": []},
    ),
    "a call": (
        {"type": "function_call", **CALLED, "arguments": "{}"},
        {"id": "fc_1", "type": "function_call", "status": "completed", **CALLED, "arguments": "{}"},
    ),
    "an output": (OUTPUT, {"id": "fco_1", "status": "completed", **OUTPUT}),
    "an output of parts": (
        {**OUTPUT, "output": [{"type": "input_image", "image_url": PNG}]},
        {"id": "fco_1", "status": "completed", **OUTPUT, "output": [image()]},
    ),
    "an output that is no part": (
        {"type": "shell_call_output", "call_id": "c1", "output": [RAN]},
        {"id": "sho_1", "type": "shell_call_output", "status": "completed", "call_id": "c1", "output": [RAN]},
    ),
    "tools, but no secrets": (
        {"type": "additional_tools", "tools": [{"type": "mcp", "server_label": "s", "authorization": "secret"}]},
        {"id": "item_1", "type": "additional_tools", "status": "completed", "role": "developer", "tools": [{"type": "mcp", "server_label": "s"}]},
    ),
    "an extension, as it is": (
        {"type": "acme:thing", "content": [1, None]},
        {"id": "item_1", "type": "acme:thing", "status": "completed", "content": [1, None]},
    ),
}  # fmt: skip


def numbered():
    count = itertools.count(1)
    return lambda prefix: f"{prefix}{next(count)}"


def rules(**items):
    return HistoryRules(lambda sealed: None, Warnings(), "m", items=items)


@pytest.mark.parametrize("case", FULL)
def test_item_is_stored_in_its_long_form(case):
    short, long = FULL[case]
    assert complete_item(short, numbered()) == long


@pytest.mark.parametrize("case", FULL)
def test_item_in_long_form_is_unchanged(case):
    assert complete_item(FULL[case][1], numbered()) == FULL[case][1]


adapter_of = cache(TypeAdapter)  # each takes 0.2 seconds to build


@pytest.mark.parametrize("case", sorted({*FULL} - {"an extension, as it is"}))
@pytest.mark.parametrize("list", [response_item_list.ResponseItemList, conversation_item_list.ConversationItemList])
def test_item_in_long_form_is_valid_for_the_sdk(case, list):
    adapter_of(list).validate_python({**LIST, "data": [FULL[case][1]]}, strict=False)


@pytest.mark.parametrize("type", ITEMS)
def test_item_of_each_type_gets_an_id(type):
    item = complete_item({"type": type, "role": "user", "content": "", "tools": []}, numbered())
    assert item["id"].endswith("_1") and item["type"] == type


def test_item_ids_are_unique():
    new_id = numbered()
    items = [complete_item({**short, "id": None}, new_id) for short, _ in FULL.values()]
    assert len({item["id"] for item in items}) == len(FULL)


def test_item_reference_is_replaced_by_its_item():
    known = message("user", text("Hello"), id="msg_7")
    given = [{"type": "item_reference", "id": "msg_7"}, USER, {"id": "msg_7"}]
    assert resolve_references(given, {"msg_7": known}) == [known, USER, known]
    assert complete_added_items(given[:2], "items", rules(msg_7=known), numbered()) == [
        known,
        message("user", text("Hi")),
    ]


SEARCHED = {
    "id": "ws_1",
    "type": "web_search_call",
    "status": "completed",
    "action": {"type": "search", "query": "q", "sources": [1]},
}
LOGPROBS = {**output_text("Hi"), "logprobs": [{"token": "Hi", "logprob": -0.5, "bytes": [], "top_logprobs": []}]}
HIDDEN = {
    "reasoning.encrypted_content": (
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gw1.x"},
        {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": None},
    ),
    "file_search_call.results": (
        {"id": "fs_1", "type": "file_search_call", "queries": [], "results": [{"text": "x"}]},
        {"id": "fs_1", "type": "file_search_call", "queries": [], "results": None},
    ),
    "web_search_call.results": ({**SEARCHED, "action": None, "results": [1]}, {**SEARCHED, "action": None, "results": None}),
    "code_interpreter_call.outputs": (
        {"id": "ci_1", "type": "code_interpreter_call", "outputs": [{"logs": "x"}]},
        {"id": "ci_1", "type": "code_interpreter_call", "outputs": None},
    ),
    "message.output_text.logprobs": (
        message("assistant", LOGPROBS, {"type": "refusal", "refusal": "No."}),
        message("assistant", output_text("Hi"), {"type": "refusal", "refusal": "No."}),
    ),
    "web_search_call.action.sources": (SEARCHED, {**SEARCHED, "action": {"type": "search", "query": "q"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_item_field_is_hidden_unless_included(name):
    item, without = HIDDEN[name]
    assert visible_item(item, {name}) == item
    assert visible_item(item, {*HIDDEN} - {name}) == without


@pytest.mark.parametrize("case", FULL)
def test_item_has_no_other_hidden_fields(case):
    assert visible_item(FULL[case][1], ()) == FULL[case][1]


def test_item_added_may_answer_an_item_that_is_already_stored():
    """The tool call of an output may be stored; the added items themselves are checked like an input."""
    call = {"type": "function_call", **CALLED, "arguments": "{}"}
    assert [item["id"] for item in complete_added_items([OUTPUT], "items", rules(), numbered())] == ["fco_1"]
    by_name = {"type": "function_call_output", "name": "f", "output": "fine"}
    assert len(complete_added_items([call, by_name], "items", rules(), numbered())) == 2
    with pytest.raises(BadRequest) as caught:
        complete_added_items([call, by_name, by_name], "items", rules(), numbered())
    assert (caught.value.problem.code, caught.value.problem.param) == ("missing_required_parameter", "items[2].call_id")


REFUSED = {
    "no object": ([1], "invalid_type", "items[0]"),
    "an unknown type": ([USER, {"type": "x"}], "invalid_value", "items[1]"),
    "an unknown role": ([{"role": "critic", "content": ""}], "invalid_value", "items[0].role"),
    "an unknown part": ([{"role": "user", "content": [{"type": "x"}]}], "invalid_value", "items[0].content[0]"),
    "a message without content": ([{"role": "user"}], "missing_required_parameter", "items[0].content"),
    "an id that is no text": ([{**USER, "id": 1}], "invalid_type", "items[0].id"),
    "an id that is too long": ([{**USER, "id": "x" * 513}], "string_above_max_length", "items[0].id"),
    "a foreign summary": ([{"type": "compaction", "encrypted_content": "x"}], "invalid_encrypted_content", "items[0].encrypted_content"),
    "a tool that is none": ([{"type": "additional_tools", "tools": [{"type": "x"}]}], "invalid_value", "items[0].tools[0].type"),
    "a setting that is none": ([{"type": "configuration_update", "reasoning": {"effort": "x"}}], "invalid_value", "items.effort"),
    "a format that is none": ([{"type": "configuration_update", "text": {"verbosity": 1}}], "invalid_type", "items.verbosity"),
    "the same id twice": ([{**USER, "id": "a"}, {**USER, "id": "a"}], None, "items"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_item_that_is_invalid_cannot_be_added(case):
    items, code, param = REFUSED[case]
    with pytest.raises(BadRequest) as caught:
        complete_added_items(items, "items", rules(), numbered())
    assert (caught.value.problem.code, caught.value.problem.param) == (code, param)


def test_item_reference_to_an_unknown_id_is_not_found():
    with pytest.raises(NotFound) as caught:
        complete_added_items([{"id": "msg_9"}], "items", rules(), numbered())
    assert caught.value.problem.param == "items[0]"


@pytest.mark.parametrize("given", [
    *(given for given, _ in FULL.values() if given.get("type", "message") == "message"),
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "No"}]},
])  # fmt: skip
def test_stored_message_is_read_as_one_that_arrives(given):
    rules = HistoryRules(lambda _: None, Warnings(), "m")
    kept = complete_item(given, "{}1".format)
    assert read_input([], None, [kept], rules) == read_input([kept], None, (), rules)
