"""Measure the extra cost of recording a chunk that arrives alone and is sent alone."""

import gc
import json
import time
import timeit
from collections.abc import Iterator, Sequence

from bench.core import NATIVE_TEXT
from bench.figures import Figure
from bench.relayed import begun_relay
from gateway.server.observability.recorder import RecordingFolder, WriteOrder, packed
from gateway.server.observability.request_recorder import RequestRecorder

_MOST = 0.4  # times a decoding: 1 µs if that takes 2.5
_NAME = "core, a recorded chunk: more by"
_DECODED = 1000
_FIRST, _LAST = 4, 2  # chunks that a task reads
_BYTES = 64 << 20
_FOLDER = RecordingFolder("recordings", 1, 1, content=True)


def figures(quick: bool) -> Iterator[Figure]:
    """Yield the cost in this process, up to the message to the process that writes."""
    chunks = NATIVE_TEXT.chunks(200)[:-_LAST]
    rounds = range(100 if quick else 500)
    off, on = (min(_seconds(chunks, recorded=recorded) for _ in rounds) for recorded in (False, True))
    more = (on - off) / (len(chunks) - _FIRST)
    yield Figure("core", _NAME, "µs/chunk", (more * 1e6,))
    payload = chunks[1].removeprefix(b"data: ")
    decoding = min(timeit.repeat(lambda: json.loads(payload), number=_DECODED, repeat=10)) / _DECODED
    yield Figure("core", f"{_NAME}, to a decoding with the standard library", "×", (more / decoding,), wanted=_MOST)


def _seconds(chunks: Sequence[bytes], *, recorded: bool) -> float:
    """Return the CPU seconds of a response."""
    recorder = RequestRecorder("req_1", _BYTES, chosen=True) if recorded else None
    feed = begun_relay("native", chunks[:_FIRST], recorder)
    gc.collect()
    gc.disable()  # a gateway collects much less often than this process
    begin = time.thread_time()
    for chunk in chunks[_FIRST:]:
        feed(chunk)
    if recorder:
        recording = recorder.recording
        recording.settle()
        packed(WriteOrder("req_1", "", recording.entries, recording.size, recording.max_bytes, _FOLDER, ()))
    seconds = time.thread_time() - begin
    gc.enable()
    return seconds
