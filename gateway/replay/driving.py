"""A gateway in front of a player, which is asked as the recorded one was."""

from collections.abc import Sequence
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
from gateway.replay.asking import ENDPOINTS, convert_to_endpoint, make_stateless
from gateway.replay.player import CallChooser, MockBackend, MockRequest
from gateway.replay.script import Rechunk, RecordedCall, recorded_calls
from gateway.server.app import create_app
from gateway.server.learning import LearnedMetadata

_SOON = 0.5  # seconds for what was too late then
_NOWHERE = "http://127.0.0.1:9"  # where no server listens
_ENOUGH = 1 << 40  # bytes


class ReplayOptions(Struct, frozen=True):
    """Differences from the recorded request; None: none.  cut: of the backends' bytes; timed: at the recorded pace."""

    format: str | None = None
    endpoint: str | None = None
    cut: Rechunk | None = None
    timed: bool = False


_AS_IT_WAS = ReplayOptions()


async def replayed(recording: Recording, ways: ReplayOptions = _AS_IT_WAS) -> Recording:
    """Return the recording of today's gateway; raise Unplayable."""
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
            backend.learner.recall(convert(entry.learned, list[LearnedMetadata]))
        await _ask(app, recording, ways.endpoint)
        again: Recording = app.state.telemetry.recorder.recent[-1]
        return again


def _check(recording: Recording, ways: ReplayOptions) -> None:
    *entries, over = recording.entries
    assert recording.asked, "a recording says what was asked"
    if ways.endpoint and recording.asked.path not in ENDPOINTS.values():
        raise UnreadableRecording(f"what {recording.asked.path} was asked cannot be asked elsewhere")
    if recording.cut:
        raise UnreadableRecording("it is too long to have been written down to its end")
    if not any(isinstance(entry, UpstreamRequestEntry) for entry in entries):
        raise UnreadableRecording("no backend was asked")
    if any(isinstance(entry, UpstreamDataEntry) and not entry.call for entry in entries):
        raise UnreadableRecording("tools ran at the gateway, which are not here")
    if isinstance(over, EndEntry) and over.status == 499:
        raise UnreadableRecording("its client left")


def _in_order(script: Sequence[RecordedCall]) -> CallChooser:
    """Each backend says one thing after another."""
    left = [*script]

    def choose(asked: MockRequest) -> RecordedCall | None:
        found = next((call for call in left if asked.path == f"/{call.backend}{call.path}"), None)
        if found:
            left.remove(found)
        return found

    return choose


def _config(
    prepared: Sequence[PreparedEntry], script: Sequence[RecordedCall], root: str, folder: str, format: str | None
) -> Config:
    """A gateway that has what this request met, and asks in the order in which it was done then."""
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
    said = {
        "backends": backends,
        "models": models,
        "store": {"url": f"sqlite:///{folder}/gateway.db"},
        "responses": {"min_output_tokens": 1, "repair_dangling_calls": True},
        "recording": {"exchange_bytes": _ENOUGH},
        "inspector": {"enabled": True},
    }
    return parse(json.encode(said).decode().replace("${", "$${"), "replay", {}, formats.format_names())


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
    asked = recording.asked
    assert asked, "a recording says what was asked"
    path = ENDPOINTS[endpoint] if endpoint else asked.path
    body = asked.body
    with suppress(DecodeError, UnicodeDecodeError):
        body = json.encode(convert_to_endpoint(make_stateless(json.decode(body)), asked.path, path))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
        await client.post(path, content=body, headers=asked.headers, timeout=None)
