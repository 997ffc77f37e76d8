"""Record the steps of one request where they happen."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from msgspec import json
from starlette.types import Message, Scope, Send

from gateway.errors import Problem
from gateway.events import Event, Usage
from gateway.pipeline.pipeline import Pipeline, RoundSource, SingleChunkDecoder
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
from gateway.request import Request
from gateway.server.http.client_connection import ClientConnection, connection_behind

_encoded = json.Encoder().encode
# Headers that affect the response; all others are left out, as many of them are secret.
_HEADERS = frozenset(
    (b"accept", b"content-type", b"openai-beta", b"user-agent", b"x-gateway-debug", b"x-gateway-strict")
)


class RequestRecorder:
    """Record the steps of a request.

    chosen: the recording is written to a file, if its outcome is of the configured sort.  Entries of chunks are then
    made while they come, so that the end of a long response holds up no other.
    begun: start on `perf_counter`.
    current_call: the number of the upstream call that was read last, 0 for none.
    """

    def __init__(self, id: str, most: int, *, chosen: bool) -> None:
        self.chosen = chosen
        self.begun, self._calls = perf_counter(), 0
        started = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.recording = Recording(id, started, most, begun=self.begun, deferred=not chosen)
        self.current_call = 0

    def record_request(self, scope: Scope, body: bytes) -> None:
        """Record the client's request."""
        entry = RequestEntry(self.now(), path=scope["path"], headers=_headers(scope), body=body)
        self.recording.add(entry, len(body))

    def record_prepared(self, entry: PreparedEntry) -> None:
        """Record the settings of an attempt."""
        self.recording.add(entry, len(_encoded((entry.settings, entry.learned))))

    def record_call(self, backend: str, path: str, body: bytes) -> "CallRecorder":
        """Record an upstream request; return the recorder of the call."""
        self._calls += 1
        self.recording.add(
            UpstreamRequestEntry(self.now(), call=self._calls, backend=backend, path=path, body=body), len(body)
        )
        return CallRecorder(self, self._calls)

    def read_from(self, call: int) -> None:
        """Note the number of the upstream call that is read from now on, 0 for none."""
        self.recording.settle()
        self.current_call = self.recording.call = call

    def ended(self, problem: Problem | None, events: list[Event]) -> None:
        """Record the end of a round, with the problem that ended it and its last events."""
        self.recording.add(RoundEndEntry(self.now(), problem=problem, events=_encoded(events) if events else b""))

    def record_response_headers(self, status: int, headers: dict[str, str]) -> None:
        """Record the status and the headers of the response."""
        self.recording.add(ResponseHeadersEntry(self.now(), status=status, headers=headers))

    def over(self, status: int, problem: Problem | None, ledger: list[str], line: dict[str, Any]) -> None:
        """Record the outcome of the request, with the fields of the access log in `line`."""
        self.recording.settle()
        cut = self.recording.cut
        self.recording.end(EndEntry(self.now(), status=status, problem=problem, ledger=ledger, cut=cut, line=line))

    def now(self) -> float:
        """Return the time of an entry recorded now, in seconds since the start."""
        return perf_counter() - self.begun


class CallRecorder:
    """Record one upstream call.  call: its number."""

    def __init__(self, request_recorder: RequestRecorder, call: int) -> None:
        self.request_recorder, self.call = request_recorder, call
        self._sent: float | None = None

    def slot_acquired(self) -> None:
        """Note that the call leaves the queue of the backend."""
        self._sent = self.request_recorder.now()

    def record_headers(self, content_type: str, since_connected: float | None) -> None:
        """Record the content type of the response.  since_connected: seconds since its new connection."""
        now = self.request_recorder.now()
        entry = UpstreamHeadersEntry(now, self.call, content_type, self._sent, _before(now, since_connected))
        self.request_recorder.recording.add(entry)

    def record_error(self, status: int, headers: Mapping[str, str], body: bytes, since_connected: float | None) -> None:
        """Record an error response.  since_connected: seconds since its new connection."""
        now, type, after = self.request_recorder.now(), headers.get("content-type", ""), headers.get("retry-after")
        connected = _before(now, since_connected)
        entry = UpstreamErrorEntry(now, self.call, status, type, body, after, self._sent, connected)
        self.request_recorder.recording.add(entry, len(body))

    def read(self, data: bytes) -> None:
        """Note that data of this call was read, called for the first data after another call and at the end.

        The end (b"") is recorded here.  Data is recorded later, with the events that it gives.
        """
        self.request_recorder.read_from(self.call)
        if not data:
            self.request_recorder.recording.add(UpstreamDataEntry(self.request_recorder.now(), self.call, data))


def _before(now: float, seconds: float | None) -> float | None:
    return None if seconds is None else now - seconds


class RecordedPipeline(Pipeline):
    """A Pipeline whose source records what `feed` gets.  The caller of `single_chunk_decoder` records its data."""

    def feed(self, data: bytes) -> bytes:
        """Return the client's data for the upstream's data, also that of a single chunk by the source."""
        self.forget_form()
        return super().feed(data)


class _RecordedSource:
    """A RoundSource that records its data and events, but for those of `single_chunk_decoder`."""

    def __init__(self, source: RoundSource, recorder: RequestRecorder) -> None:
        self._source, self._recorder = source, recorder
        self.set_content_type = source.set_content_type

    def feed(self, data: bytes) -> list[Event]:
        now = self._recorder.now()
        events = self._source.feed(data)
        self._recorder.recording.add(
            UpstreamDataEntry(now, self._recorder.current_call, data, _encoded(events) if events else b""), len(data)
        )
        return events

    def close(self) -> list[Event]:
        events = self._source.close()
        self._recorder.ended(None, events)
        return events

    def fail(self, problem: Problem) -> list[Event]:
        events = self._source.fail(problem)
        self._recorder.ended(problem, events)
        return events

    @property
    def usage(self) -> Usage:
        return self._source.usage

    @property
    def done(self) -> bool:
        return self._source.done

    @property
    def single_chunk_decoder(self) -> SingleChunkDecoder | None:
        return self._source.single_chunk_decoder


def record_rounds(
    open: Callable[[Request], RoundSource], recorder: RequestRecorder
) -> Callable[[Request], RoundSource]:
    """Return a function that opens recorded rounds."""

    def opened(request: Request) -> RoundSource:
        recorder.read_from(0)  # until a call sets it
        return _RecordedSource(open(request), recorder)

    return opened


def tee_send(send: Send, recorder: RequestRecorder) -> Send:
    """Return a `send` that records the response."""
    return _RecordingSendProxy(send, recorder)


def tee_lengths(send: Send) -> Send:
    """Return a `send` that records the length of each piece in place of a `send` that records the pieces."""
    return _LengthSendProxy(send) if isinstance(send, _RecordingSendProxy) else send


class _RecordingSendProxy(ClientConnection):
    """A `send` that records messages, and pieces that are sent at once."""

    def __init__(self, send: Send, recorder: RequestRecorder) -> None:
        self._send, self._recorder = send, recorder
        self.try_write_unrecorded = connection_behind(send).try_write  # type: ignore[method-assign] # no frame more

    def try_write(self, piece: bytes) -> bool:
        written = self.try_write_unrecorded(piece)
        if written:
            self._wrote(piece)
        return written

    def __call__(self, message: Message) -> Awaitable[None]:
        if body := message.get("body"):
            self._wrote(body)
        elif message["type"] == "http.response.start":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in message["headers"]}
            self._recorder.record_response_headers(message["status"], headers)
        return self._send(message)

    def _wrote(self, body: bytes) -> None:
        self._recorder.recording.add(ResponseDataEntry(self._recorder.now(), body), len(body))


class _LengthSendProxy(_RecordingSendProxy):
    """A `send` that records the lengths of pieces."""

    def __init__(self, proxy: _RecordingSendProxy) -> None:
        super().__init__(proxy._send, proxy._recorder)

    def _wrote(self, body: bytes) -> None:
        super()._wrote(b"[%d bytes]" % len(body))


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _HEADERS}
