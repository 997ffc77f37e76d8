"""Feed a relay chunks that need no task: from the upstream's bytes to the client's, with and without a recording."""

from collections.abc import Callable, Coroutine, Generator, Sequence
from functools import partial
from math import inf
from time import perf_counter
from typing import Any

from msgspec import Struct

from bench.core import HERMES, begun_pipeline, text
from gateway.config.schema import StreamSettings
from gateway.server.http.client_connection import ClientConnection, EventStreamWriter
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.request_recorder import RequestRecorder, tee_send
from gateway.server.relay.relay import open_relay
from gateway.server.upstream import DataCallback

Feed = Callable[[bytes], object]
_TAPE = 64 << 20  # bytes of a recording


class _Client(ClientConnection):
    """A client that takes each piece at once."""

    def try_write(self, piece: bytes) -> bool:
        return True

    async def __call__(self, message: object) -> None: ...


class _Pause:
    """A wait without an end."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class _Call:
    """An upstream call: the task reads some chunks, then waits, and the callback gets the others."""

    over = False
    callback: DataCallback
    task: Coroutine[Any, Any, None]  # of the reader

    def __init__(self, first: Sequence[bytes]) -> None:
        self._first = [*first]

    async def ready(self, seconds: float = inf, callback: DataCallback | None = None, /) -> bool:
        if not self._first:
            assert callback
            self.callback = callback
            await _Pause()
        return True

    def read(self) -> bytes:
        return self._first.pop(0)

    def report_outcome(self, problem: object) -> None: ...

    def close(self) -> None: ...


class _Attempts:
    """The only attempt at a response."""

    backend: Any = None

    def __init__(self, call: _Call, recorder: RequestRecorder | None) -> None:
        self.record, self._call = RequestRecord("req_1", "POST", "chat", lambda _: None, recorder=recorder), call

    def next_call(self) -> _Call:
        return self._call

    def call_after_failure(self, problem: object, retry_after: str | None) -> None: ...


async def _is_stored(record: object) -> bool:
    return True


class RelayedStretch(Struct, frozen=True):
    """One chunk of text, repeated, that a relay passes on.  recorded: the inspector is on."""

    format: str
    word: str
    recorded: bool
    before: tuple[str, ...] = ()

    def begin(self) -> Callable[[], object]:
        """Return a function that feeds the chunk to a new relay once more."""
        recorder = RequestRecorder("req_1", _TAPE, chosen=False) if self.recorded else None
        return partial(
            begun_relay(self.format, [*map(text, self.before), *[text(self.word)] * 3], recorder), text(self.word)
        )


def begun_relay(format: str, first: Sequence[bytes], recorder: RequestRecorder | None) -> Feed:
    """Return a function that feeds a chunk to a relay, whose task has read the first ones.

    The task waits as long as the function lives.
    """
    call = _Call(first)
    relay = open_relay(begun_pipeline(format, recorder), _Attempts(call, recorder), StreamSettings(), _is_stored)
    client = _Client()
    call.task = relay.stream(EventStreamWriter(tee_send(client, recorder) if recorder else client))
    call.task.send(None)
    callback = call.callback
    return lambda data: callback(data, perf_counter())


STRETCHES = {
    f"{name}, relayed, inspector {'on' if recorded else 'off'}": RelayedStretch(format, word, recorded, before)
    for name, format, word, before in (
        ("native text", "native", " the", ()),
        ("hermes_json, call", "hermes_json", "a[i]", HERMES),
    )
    for recorded in (False, True)
}
