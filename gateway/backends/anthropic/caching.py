"""Set the points up to which Anthropic's API caches a prompt, for clients that cannot."""

from typing import Any

from gateway.backends.anthropic.messages import JsonObject

_POINT = {"type": "ephemeral"}
_TURNS = 2  # the last turns of the user that get a point; the API takes four points in all


def cache_prompt(fields: JsonObject) -> None:
    """Mark the last tool, the instructions and the last turns of the user, unless the client set a point itself."""
    users = [turn for turn in fields["messages"] if turn["role"] == "user"][-_TURNS:]
    lists: list[list[Any]] = [fields.get("tools") or [], fields.get("system") or []]
    lists += [turn["content"] for turn in users]
    turns = [block for turn in fields["messages"] for block in turn["content"]]
    if "cache_control" in fields or any("cache_control" in one for one in [*lists[0], *lists[1], *turns]):
        return
    for blocks in filter(None, lists):
        blocks[-1] = {**blocks[-1], "cache_control": _POINT}
