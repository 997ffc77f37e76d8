"""Convert the input of a response to chat messages: for each type of item a check and a conversion."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.api.responses import history, input_calls
from gateway.api.responses.history import History, HistoryExcerpt, HistoryRules, Item
from gateway.api.validation import (
    ParamCheck,
    integer_between,
    list_of,
    missing_parameter,
    object_,
    object_of,
    one_of,
    string,
    string_of,
    wrong_value,
)
from gateway.errors import BadRequest, NotFound
from gateway.request import ApprovedToolCall, EncodedPast, Message

__all__ = [
    "HistoryRules",
    "InputMessages",
    "Item",
    "annotations_of",
    "ends_with_compaction_trigger",
    "read_excerpt",
    "read_input",
    "read_known_item",
    "referenced_ids",
    "resolve_references",
]

# Provider-specific types of items, `slug:type`, in characters that fit a header.
_EXTENSION = re.compile(r"[\w.-]{1,32}:[\w.-]{1,64}", re.ASCII)


class InputMessages(Struct, frozen=True):
    """An input as messages and settings.

    tools: tool definitions from items, with their paths.
    settings: parameters from items, the latest of each.
    lists: the tools that MCP servers listed, by server label.
    approved: tool calls that may be made now.
    """

    messages: tuple[Message, ...]
    tools: list[tuple[dict[str, Any], str]]
    settings: dict[str, dict[str, Any]]
    lists: dict[str, list[dict[str, Any]]]
    approved: tuple[ApprovedToolCall, ...]


def read_input(
    input: str | list[Any],
    instructions: str | list[Any] | None,
    before: Sequence[Item],
    rules: HistoryRules,
    past: EncodedPast | None = None,
) -> InputMessages:
    """Convert an input.  Raise BadRequest, or NotFound for an unknown reference, if the API does not allow it.

    before: the stored items that the input continues; past: their messages, if they are encoded already.
    """
    chat, new_history = History(rules), History(rules)
    _read(chat, instructions or [], "instructions", role="system")
    for item in before:
        read_known_item(new_history, item)
    new_history.close_approved_calls()
    _read(new_history, input, "input", role="user")
    if past:
        rules.ledger.put(past.warnings)
    messages = [*(past.stand_ins if past else ()), *new_history.messages()]
    if not messages:
        raise missing_parameter("input")
    tools, settings = [*chat.tools, *new_history.tools], {**chat.settings, **new_history.settings}
    approved = tuple(new_history.approved.values())
    return InputMessages((*chat.messages(), *messages), tools, settings, new_history.lists, approved)


def read_excerpt(given: list[Any], param: str, rules: HistoryRules) -> HistoryExcerpt:
    """Read items that follow others.  Raise BadRequest for items that no input may have."""
    past = HistoryExcerpt(rules)
    _read(past, given, param, role="user")
    return past


def _listed(input: str | list[Any]) -> list[Item]:
    """Return the items; a text is one user message."""
    return [{"role": "user", "content": input}] if isinstance(input, str) else input


def resolve_references(input: str | list[Any], known: Mapping[str, Item]) -> list[Item]:
    """Return the items of an input, with references replaced by their items."""
    return [known[item["id"]] if _is_reference(item) else item for item in _listed(input)]


def referenced_ids(input: str | list[Any]) -> frozenset[str]:
    """Return the ids of the items that the input refers to."""
    found = (item["id"] for item in _listed(input) if isinstance(item, dict) and _is_reference(item))
    return frozenset(id for id in found if isinstance(id, str))


def annotations_of(items: Iterable[Item]) -> list[Any]:
    """Return the annotations of the assistant's messages."""
    contents = [item.get("content") for item in items if item.get("role") == "assistant"]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return [part["annotations"] for part in parts if part.get("annotations")]


def _read(past: History, given: str | list[Any], param: str, role: str) -> None:
    """Read items; a text is a message of that role."""
    if isinstance(given, str):
        past.add({"role": role, "content": history.convert_content(given, param, {})})
        return
    for i, item in enumerate(given):
        _read_item(past, item, f"{param}[{i}]")


def _read_item(past: History, item: Item, param: str) -> None:
    type = _type(item, param)
    if (id := item.get("id")) is not None:
        _ID(id, f"{param}.id")
    if row := ITEMS.get(type):
        row.check(item, param)
        row.read(past, item, param)
    elif _EXTENSION.fullmatch(type):
        input_calls.dropped_item(past, item, param)
    else:
        raise wrong_value(type, param, ITEMS)


def read_known_item(past: History, item: Item) -> None:
    """Read a stored item, which was checked when it arrived.  Most are messages with one text."""
    content = item.get("content") if item.get("type") == "message" else None
    if type(content) is list and len(content) == 1 and content[0]["type"] in history.TEXTS:
        text = content[0]["text"]
        if item["role"] == "assistant":
            past.say(text)
        else:
            past.add({"role": item["role"], "content": text})
        return
    row = ITEMS.get(item.get("type", "message"))
    # Each item has a path of its own: tools in two items are two lists, and the later one replaces the earlier.
    (row.read if row else input_calls.dropped_item)(past, item, f"input.{item.get('id')}")


def _type(item: Item, param: str) -> str:
    """Return the type, which a message or a reference may omit."""
    object_(item, param)
    if item.get("type") is None and item.get("role") is not None:
        return "message"
    if _is_reference(item):
        return "item_reference"
    _TYPED(item, param)
    type: str = item["type"]
    return type


def _message(past: History, item: Item, param: str) -> None:
    content, path = item.get("content"), f"{param}.content"
    if item["role"] == "assistant":
        past.say(history.assistant_text(content, path))
    else:
        past.add({"role": item["role"], "content": history.convert_content(content, path, history.MESSAGE)})


def _reasoning(past: History, item: Item, _: str) -> None:
    past.add_reasoning(item)


def _compaction(past: History, item: Item, param: str) -> None:
    opened = past.rules.open(item["encrypted_content"])
    if not opened:
        param = f"{param}.encrypted_content"
        message = f"Invalid value for '{param}': the gateway has no key that decrypts it."
        raise BadRequest(message, code="invalid_encrypted_content", param=param)
    past.replace_with_summary(opened.text)


def _reference(past: History, item: Item, param: str) -> None:
    """Read the item of a reference."""
    if not (found := past.rules.items.get(item["id"])):
        hint = "Items are not stored when `store` is false. Send the item itself, or omit it."
        raise NotFound(f"Item with id '{item['id']}' not found. {hint}", param=param)
    _read_item(past, found, param)


def _is_reference(item: Item) -> bool:
    if item.get("id") is None:
        return False
    alone = (value is None for name, value in item.items() if name != "id")
    return item.get("type") == "item_reference" or all(alone)


def _tools(past: History, item: Item, param: str) -> None:
    past.add_tools(item["tools"], param)


def _configuration(past: History, item: Item, _: str) -> None:
    for name in ("reasoning", "text"):
        if item.get(name) is not None:
            past.settings[name] = {**past.settings.get(name, {}), **item[name]}


def ends_with_compaction_trigger(input: str | list[Any]) -> bool:
    """Return True if the last item requests the compaction of all items before it."""
    last = _listed(input)[-1:]
    return bool(last) and isinstance(last[0], dict) and last[0].get("type") == "compaction_trigger"


def _misplaced(_: History, item: Item, param: str) -> None:
    message = f"'{param}' is not supported here: an item of type '{item['type']}' must be the last item of the input."
    raise BadRequest(message, code="unsupported_value", param=param)


def _refused(_: History, item: Item, param: str) -> None:
    raise input_calls.unsupported_item_error(item, param)


class _InputItemType(Struct, frozen=True):
    check: ParamCheck
    read: Callable[[History, Item, str], None]


_TEXTS = list_of(object_of({"text": history.long}))
_SIGNED = {"provider_specific_fields": object_}
_CALLED = {"namespace": string, **_SIGNED}
_NAMED = {"call_id": string, "name": string, "namespace": string}
_SEARCH = {"call_id": string, "id": string, "execution": one_of("server", "client"), **_SIGNED}
_OUTCOME = object_of({"type": one_of("exit", "timeout")}, {"exit_code": integer_between()})
_RAN = object_of({}, {"stdout": string, "stderr": string, "outcome": _OUTCOME})
_LISTED = {"input_schema": object_, "description": string, "annotations": object_}
_ANYTHING = object_of({})
_TYPED = object_of({"type": string})
_ID = string_of(512)

ITEMS: dict[str, _InputItemType] = {
    "message": _InputItemType(object_of({"role": one_of("user", "assistant", "system", "developer")}), _message),
    "reasoning": _InputItemType(
        object_of({}, {"summary": _TEXTS, "content": _TEXTS, "encrypted_content": string}), _reasoning
    ),
    "function_call": _InputItemType(
        object_of({"call_id": string, "name": string, "arguments": string}, _CALLED),
        input_calls.function_call_item("function", "arguments"),
    ),
    "function_call_output": _InputItemType(object_of({}, _NAMED), input_calls.call_output_item),
    "custom_tool_call": _InputItemType(
        object_of({"call_id": string, "name": string, "input": string}, _CALLED),
        input_calls.function_call_item("custom", "input"),
    ),
    "custom_tool_call_output": _InputItemType(object_of({}, _NAMED), input_calls.call_output_item),
    "tool_search_call": _InputItemType(object_of({"arguments": object_}, _SEARCH), input_calls.tool_search_item),
    "tool_search_output": _InputItemType(
        object_of({"tools": list_of(object_)}, _SEARCH), input_calls.tool_search_output_item
    ),
    "local_shell_call": _InputItemType(
        object_of({"call_id": string, "action": object_}, {"id": string, **_SIGNED}),
        input_calls.shim_call_item("local_shell"),
    ),
    "local_shell_call_output": _InputItemType(
        object_of({"id": string, "output": string}, {"call_id": string}), input_calls.local_shell_output_item
    ),
    "shell_call": _InputItemType(
        object_of({"call_id": string, "action": object_}, _SIGNED), input_calls.shim_call_item("shell")
    ),
    "shell_call_output": _InputItemType(
        object_of({"call_id": string, "output": list_of(_RAN)}), input_calls.shell_output_item
    ),
    "apply_patch_call": _InputItemType(
        object_of({"call_id": string, "operation": object_}, _SIGNED), input_calls.shim_call_item("apply_patch")
    ),
    "apply_patch_call_output": _InputItemType(
        object_of({"call_id": string, "status": one_of("completed", "failed")}, {"output": string}),
        input_calls.patch_output_item,
    ),
    "additional_tools": _InputItemType(object_of({"tools": list_of(object_)}), _tools),
    "configuration_update": _InputItemType(object_of({}, {"reasoning": object_, "text": object_}), _configuration),
    "compaction": _InputItemType(object_of({"encrypted_content": string}), _compaction),
    "item_reference": _InputItemType(object_of({"id": string}), _reference),
    # calls of tools that the server runs
    "file_search_call": _InputItemType(
        object_of({"id": string, "queries": list_of(string)}, {"results": list_of(object_)}),
        input_calls.file_search_item,
    ),
    "code_interpreter_call": _InputItemType(
        object_of({"id": string}, {"code": string, "outputs": list_of(object_of({}, {"logs": string}))}),
        input_calls.code_interpreter_item,
    ),
    "mcp_call": _InputItemType(
        object_of(
            {"id": string, "server_label": string, "name": string, "arguments": string},
            {"output": string, "approval_request_id": string},
        ),
        input_calls.mcp_call_item,
    ),
    "web_search_call": _InputItemType(
        object_of({}, {"results": list_of(object_), "action": object_of({"type": string})}), input_calls.web_search_item
    ),
    "image_generation_call": _InputItemType(_ANYTHING, input_calls.dropped_item),
    "mcp_list_tools": _InputItemType(
        object_of({"server_label": string, "tools": list_of(object_of({"name": string}, _LISTED))}),
        input_calls.mcp_list_item,
    ),
    "mcp_approval_request": _InputItemType(_ANYTHING, input_calls.approval_request_item),
    "mcp_approval_response": _InputItemType(_ANYTHING, input_calls.approval_response_item),
    "compaction_trigger": _InputItemType(_ANYTHING, _misplaced),
    # items that the gateway cannot continue
    "computer_call": _InputItemType(_ANYTHING, _refused),
    "computer_call_output": _InputItemType(_ANYTHING, _refused),
    "program": _InputItemType(_ANYTHING, _refused),
    "program_output": _InputItemType(_ANYTHING, _refused),
}
