"""Replay a recording: send the recorded request to a gateway in front of a mock backend.

The request is made stateless, since the stored objects that it refers to do not exist any more.  An outcome is a
recording reduced to a comparable result, independent of chunking, ids and times.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from difflib import unified_diff
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
    ResponseDataEntry,
    RoundEndEntry,
    UnreadableRecording,
    UpstreamDataEntry,
    UpstreamRequestEntry,
)
from gateway.replay.mock_backend import CallChooser, MockBackend, MockRequest, Rechunk, RecordedCall, recorded_calls
from gateway.server.app import create_app
from gateway.server.upstream.model_metadata import LearnedMetadata

# Members that differ between two runs, or between two requests of the same meaning.
_OWN = frozenset(
    (
        "call_id", "completed_at", "created", "created_at", "encrypted_content", "id", "item_id", "obfuscation",
        "previous_response_id", "store", "background", "conversation", "prompt_cache_key", "signature",
    )
)  # fmt: skip
_PIECES = {"Text": "text", "Reasoning": "text", "Refusal": "text", "ToolInput": "text", "ToolArgs": "json"}
_ONCE = frozenset(("finish_reason", "model", "object", "role", "service_tier", "system_fingerprint", "type"))
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


class Outcome(Struct, frozen=True):
    """The comparable result of a request.

    problem: the code of the error, else its type.
    said: the output of each choice in order; each text is one string.
    usage: the usage of each round.
    ledger: the warnings.
    answer: the response to the client, its chunks merged; None for the acceptance of a background response.
    """

    status: int
    problem: str | None
    said: list[Any]
    usage: list[Any]
    ledger: list[str]
    answer: Any


def outcome_of(recording: Recording) -> Outcome:
    """Return the outcome of a complete recording."""
    over = recording.entries[-1]
    assert isinstance(over, EndEntry)
    events = [
        one
        for entry in recording.entries
        if isinstance(entry, UpstreamDataEntry | RoundEndEntry)
        for one in _decoded_events(entry)
    ]
    problem = (over.problem.code or over.problem.type) if over.problem else None
    usage = [*_usage(recording)]
    return Outcome(over.status, problem, _choice_outputs(events), usage, sorted(over.ledger), _answer(recording))


def diff_outcomes(before: Outcome, now: Outcome, members: Sequence[str]) -> list[str]:
    """Return lines that show the differences in these members; none if they are equal.

    A replay runs in the foreground, so it cannot repeat the acceptance of a background response.
    """
    lines: list[str] = []
    for name in members:
        old, new = getattr(before, name), getattr(now, name)
        if old != new and (name != "answer" or old is not None):
            shown = unified_diff(_lines(old), _lines(new), "recorded", "now", lineterm="", n=1)
            lines += [f"{name}:", *list(shown)[2:]]
    return lines


def _lines(value: object) -> list[str]:
    return json.format(json.encode(value), indent=1).decode().splitlines()


def _usage(recording: Recording) -> Iterator[Any]:
    """Yield the last usage of each round."""
    last = None
    for entry in recording.entries:
        if isinstance(entry, UpstreamDataEntry | RoundEndEntry):
            last = next((one for one in reversed(_decoded_events(entry)) if one["event"] == "Usage"), last)
        if isinstance(entry, RoundEndEntry) and last:
            yield last
            last = None


def _decoded_events(entry: UpstreamDataEntry | RoundEndEntry) -> list[dict[str, Any]]:
    """Return the events of an entry as data."""
    return json.decode(entry.events, type=list[dict[str, Any]]) if entry.events else []


def _choice_outputs(events: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the output of each choice, independent of its chunks."""
    choices: dict[int, list[Any]] = {}
    for one in events:
        if one["event"] not in ("Usage", "Failure"):
            one.pop("id", None)
            _add(choices.setdefault(one.pop("choice", None) or 0, []), one)
    return [choices[choice] for choice in sorted(choices)]


def _add(items: list[Any], new: dict[str, Any]) -> None:
    text, last = _PIECES.get(new["event"]), items[-1] if items else {}
    same = last.get("event") == new["event"] and last.get("call") == new.get("call")
    if text and same and not last.get("signature"):
        joined = {name: last[name] + new[name] for name in ("logprobs",) if name in last and name in new}
        items[-1] = {**last, **new, **joined, text: last[text] + new[text]}
    else:
        items.append(new)


def _answer(recording: Recording) -> Any:  # noqa: ANN401 - decoded JSON
    data = b"".join(entry.data for entry in recording.entries if isinstance(entry, ResponseDataEntry))
    if data[:1] == b"{":
        whole = json.decode(data)
        return None if whole.get("status") == "queued" else _normal(whole)
    frames = [json.decode(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    if responses := [frame["response"] for frame in frames if "response" in frame]:
        return _normal(responses[-1])
    answer: Any = None
    for frame in frames:
        answer = _folded(answer, frame)
    return _normal(answer)


def _folded(before: Any, new: Any, name: str = "") -> Any:  # noqa: ANN401 - decoded JSON
    """Merge a chunk into the value of the chunks before it."""
    if isinstance(before, dict) and isinstance(new, dict):
        return {**before, **{key: _folded(before.get(key), value, key) for key, value in new.items()}}
    if isinstance(before, list) and isinstance(new, list):
        return _united(before, new)
    if isinstance(before, str) and isinstance(new, str) and name not in _ONCE:
        return before + new
    return before if new is None else new


def _united(before: list[Any], new: list[Any]) -> list[Any]:
    """Merge two lists; entries with the same index are merged."""
    result = [*before]
    for one in new:
        index = one.get("index") if isinstance(one, dict) else None
        place = next((i for i, old in enumerate(result) if index is not None and old.get("index") == index), None)
        if place is None:
            result.append(one)
        else:
            result[place] = _folded(result[place], one)
    return result


def _normal(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if isinstance(value, dict):
        return {name: _normal(one) for name, one in value.items() if name not in _OWN and not _worded(name, one)}
    return [_normal(one) for one in value] if isinstance(value, list) else value


def _worded(name: str, value: object) -> bool:
    """Return True for an error message; its wording may change."""
    return name == "message" and isinstance(value, str)


ENDPOINTS: Mapping[str, str] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}


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
            backend.metadata_cache.remember(convert(entry.learned, list[LearnedMetadata]))
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
