"""The question of a recording, to be asked again: what it refers to is not there any more, and it may go elsewhere."""

from collections.abc import Mapping
from typing import Any

ENDPOINTS: Mapping[str, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
}
_REFERENCES = ("item_reference", "compaction")
_GONE = ("previous_response_id", "conversation", "background", "prompt_cache_key")
_HELLO = "Hello"  # the backend's answer is known already: what it was asked is no matter
_COMMON = ("model", "stream", "temperature", "top_p", "parallel_tool_calls", "top_logprobs")


def make_stateless(body: dict[str, Any]) -> dict[str, Any]:
    """The same without what was stored, and without storing it."""
    said = {name: value for name, value in body.items() if name not in _GONE}
    if isinstance(said.get("input"), list):
        said["input"] = _standing(said["input"]) or _HELLO
    return {**said, "store": False} if "input" in said or "store" in said else said


def convert_to_endpoint(body: dict[str, Any], before: str, path: str) -> dict[str, Any]:
    """For another endpoint a question that may be answered alike: with the tools of this one, in its own words."""
    if before == path:
        return body
    said = {name: body[name] for name in _COMMON if name in body}
    flat = path == ENDPOINTS["responses"]
    said |= {"input": _HELLO, "store": False} if flat else {"messages": [{"role": "user", "content": _HELLO}]}
    tools = [_tool(one, flat=flat) for one in body.get("tools") or () if one.get("type") in ("function", "custom")]
    return {**said, "tools": tools, **_choice(body)} if tools else said


def _choice(body: dict[str, Any]) -> dict[str, Any]:
    return {"tool_choice": body["tool_choice"]} if isinstance(body.get("tool_choice"), str) else {}


def _tool(tool: dict[str, Any], *, flat: bool) -> dict[str, Any]:
    """As the endpoint has it: with its members in itself, or under the name of its type."""
    kind = tool["type"]
    members = tool.get(kind) or {name: value for name, value in tool.items() if name != "type"}
    return {"type": kind, **members} if flat else {"type": kind, kind: members}


def _standing(items: list[Any]) -> list[Any]:
    """Return the items that need no others: no references, no outputs of calls elsewhere, nothing sealed."""
    objects = [item for item in items if isinstance(item, dict)]
    called = {item.get("call_id") for item in objects if not str(item.get("type")).endswith("_output")}
    return [
        {name: value for name, value in item.items() if name != "encrypted_content"}
        for item in objects
        if item.get("type") not in _REFERENCES and item.get("call_id") in {None, *called}
    ]
