"""Show how long the phases of a request took, on a time axis.  Places on the axis are percent of its length."""

from collections.abc import Iterator

from msgspec import Struct

from gateway.server.admin.exchange_times import AttemptTimes, ExchangeTimes

_MOST = 40  # parts of the output with a row of their own
_SHORT = 0.001  # seconds: a wait of less has no row
_NAMES = {"reasoning": "Reasoning", "text": "Text", "tool_call": "Tool call"}
_LOOKS = {"reasoning": "reasoning", "text": "text", "tool_call": "call"}
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600)
_TICKS = 5  # steps at most
_LAST = 0.95  # of the axis: a label behind it would not fit
_NARROWEST = 0.4  # percent


class PhaseRow(Struct, frozen=True):
    """A row beside the axis.  look: the color of its bar; ended, took: times in words."""

    name: str
    note: str
    look: str
    start: float
    width: float
    ended: str
    took: str


class TimeAxis(Struct, frozen=True):
    """The time axis of a request.  ticks: places with their labels."""

    ticks: list[tuple[float, str]]
    rows: list[PhaseRow]


class Phase(Struct, frozen=True):
    """A phase of a request.  start, end: seconds since the request arrived."""

    name: str
    look: str
    start: float
    end: float
    note: str = ""


def time_axis(times: ExchangeTimes, duration: float, *, live: bool) -> TimeAxis:
    """Return the axis of a request that took so many seconds, until now if it is live."""
    end = max(duration if times.end is None else times.end, _SHORT)
    step = next((one for one in _STEPS if end / one <= _TICKS), end / _TICKS)
    places = [step * n for n in range(int(end / step) + 1)]
    ticks = [(round(100 * at / end, 2), _seconds(at) if at else "0") for at in places if at < end * _LAST]
    return TimeAxis(ticks, [_row(one, end) for one in phases(times, duration, live=live)])


def _row(phase: Phase, end: float) -> PhaseRow:
    took = max(0.0, phase.end - phase.start)
    start, width = min(100 - _NARROWEST, 100 * phase.start / end), max(_NARROWEST, 100 * took / end)
    return PhaseRow(
        phase.name, phase.note, phase.look, round(start, 2), round(width, 2), _seconds(phase.end), _seconds(took)
    )


def phases(times: ExchangeTimes, duration: float, *, live: bool) -> Iterator[Phase]:
    """Yield the phases of a request in order."""
    attempts, parts, end = times.attempts, times.parts, times.end if times.end is not None else duration
    prepared = times.prepared if times.prepared is not None else end
    yield Phase("Gateway", "queue", 0.0, attempts[0].started if attempts else prepared)
    for place, attempt in enumerate(attempts, 1):
        at = f"{attempt.backend}, attempt {place}" if len(attempts) > 1 else attempt.backend
        yield from _attempt(attempt, at, end)
    begun, token = attempts[-1].first_byte if attempts else None, times.first_token
    if begun is not None and token is not None and token > begun:
        yield Phase("Until first token", "wait", begun, token)
    for part in parts[:_MOST]:
        yield Phase(_NAMES[part.kind], _LOOKS[part.kind], part.start, part.end, part.name)
    if more := parts[_MOST:]:
        yield Phase(f"{len(more)} further parts", "text", more[0].start, more[-1].end)
    if not live and times.end is not None and attempts:
        last = parts[-1].end if parts else attempts[-1].ended or 0.0
        yield Phase("End", "queue", min(last, times.end), times.end)


def _attempt(attempt: AttemptTimes, at: str, end: float) -> Iterator[Phase]:
    """Yield the phases of a call.  at: its backend; end: of what is known."""
    started = attempt.started
    if attempt.wait is not None and attempt.wait > _SHORT:
        yield Phase("Wait before the attempt", "queue", started - attempt.wait, started)
    sent = attempt.sent if attempt.sent is not None else started
    if sent - started > _SHORT:
        yield Phase("Queue", "queue", started, sent, at)
    if attempt.connected is not None:
        yield Phase("Connect", "queue", sent, attempt.connected, at)
        sent = attempt.connected
    has_failed = attempt.error or (attempt.status or 0) >= 400
    note = f"{at}: {attempt.status or ''} {attempt.error or ''}" if has_failed else at
    look, first, over = "bad" if has_failed else "wait", attempt.first_byte, attempt.ended
    if first is not None:
        yield Phase("Until first byte", look, sent, first, note)
    else:
        yield Phase("Until the end", look, sent, end if over is None else over, note)


def _seconds(time: float) -> str:
    if time >= 1:
        return f"{time:.{2 if time < 10 else 1}f} s"
    return "< 1 ms" if 0 < time < _SHORT else f"{time * 1000:.0f} ms"
