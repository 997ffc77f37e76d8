"""Compute the times of one request from its recording: the attempts, and the parts of the output.

All times are seconds since the request arrived.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct, json

from gateway.recording import (
    EndEntry,
    PreparedEntry,
    Recording,
    RecordingEntry,
    ResponseHeadersEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamHeadersEntry,
    UpstreamRequestEntry,
)

PartKind = Literal["reasoning", "text", "tool_call"]
_PARTS: dict[str, PartKind] = {
    "Reasoning": "reasoning",
    "Text": "text",
    "Refusal": "text",
    "ToolStart": "tool_call",
    "ToolArgs": "tool_call",
    "ToolInput": "tool_call",
    "ToolEnd": "tool_call",
}
_PIECES = frozenset(("Reasoning", "Text", "Refusal", "ToolArgs", "ToolInput"))  # what a client sees grow
_BARS = 120
_SHORTEST, _SILENCE = 0.001, 1.0  # seconds


class AttemptTimes(Struct):
    """One call of a backend.  Its queue lasts from `started` to `sent`.

    call: its number; wait: seconds since the call before it ended, None for the first; started: it joined the queue.
    connected: the time of its new connection, None if it used an open one; answered: of the response's headers.
    status: of the backend, None without a response; error: the code of the failure.
    """

    call: int
    backend: str
    model: str
    path: str
    started: float
    wait: float | None = None
    sent: float | None = None
    connected: float | None = None
    answered: float | None = None
    first_byte: float | None = None
    ended: float | None = None
    status: int | None = None
    error: str | None = None


class PartTimes(Struct):
    """A part of the output.  name: of the tool; entry: the number of the first entry that has it.

    choice: its index; pieces: the number of events.
    """

    kind: PartKind
    name: str
    choice: int
    entry: int
    start: float
    end: float
    pieces: int = 1


class OutputPace(Struct, frozen=True):
    """The pace of the output.

    bars: the number of pieces of output in each of 120 equal parts of the time so far.
    first_byte: of any backend; silences: the start and the end of each time of more than a second without a byte.
    """

    bars: list[int] = []
    first_byte: float | None = None
    silences: list[tuple[float, float]] = []


class ExchangeTimes(Struct, frozen=True):
    """The times of a request.  prepared: the gateway had chosen a backend; client_start: the response began.

    end: None while the request runs.
    """

    pace: OutputPace = OutputPace()

    attempts: list[AttemptTimes] = []
    parts: list[PartTimes] = []
    prepared: float | None = None
    queue_start: float | None = None
    queue_end: float | None = None
    connected: float | None = None
    first_byte: float | None = None
    first_token: float | None = None
    client_start: float | None = None
    end: float | None = None


class _PartEvent(Struct, rename={"kind": "event"}):
    """The members of an event that tell its part."""

    kind: str
    choice: int | None = None
    call: int | None = None
    name: str = ""


_decoded = json.Decoder(list[_PartEvent]).decode


def exchange_times(recording: Recording) -> ExchangeTimes:
    """Return the times known so far; queue, connection and first byte are those of the last call."""
    output = [*_output(recording.entries)]
    attempts, parts = _attempts(recording), _parts(output)
    last = attempts[-1] if attempts else None
    return ExchangeTimes(
        pace=_pace(recording.entries, output),
        attempts=attempts,
        parts=parts,
        prepared=_first(recording, PreparedEntry),
        queue_start=last.started if last else None,
        queue_end=last.sent if last else None,
        connected=last.connected if last else None,
        first_byte=last.first_byte if last else None,
        first_token=min((part.start for part in parts), default=None),
        client_start=_first(recording, ResponseHeadersEntry),
        end=_first(recording, EndEntry),
    )


def _first(recording: Recording, kind: type[PreparedEntry | ResponseHeadersEntry | EndEntry]) -> float | None:
    return next((entry.t for entry in recording.entries if isinstance(entry, kind)), None)


def _attempts(recording: Recording) -> list[AttemptTimes]:
    """Return the calls in their order.  An end without a call, of tools at the gateway, changes none."""
    attempts: list[AttemptTimes] = []
    model, before = "", None
    for entry in recording.entries:
        current = attempts[-1] if attempts else None
        match entry:
            case PreparedEntry():
                model = entry.upstream_model
            case UpstreamRequestEntry():
                wait = None if before is None else entry.t - before
                attempts.append(AttemptTimes(entry.call, entry.backend, model, entry.path, entry.t, wait))
            case UpstreamHeadersEntry() | UpstreamErrorEntry() | UpstreamDataEntry() if current:
                _note(attempts, entry)
            case RoundEndEntry() | EndEntry() if current and current.ended is None:
                current.ended = before = entry.t
                if entry.problem:
                    current.error = entry.problem.code or entry.problem.type
    return attempts


def _note(attempts: list[AttemptTimes], entry: UpstreamHeadersEntry | UpstreamErrorEntry | UpstreamDataEntry) -> None:
    attempt = next((one for one in attempts if one.call == entry.call), None)
    if not attempt:
        return
    if isinstance(entry, UpstreamDataEntry):
        if attempt.first_byte is None and entry.data:
            attempt.first_byte = entry.t
        return
    attempt.sent, attempt.connected, attempt.answered = entry.sent, entry.connected, entry.t
    attempt.status = entry.status if isinstance(entry, UpstreamErrorEntry) else 200


def _output(entries: Iterable[RecordingEntry]) -> Iterator[tuple[int, float, _PartEvent]]:
    """Yield the events of the output, each with the number of its entry and its time."""
    for number, entry in enumerate(entries):
        if isinstance(entry, UpstreamDataEntry | RoundEndEntry) and entry.events:
            yield from ((number, entry.t, event) for event in _decoded(entry.events) if event.kind in _PARTS)


def _parts(output: Iterable[tuple[int, float, _PartEvent]]) -> list[PartTimes]:
    """Return the parts of the output in the order of their starts."""
    parts: list[PartTimes] = []
    current: dict[int, tuple[object, PartTimes]] = {}
    for number, time, event in output:
        kind, choice = _PARTS[event.kind], event.choice or 0
        key, before = (kind, event.call), current.get(choice)
        if before and before[0] == key:
            before[1].end, before[1].pieces = time, before[1].pieces + 1
        else:
            part = PartTimes(kind, event.name, choice, number, time, time)
            parts.append(part)
            current[choice] = key, part
    return parts


def _pace(entries: Sequence[RecordingEntry], output: Iterable[tuple[int, float, _PartEvent]]) -> OutputPace:
    bars, last = [0] * _BARS, max(entries[-1].t, _SHORTEST) if entries else _SHORTEST
    for _, time, event in output:
        if event.kind in _PIECES:
            bars[min(_BARS - 1, int(time / last * _BARS))] += 1
    reads = [entry.t for entry in entries if isinstance(entry, UpstreamDataEntry) and entry.data]
    silences = [(before, after) for before, after in pairwise(reads) if after - before > _SILENCE]
    return OutputPace(bars, reads[0] if reads else None, silences)
