"""Convert items to their stored form, and to the form that lists show."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from gateway.api.responses.history import HistoryRules, Item, nested_detail
from gateway.api.responses.input_items import read_excerpt, resolve_references
from gateway.api.responses.objects import PREFIXES
from gateway.api.responses.params import REASONING, TEXT
from gateway.api.responses.tools import parse_tools, tools_echo
from gateway.errors import BadRequest

StoredPart = dict[str, Any]

# Members that all items or parts of a type have, besides an id and a status.
_MEMBERS: dict[str, Item] = {"reasoning": {"summary": []}, "additional_tools": {"role": "developer"}}
_PARTS: dict[str, StoredPart] = {
    "output_text": {"annotations": [], "logprobs": []},
    "input_image": {"detail": "auto"},
    "computer_screenshot": {"detail": "auto"},
}
# By type of item: the member that holds a text or parts.
_CONTENT_MEMBERS = {"message": "content", "function_call_output": "output", "custom_tool_call_output": "output"}
# Types of items that hold definitions of tools.
OFFERING = ("additional_tools", "tool_search_output")
_URLS = ("image_url", "video_url")
# By the value of `include` that shows it: the type of an item, and the member that is null otherwise.
_ON_DEMAND = {
    "reasoning.encrypted_content": ("reasoning", "encrypted_content"),
    "file_search_call.results": ("file_search_call", "results"),
    "web_search_call.results": ("web_search_call", "results"),
    "code_interpreter_call.outputs": ("code_interpreter_call", "outputs"),
}
_LOGPROBS = "message.output_text.logprobs"
_SOURCES = "web_search_call.action.sources"


def complete_item(item: Item, new_id: Callable[[str], str]) -> Item:
    """Return a checked item, which is no reference, in its long form.

    It has an id, a type and a status, and parts instead of a text.  Secrets are left out.

    new_id: returns a new id with a prefix.
    """
    given = {name: value for name, value in item.items() if value is not None}
    type = given.get("type", "message")
    id = given.pop("id", None) or new_id(PREFIXES.get(type, "item_"))
    whole = {"id": id, "type": type, "status": "completed", **_MEMBERS.get(type, {}), **given}
    if type == "message" and isinstance(data := whole["content"], str):
        whole["content"] = [{"type": "output_text" if whole["role"] == "assistant" else "input_text", "text": data}]
    if type in OFFERING:
        whole["tools"] = tools_echo(whole["tools"])
    if (place := _CONTENT_MEMBERS.get(type)) and isinstance(whole.get(place), list):
        whole[place] = list(map(_full_part, whole[place]))
    return whole


def with_unique_ids(items: Iterable[Item], before: Iterable[Item], new_id: Callable[[str], str]) -> list[Item]:
    """Return items in full that follow others; an item with a repeated id gets a new one, because lists page by id."""
    taken, whole = {item["id"] for item in before}, []
    for item in items:
        one = complete_item(item, new_id)
        if one["id"] in taken:
            one = complete_item({**item, "id": None}, new_id)
        taken.add(one["id"])
        whole.append(one)
    return whole


def visible_item(item: Item, include: Collection[str]) -> Item:
    """Return a stored item for a client, with the optional members that it includes."""
    hidden: Item = {
        member: None
        for name, (type, member) in _ON_DEMAND.items()
        if item["type"] == type and item.get(member) is not None and name not in include
    }
    if item["type"] == "message" and _LOGPROBS not in include:
        hidden["content"] = [{**part, "logprobs": []} if part.get("logprobs") else part for part in item["content"]]
    if "sources" in (action := item.get("action") or {}) and _SOURCES not in include:
        hidden["action"] = {name: value for name, value in action.items() if name != "sources"}
    return {**item, **hidden}


def _full_part(part: StoredPart) -> StoredPart:
    """Return a part with all members and flat URLs; clients that know chat completions write URLs as objects."""
    flat = {name: url["url"] for name in _URLS if isinstance(url := part.get(name), dict)}
    given = {name: value for name, value in part.items() if value is not None}
    detail = {"detail": nested} if (nested := nested_detail(part)) else {}
    return {**_PARTS.get(part["type"], {}), **detail, **given, **flat}


def complete_added_items(given: list[Any], param: str, rules: HistoryRules, new_id: Callable[[str], str]) -> list[Item]:
    """Return the items in full.  Raise BadRequest or NotFound for items that no input may have."""
    history = read_excerpt(given, param, rules)
    parse_tools(history.tools, rules.ledger)
    REASONING(history.settings.get("reasoning", {}), param)
    TEXT(history.settings.get("text", {}), param)
    items = [complete_item(item, new_id) for item in resolve_references(given, rules.items)]
    ids: set[str] = set()
    for item in items:
        if item["id"] in ids:
            raise duplicate_item_error(item["id"], param)
        ids.add(item["id"])
    return items


def duplicate_item_error(id: str, param: str) -> BadRequest:
    """Return the error for two items with the same id."""
    message = f"Duplicate item found with id {id}. Remove duplicate items from your input and try again."
    return BadRequest(message, param=param)
