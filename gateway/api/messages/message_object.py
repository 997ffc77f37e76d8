"""Build the members of a message beside its content: its head, its usage and its end.

Those that are called native come from a backend that speaks the client's API, beyond the events.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct, json

from gateway.api.messages.params import MessageHead
from gateway.events import NATIVE_BLOCK, NATIVE_END, NATIVE_USAGE, Usage

JsonObject = dict[str, Any]

STANDARD_TIER = "standard"  # the `service_tier` that a message begins with
_DERIVED = (None, "end_turn", "tool_use", "max_tokens", "stop_sequence")  # reasons that the content shows
_COUNTED = frozenset(
    ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens", "server_tool_use")
)


class MessageEnding(Struct, frozen=True):
    """The end of a message.  sequence: the matched stop sequence; refusal: the text of a refusal, None for none."""

    reason: str
    sequence: str | None = None
    refusal: str | None = None

    def members(self) -> JsonObject:
        """Return the members of a message, and of a `message_delta`, for this end."""
        members: JsonObject = {"stop_reason": self.reason, "stop_sequence": self.sequence}
        if self.reason == "refusal":
            members["stop_details"] = {"type": "refusal", "category": None, "explanation": self.refusal}
        return members


def message_object(head: MessageHead, content: list[JsonObject], ending: JsonObject, usage: JsonObject) -> JsonObject:
    """Return a message."""
    fields: JsonObject = {"id": head.id, "type": "message", "role": "assistant", "model": head.model}
    return {**fields, "content": content, **ending, "usage": usage}


def started_message(head: MessageHead, usage: Usage | None) -> JsonObject:
    """Return the message at its beginning.  usage: the counts of the backend so far; None: none."""
    counted = usage or Usage(head.input_tokens, 0)
    beginning = Usage(counted.prompt, 0, counted.cached, 0, counted.cache_written)
    return message_object(head, [], {"stop_reason": None, "stop_sequence": None}, message_usage(beginning, {}))


def message_usage(usage: Usage, server_uses: Mapping[str, int]) -> JsonObject:
    """Return the usage of a message."""
    return {**usage_counts(usage, server_uses), "service_tier": STANDARD_TIER}


def usage_counts(usage: Usage, server_uses: Mapping[str, int]) -> JsonObject:
    """Return the usage of a `message_delta`; cached tokens are not among the input tokens.

    server_uses: the number of requests of the gateway's own tools, by the names of the API; empty for none.
    """
    counts: JsonObject = {
        "input_tokens": max(usage.prompt - usage.cached - usage.cache_written, 0),
        "cache_creation_input_tokens": usage.cache_written,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    }
    if usage.reasoning:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if server_uses:
        counts["server_tool_use"] = {**server_uses}
    return counts


def no_native_members() -> dict[str, JsonObject]:
    """Return the members by the names of their events: none yet."""
    return {NATIVE_BLOCK: {}, NATIVE_END: {}, NATIVE_USAGE: {}}


def native_ending(members: JsonObject, native: Mapping[str, JsonObject]) -> JsonObject:
    """Return the members of the end with those of the backend, whose reason holds if the content does not show it."""
    given = native[NATIVE_END]
    reason = given.get("stop_reason")
    kept = {name: value for name, value in given.items() if value is not None and not name.startswith("stop_")}
    if reason in _DERIVED:
        return {**members, **kept}
    return {**members, **{name: value for name, value in given.items() if value is not None}}


def native_usage(counts: JsonObject, native: Mapping[str, JsonObject]) -> JsonObject:
    """Return the usage with the members that the backend has beside the counts."""
    given = native[NATIVE_USAGE]
    further = {name: value for name, value in given.items() if value is not None and name not in _COUNTED}
    server = {**(given.get("server_tool_use") or {}), **counts.get("server_tool_use", {})}
    return {**counts, **further, **({"server_tool_use": server} if server else {})}


def native_citation(data: Raw) -> JsonObject | None:
    """Return a citation of Anthropic's API; None for any other remark on a text."""
    value: Any = json.decode(data)
    return value if isinstance(value, dict) and str(value.get("type")).endswith("_location") else None
