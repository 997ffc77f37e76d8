"""Encode calls of tools at the gateway as blocks: the call, then its result.

The events have these calls as output items of the Responses API.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gateway.api.messages.message_object import JsonObject
from gateway.api.responses.params import EncoderInputs
from gateway.request import StoredReasoning

_SEARCH, _FETCH = "web_search", "web_fetch"
_REQUESTS = {_SEARCH: "web_search_requests", _FETCH: "web_fetch_requests"}  # as the usage names them


def use_start(item: Mapping[str, Any], new_id: Callable[[str], str]) -> JsonObject | None:
    """Return the block of a call without its input; None for an item that the API lacks."""
    if item["type"] == "web_search_call":
        name = _SEARCH if item["action"]["type"] == "search" else _FETCH
        return {"type": "server_tool_use", "id": new_id("srvtoolu_"), "name": name}
    if item["type"] == "mcp_call":
        server = item["server_label"]
        return {"type": "mcp_tool_use", "id": new_id("mcptoolu_"), "name": item["name"], "server_name": server}
    return None


def request_counts(names: Iterable[str]) -> dict[str, int]:
    """Return the number of requests of these calls, by the names of the usage; empty for none."""
    counted = Counter(name for name in names if name in _REQUESTS)
    return {_REQUESTS[name]: counted[name] for name in _REQUESTS} if counted else {}


def use_result(use: Mapping[str, Any], end: Mapping[str, Any], edge: EncoderInputs) -> JsonObject:
    """Return the result block of a call.  end: the members of its item at the end."""
    failed = end.get("status", "completed") == "failed"
    if use["type"] == "mcp_tool_use":
        content = [{"type": "text", "text": _mcp_text(end)}]
        return {"type": "mcp_tool_result", "tool_use_id": use["id"], "is_error": failed, "content": content}
    name = use["name"]
    results = end.get("results") or []
    made: Any = [_found(result, edge) for result in results]
    if failed:
        made = {"type": f"{name}_tool_result_error", "error_code": end.get("error_code", "unavailable")}
    elif name == _FETCH:
        made = _page(results, end)
    return {"type": f"{name}_tool_result", "tool_use_id": use["id"], "content": made}


def _mcp_text(end: Mapping[str, Any]) -> str:
    if not (error := end.get("error")):
        return end.get("output") or ""
    parts = error.get("content") or [{"text": error.get("message") or ""}]
    return "\n".join(part["text"] for part in parts)


def _found(result: Mapping[str, Any], edge: EncoderInputs) -> JsonObject:
    sealed = edge.seal(StoredReasoning(result["text"]))
    members = {"url": result["url"], "title": result["title"], "encrypted_content": sealed, "page_age": None}
    return {"type": "web_search_result", **members}


def _page(results: list[dict[str, Any]], end: Mapping[str, Any]) -> JsonObject:
    text = "\n\n".join(result["text"] for result in results)
    title = results[0]["title"] if results else None
    source = {"type": "text", "media_type": "text/plain", "data": text}
    document = {"type": "document", "source": source, "title": title}
    url = (end.get("action") or {}).get("url") or ""
    return {"type": "web_fetch_result", "url": url, "content": document, "retrieved_at": None}
