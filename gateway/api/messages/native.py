"""Keep what a backend that speaks the client's API says beyond the events: members of blocks, of the end and the usage.

Also read such a body: signatures that the gateway made become those of the backend again.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, json

from gateway.api.messages.message_object import JsonObject
from gateway.events import NATIVE_BLOCK, NATIVE_END, NATIVE_USAGE

_DERIVED = (None, "end_turn", "tool_use", "max_tokens", "stop_sequence")  # reasons that the content shows
_COUNTED = frozenset(
    ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "server_tool_use")
)


def no_members() -> dict[str, JsonObject]:
    """Return the members by the names of their events: none yet."""
    return {NATIVE_BLOCK: {}, NATIVE_END: {}, NATIVE_USAGE: {}}


def ending(members: JsonObject, native: Mapping[str, JsonObject]) -> JsonObject:
    """Return the members of the end with those of the backend, whose reason holds if the content does not show it."""
    given = native[NATIVE_END]
    reason = given.get("stop_reason")
    kept = {name: value for name, value in given.items() if value is not None and not name.startswith("stop_")}
    if reason in _DERIVED:
        return {**members, **kept}
    return {**members, **{name: value for name, value in given.items() if value is not None}}


def usage(counts: JsonObject, native: Mapping[str, JsonObject]) -> JsonObject:
    """Return the usage with the members that the backend has beside the counts."""
    given = native[NATIVE_USAGE]
    further = {name: value for name, value in given.items() if value is not None and name not in _COUNTED}
    server = {**(given.get("server_tool_use") or {}), **counts.get("server_tool_use", {})}
    return {**counts, **further, **({"server_tool_use": server} if server else {})}


def citation(data: Raw) -> JsonObject | None:
    """Return a citation of Anthropic's API; None for any other remark on a text."""
    value: Any = json.decode(data)
    return value if isinstance(value, dict) and str(value.get("type")).endswith("_location") else None
