"""A strict Messages server whose model knows the conversations of worked_examples.py, and fills in any tool or schema.

A question that the model thinks about says so, as the API takes no thoughts of others that would tell them apart.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from support.anthropic_server import PATH, faults, forced_tool, frames, message, text, thinking, tool_use
from support.worked_examples import TURNS, Turn

Json = dict[str, Any]

SIGNATURE = "c2ln"
MARK = " Think first."
COUNTS = {"input_tokens": 108, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 3, "output_tokens": 9}
PEOPLE = [{"name": "Eve", "age": 44}, {"name": "Ann", "age": 31}]
VALUES = {"city": "Paris", "unit": "celsius", "tasks": PEOPLE, **PEOPLE[0]}  # of the members of tools and schemas
OF_TYPE = {"integer": 5, "number": 5, "boolean": True, "array": [], "object": {}}


def marked(turn: Turn) -> Turn:
    """Return the conversation with a question that says whether the model thinks."""
    *before, last = turn.messages
    if not turn.thought:
        return turn
    return turn._replace(messages=[*before, {**last, "content": last["content"] + MARK}])


MARKED = {name: marked(turn) for name, turn in TURNS.items()}
_KNOWN = {turn.messages[-1]["content"]: turn for turn in MARKED.values() if turn.messages[-1]["role"] == "user"}
_FOLLOW_UP = TURNS["follow_up"]


def app() -> Starlette:
    """Return the server."""
    return Starlette(
        routes=[
            Route(PATH, _message, methods=["POST"]),
            Route(f"{PATH}/count_tokens", _count, methods=["POST"]),
        ]
    )


async def _message(http: Request) -> Response:
    body = await http.json()
    if found := faults(body):
        return _refused(found)
    blocks = [*_content(body)]
    reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    response = message(*blocks, reason=reason, usage=COUNTS)
    return (
        StreamingResponse(frames(response), media_type="text/event-stream")
        if body.get("stream")
        else JSONResponse(response)
    )


async def _count(http: Request) -> Response:
    found = faults(await http.json(), counts=True)
    tokens = COUNTS["input_tokens"] + COUNTS["cache_read_input_tokens"]
    return _refused(found) if found else JSONResponse({"input_tokens": tokens})


def _refused(found: list[str]) -> Response:
    error = {"type": "invalid_request_error", "message": "; ".join(found)}
    return JSONResponse({"type": "error", "error": error}, 400)


def _content(body: Json) -> Iterator[Json]:
    """Yield the blocks of the response."""
    *_, last = _blocks(body["messages"][-1]["content"])
    schema = body.get("output_config", {}).get("format", {}).get("schema")
    forced = forced_tool(body)
    if turn := _KNOWN.get(last.get("text", "")):
        for block in _responses(turn, shown=(body.get("thinking") or {}).get("display") != "omitted"):
            yield {**block, "name": forced["name"]} if forced and block["type"] == "tool_use" else block
    elif forced:
        yield {**tool_use(forced["name"]), "input": _filled(forced["input_schema"])}
    elif schema or "JSON" in json.dumps(body.get("system", "")):
        yield text(json.dumps(_filled(schema) if schema else PEOPLE[0]))
    else:
        if MARK in json.dumps(body["messages"][-3:]):
            yield thinking("It is there.", SIGNATURE)
        yield text(_FOLLOW_UP.content if "18" in json.dumps(last.get("content", "")) else "Done.")


def _blocks(content: str | list[Json]) -> list[Json]:
    return [text(content)] if isinstance(content, str) else content


def _responses(turn: Turn, *, shown: bool) -> Iterator[Json]:
    if turn.thought:
        yield thinking(turn.thought if shown else "", SIGNATURE)
    if turn.content:
        yield text(turn.content)
    for number, (name, arguments) in enumerate(turn.calls):
        yield tool_use(name, f"toolu_{number}", **arguments)


def _filled(schema: Mapping[str, Any]) -> Json:
    """Return an object that fits a schema."""
    members = schema.get("properties", {})
    return {name: VALUES.get(name, OF_TYPE.get(one.get("type"), "Oslo")) for name, one in members.items()}
