"""Recordings for tests: from responses of other servers, and from a gateway."""

import json
from pathlib import Path

import msgspec

from gateway.recording import (
    EndEntry,
    PreparedEntry,
    Recording,
    RequestEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamHeadersEntry,
    UpstreamRequestEntry,
    parse_recording,
)
from support.recorded_servers import CHAT, COMPLETIONS, EXCHANGES, client_request

MODEL = "m"


def recording_of(name, stream=False):
    """Return a recorded response of tests/recordings as a gateway would have recorded it."""
    exchange, question = EXCHANGES[name], client_request(name).request
    request = {"model": MODEL, **exchange.request, "stream": stream}
    request |= (
        {"prompt": "Hello"} if exchange.path == COMPLETIONS else {"messages": [{"role": "user", "content": "Hello"}]}
    )
    if not stream:
        request.pop("stream_options", None)
    if exchange.path == CHAT and question.tools:
        request["tools"] = [{"type": "function", "function": tool.definition} for tool in question.tools]
    settings = {"format": exchange.server.format, "thought": exchange.server.thought}
    recording = Recording("1", "2026-11-22T10:00:00.000+00:00", 1 << 30)
    add(recording, RequestEntry, path=exchange.path, headers={}, body=json.dumps(request).encode())
    add(
        recording,
        PreparedEntry,
        model=MODEL,
        backend="up",
        upstream_model=MODEL,
        server={"kind": "openai"},
        settings=settings,
        format="",
        reason="",
    )
    add(recording, UpstreamRequestEntry, call=1, backend="up", path=exchange.path, body=b"{}")
    add(recording, UpstreamHeadersEntry, call=1, content_type=exchange.content_type)
    add(recording, UpstreamDataEntry, call=1, data=exchange.body)
    if not exchange.broken:
        add(recording, UpstreamDataEntry, call=1, data=b"")
    add(recording, RoundEndEntry)
    recording.end(EndEntry(t=0.0, status=200, cut=False))
    return recording


def recorded(folder, mode="all", **more):
    """Return the section `recording` of a configuration."""
    return {"recording": {"mode": mode, "directory": str(folder), "content": True, **more}}


def events(entry):
    """Return the events of an entry as data."""
    return json.loads(entry.events or "[]")


def add(recording, kind, **members):
    """Add an entry.  events: encoded, or as data."""
    if "events" in members:
        members["events"] = msgspec.json.encode(members["events"])
    size = len(members.get("body", members.get("data", b"")))
    recording.add(kind(t=0.0, **members), size)


def recordings(folder):
    """Return all recordings in a folder, in the order in which they began."""
    return [parse_recording(file.read_bytes()) for file in sorted(Path(folder).glob("*.jsonl"))]
