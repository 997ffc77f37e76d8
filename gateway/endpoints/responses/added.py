"""Items that a client adds to a conversation, rather than asks a model with."""

from collections.abc import Callable
from typing import Any

from gateway.endpoints.responses.fields import REASONING, TEXT
from gateway.endpoints.responses.items import read_excerpt, resolve_references
from gateway.endpoints.responses.past import HistoryRules, Item
from gateway.endpoints.responses.stored import complete_item
from gateway.endpoints.responses.tools import parse_tools
from gateway.errors import BadRequest


def complete_added_items(given: list[Any], param: str, rules: HistoryRules, new_id: Callable[[str], str]) -> list[Item]:
    """The items in full.  Raise BadRequest, or NotFound, for what an input could not have."""
    said = read_excerpt(given, param, rules)
    parse_tools(said.tools, rules.ledger)
    REASONING(said.settings.get("reasoning", {}), param)
    TEXT(said.settings.get("text", {}), param)
    items = [complete_item(item, new_id) for item in resolve_references(given, rules.items)]
    ids: set[str] = set()
    for item in items:
        if item["id"] in ids:
            raise duplicate_item_error(item["id"], param)
        ids.add(item["id"])
    return items


def duplicate_item_error(id: str, param: str) -> BadRequest:
    message = f"Duplicate item found with id {id}. Remove duplicate items from your input and try again."
    return BadRequest(message, param=param)
