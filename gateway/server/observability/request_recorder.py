"""Writes down what happens to one request, at the places where it happens."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from msgspec import json
from starlette.types import Message, Scope, Send

from gateway.errors import Problem
from gateway.events import Event, Usage
from gateway.pipeline.pipeline import Lone, RoundSource
from gateway.recording import (
    EndEntry,
    PreparedEntry,
    Recording,
    RequestEntry,
    ResponseDataEntry,
    ResponseHeadersEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamHeadersEntry,
    UpstreamRequestEntry,
)
from gateway.recording.entries import ENTRY
from gateway.request import Request
from gateway.server.http.client_connection import ClientConnection
from gateway.server.http.response_writer import connection_behind

_encoded = json.Encoder().encode
# What the head of a request says of how it is to be answered; all else is left out, as much of it is secret.
_HEADERS = frozenset(
    (b"accept", b"content-type", b"openai-beta", b"user-agent", b"x-gateway-debug", b"x-gateway-strict")
)


class RequestRecorder:
    """Records the steps of a request.  put: returns the recorder of an upstream call.

    chosen: it is to be kept, if it is of the sort that is.  begun: when it began, as `perf_counter` has it.
    speaks: the call that was read last, 0 for none.
    """

    def __init__(self, id: str, most: int, *, chosen: bool) -> None:
        self.chosen = chosen
        self.recording = Recording(id, datetime.now(UTC).isoformat(timespec="milliseconds"), most)
        self.begun, self._calls = perf_counter(), 0
        self.speaks = 0

    def record_request(self, scope: Scope, body: bytes) -> None:
        entry = RequestEntry(self.now(), path=scope["path"], headers=_headers(scope), body=body)
        self.recording.add(entry, len(body))

    def record_prepared(self, entry: PreparedEntry) -> None:
        self.recording.add(entry, len(_encoded((entry.settings, entry.learned))))

    def record_call(self, backend: str, path: str, body: bytes) -> "CallRecorder":
        self._calls += 1
        self.recording.add(
            UpstreamRequestEntry(self.now(), call=self._calls, backend=backend, path=path, body=body), len(body)
        )
        return CallRecorder(self, self._calls)

    def answered(self, call: int, content_type: str) -> None:
        self.recording.add(UpstreamHeadersEntry(self.now(), call=call, content_type=content_type))

    def record_upstream_error(self, call: int, status: int, headers: Mapping[str, str], body: bytes) -> None:
        type, after = headers.get("content-type", ""), headers.get("retry-after")
        entry = UpstreamErrorEntry(
            self.now(), call=call, status=status, content_type=type, retry_after=after, body=body
        )
        self.recording.add(entry, len(body))

    def ended(self, problem: Problem | None, events: list[Event]) -> None:
        self.recording.add(RoundEndEntry(self.now(), problem=problem, events=_encoded(events) if events else b""))

    def record_response_headers(self, status: int, headers: dict[str, str]) -> None:
        self.recording.add(ResponseHeadersEntry(self.now(), status=status, headers=headers))

    def over(self, status: int, problem: Problem | None, ledger: list[str], line: dict[str, Any]) -> None:
        cut = self.recording.cut
        self.recording.end(EndEntry(self.now(), status=status, problem=problem, ledger=ledger, cut=cut, line=line))

    def now(self) -> float:
        """The time of the entry that comes now."""
        return perf_counter() - self.begun


class CallRecorder:
    """One call, to a tape that has others.  call: its number."""

    def __init__(self, tape: RequestRecorder, call: int) -> None:
        self.recorder, self.call = tape, call

    def answered(self, content_type: str) -> None:
        self.recorder.answered(self.call, content_type)

    def record_error(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.recorder.record_upstream_error(self.call, status, headers, body)

    def read(self, data: bytes) -> None:
        """To be told of the end, which is written down here, and of what is read of it after another call: that is
        written down with what it says, when that is known.
        """
        self.recorder.speaks = self.call
        if not data:
            self.recorder.recording.add(UpstreamDataEntry(self.recorder.now(), self.call, data))


class _RecordedSource:
    """A source whose events are written down."""

    def __init__(self, source: RoundSource, tape: RequestRecorder) -> None:
        self._source, self._tape, self._heard = source, tape, _hearing(tape)
        self.answered = source.answered

    def feed(self, data: bytes) -> list[Event]:
        now = perf_counter()
        events = self._source.feed(data)
        self._heard(now, data, events)
        return events

    def close(self) -> list[Event]:
        events = self._source.close()
        self._tape.ended(None, events)
        return events

    def fail(self, problem: Problem) -> list[Event]:
        events = self._source.fail(problem)
        self._tape.ended(problem, events)
        return events

    @property
    def usage(self) -> Usage:
        return self._source.usage

    @property
    def done(self) -> bool:
        return self._source.done

    @property
    def feed_one(self) -> Lone | None:
        read, event = self._source.feed_one, self._heard
        if not read:
            return None

        def told(data: bytes) -> Sequence[Event] | None:
            now = perf_counter()
            if (events := read(data)) is not None:
                event(now, data, events)
            return events

        return told


def _hearing(tape: RequestRecorder) -> Callable[[float, bytes, Sequence[Event]], None]:
    """Writes down what was read, when, and what it says."""
    recording, begun = tape.recording, tape.begun
    add, most = recording.entries.append, recording.max_bytes

    def heard(now: float, data: bytes, events: Sequence[Event]) -> None:
        recording.size = size = recording.size + len(data) + ENTRY
        if size <= most:
            add(UpstreamDataEntry(now - begun, tape.speaks, data, _encoded(events) if events else b""))

    return heard


def record_rounds(
    open: Callable[[Request], RoundSource], tape: RequestRecorder | None
) -> Callable[[Request], RoundSource]:
    """Return a function that opens recorded rounds."""
    if not tape:
        return open

    def opened(request: Request) -> RoundSource:
        tape.speaks = 0  # until a call does
        return _RecordedSource(open(request), tape)

    return opened


def tee_send(send: Send, tape: RequestRecorder | None) -> Send:
    """Return a `send` that records the response."""
    return _RecordingSendProxy(send, tape) if tape else send


class _RecordingSendProxy(ClientConnection):
    """Sends messages, and pieces at once."""

    def __init__(self, send: Send, tape: RequestRecorder) -> None:
        self._send, self._tape, self._try_write = send, tape, connection_behind(send).try_write

    def try_write(self, piece: bytes) -> bool:
        written = self._try_write(piece)
        if written:
            self._wrote(piece)
        return written

    def __call__(self, message: Message) -> Awaitable[None]:
        if body := message.get("body"):
            self._wrote(body)
        elif message["type"] == "http.response.start":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            self._tape.record_response_headers(message["status"], headers)
        return self._send(message)

    def _wrote(self, body: bytes) -> None:
        recording = self._tape.recording
        recording.size = size = recording.size + len(body) + ENTRY
        if size <= recording.max_bytes:
            recording.entries.append(ResponseDataEntry(perf_counter() - self._tape.begun, body))


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
