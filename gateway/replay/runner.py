"""Replay a recording: send the recorded request to a gateway in front of a mock backend.

The request is made stateless, since the stored objects that it refers to do not exist any more.
"""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from fastapi import FastAPI
from msgspec import DecodeError, Struct, convert, json

from gateway import formats
from gateway.config import Config, parse
from gateway.recording import (
    EndEntry,
    PreparedEntry,
    Recording,
    UnreadableRecording,
    UpstreamDataEntry,
    UpstreamRequestEntry,
)
from gateway.replay.mock_backend import CallChooser, MockBackend, MockRequest, Rechunk, RecordedCall, recorded_calls
from gateway.server.app import create_app
from gateway.server.upstream.model_metadata import LearnedMetadata

ENDPOINTS: Mapping[str, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
_REFERENCES = ("item_reference", "compaction")
_GONE = ("previous_response_id", "conversation", "background", "prompt_cache_key")
_HELLO = "Hello"  # any text: the backend's response is already recorded
_COMMON = ("model", "stream", "temperature", "top_p", "parallel_tool_calls", "top_logprobs")
_OF_MESSAGES = ("model", "stream")
_CHAT_PROMPT = {"messages": [{"role": "user", "content": _HELLO}]}
_PROMPTS: Mapping[str, dict[str, Any]] = {
    "chat": _CHAT_PROMPT,
    "responses": {"input": _HELLO, "store": False},
    "messages": {**_CHAT_PROMPT, "max_tokens": 1024},
}
_SOON = 0.5  # seconds for a timeout in the recording
_NOWHERE = "http://127.0.0.1:9"  # an address without a server
_ENOUGH = 1 << 40  # bytes


def make_stateless(body: dict[str, Any]) -> dict[str, Any]:
    """Return the request without references to stored objects, and with `store` off."""
    fields = {name: value for name, value in body.items() if name not in _GONE}
    if isinstance(fields.get("input"), list):
        fields["input"] = _standing(fields["input"]) or _HELLO
    return {**fields, "store": False} if "input" in fields or "store" in fields else fields


def convert_to_endpoint(body: dict[str, Any], before: str, path: str) -> dict[str, Any]:
    """Return a request to another endpoint that fits the recorded responses.

    The request has the same tools, in the form of the other API.
    """
    if before == path:
        return body
    api = next(name for name, one in ENDPOINTS.items() if one == path)
    fields = {name: body[name] for name in _COMMON if name in body and (api != "messages" or name in _OF_MESSAGES)}
    fields |= _PROMPTS[api]
    tools = [_tool_for(api, *found) for tool in body.get("tools") or () if (found := _tool(tool))]
    return {**fields, "tools": tools, **_choice(body, api)} if tools else fields


def _choice(body: dict[str, Any], api: str) -> dict[str, Any]:
    choice = body.get("tool_choice")
    return {"tool_choice": choice} if isinstance(choice, str) and api != "messages" else {}


def _tool(tool: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the type and the members of a tool that the client runs, in any API; None for another tool."""
    if "input_schema" in tool:
        members: dict[str, Any] = {name: tool[name] for name in ("name", "description", "strict") if name in tool}
        return "function", {**members, "parameters": tool["input_schema"]}
    kind = tool.get("type")
    if kind not in ("function", "custom"):
        return None
    return kind, tool.get(kind) or {name: value for name, value in tool.items() if name != "type"}


def _tool_for(api: str, kind: str, members: dict[str, Any]) -> dict[str, Any]:
    """Return a tool in the form of an API."""
    if api == "messages":
        return {"name": members["name"], "input_schema": members.get("parameters") or {"type": "object"}}
    return {"type": kind, **members} if api == "responses" else {"type": kind, kind: members}


def _standing(items: list[Any]) -> list[Any]:
    """Return the items that stand alone: no references, no outputs without their tool call, no encrypted content."""
    objects = [item for item in items if isinstance(item, dict)]
    called = {item.get("call_id") for item in objects if not str(item.get("type")).endswith("_output")}
    return [
        {name: value for name, value in item.items() if name != "encrypted_content"}
        for item in objects
        if item.get("type") not in _REFERENCES and item.get("call_id") in {None, *called}
    ]


class ReplayOptions(Struct, frozen=True):
    """Differences from the recorded request; None: none.

    cut: splits the backends' bytes into other pieces.
    timed: play at the recorded pace.
    """

    format: str | None = None
    endpoint: str | None = None
    cut: Rechunk | None = None
    timed: bool = False


_AS_IT_WAS = ReplayOptions()


async def replayed(recording: Recording, ways: ReplayOptions = _AS_IT_WAS) -> Recording:
    """Replay through the current gateway, and return the new recording.  Raises UnreadableRecording."""
    _check(recording, ways)
    script = [call.cut(ways.cut) if ways.cut else call for call in recorded_calls(recording)]
    prepared = [entry for entry in recording.entries if isinstance(entry, PreparedEntry)]
    player = MockBackend(_in_order(script), {entry.upstream_model for entry in prepared}, timed=ways.timed)
    async with AsyncExitStack() as held:
        root = await held.enter_async_context(player.serving())
        folder = held.enter_context(TemporaryDirectory())
        app = create_app(_config(prepared, script, root, folder, ways.format))
        await held.enter_async_context(app.router.lifespan_context(app))
        for entry in prepared:
            backend = app.state.directory.backends[entry.backend]
            backend.learner.remember(convert(entry.learned, list[LearnedMetadata]))
        await _ask(app, recording, ways.endpoint)
        again: Recording = app.state.telemetry.recorder.recent[-1]
        return again


def _check(recording: Recording, ways: ReplayOptions) -> None:
    *entries, over = recording.entries
    assert recording.request_entry, "a recording says what was asked"
    if ways.endpoint and recording.request_entry.path not in ENDPOINTS.values():
        raise UnreadableRecording(
            f"a request to {recording.request_entry.path} cannot be converted to another endpoint"
        )
    if recording.cut:
        raise UnreadableRecording("it was cut at its size limit (recording.exchange_bytes)")
    if not any(isinstance(entry, UpstreamRequestEntry) for entry in entries):
        raise UnreadableRecording("no backend was called")
    if any(isinstance(entry, UpstreamDataEntry) and not entry.call for entry in entries):
        raise UnreadableRecording("tools ran at the gateway, and they are not available here")
    if isinstance(over, EndEntry) and over.status == 499:
        raise UnreadableRecording("its client disconnected")


def _in_order(script: Sequence[RecordedCall]) -> CallChooser:
    """Return a chooser that plays each backend's calls in their order."""
    left = [*script]

    def choose(request: MockRequest) -> RecordedCall | None:
        found = next((call for call in left if request.path == f"/{call.backend}{call.path}"), None)
        if found:
            left.remove(found)
        return found

    return choose


def _config(
    prepared: Sequence[PreparedEntry], script: Sequence[RecordedCall], root: str, folder: str, format: str | None
) -> Config:
    """Return a configuration with the recorded settings, in which backends are tried in the recorded order."""
    models: dict[str, Any] = {}
    for entry in reversed(prepared):
        settings = {**entry.settings, "hedge_seconds": 0, **({"format": format} if format else {})}
        known = models.setdefault(entry.model, {**settings, "backends": {}})
        known["backends"][entry.backend] = entry.upstream_model
    for one in models.values():
        names = [*one["backends"].items()][::-1]
        one["backends"] = [
            {"name": name, "upstream_model": model, "priority": place} for place, (name, model) in enumerate(names)
        ]
    first = prepared[0].model
    models[first]["fallback"] = [
        {"model": name, "when": ["unavailable", "too_long"]} for name in models if name != first
    ]
    backends = {entry.backend: _backend(entry, script, root) for entry in prepared}
    fields = {
        "backends": backends,
        "models": models,
        "store": {"url": f"sqlite:///{folder}/gateway.db"},
        "responses": {"min_output_tokens": 1, "repair_dangling_calls": True},
        "recording": {"exchange_bytes": _ENOUGH},
        "inspector": {"enabled": True},
    }
    return parse(json.encode(fields).decode().replace("${", "$${"), "replay", {}, formats.format_names())


def _backend(entry: PreparedEntry, script: Sequence[RecordedCall], root: str) -> dict[str, Any]:
    calls = [call for call in script if call.backend == entry.backend]
    away = bool(calls) and all(call.end == "away" for call in calls)
    late = any(call.end == "hang" for call in calls)
    return {
        **entry.server,
        "url": _NOWHERE if away else f"{root}/{entry.backend}",
        "timeouts": {"first_byte": _SOON, "idle": _SOON} if late else {},
    }


async def _ask(app: FastAPI, recording: Recording, endpoint: str | None) -> None:
    entry = recording.request_entry
    assert entry, "a recording says what was asked"
    path = ENDPOINTS[endpoint] if endpoint else entry.path
    body = entry.body
    with suppress(DecodeError, UnicodeDecodeError):
        body = json.encode(convert_to_endpoint(make_stateless(json.decode(body)), entry.path, path))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        await client.post(path, content=body, headers=entry.headers, timeout=None)
