"""Select the requests of a process that are recorded, and start the process that writes them.

Removing secrets and contents takes longer than a response, so it runs in another process.
"""

import asyncio
import logging
import os
import random
import sys
from asyncio.subprocess import PIPE
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter

from gateway.backends.pass_through import PASS_THROUGH
from gateway.config import Config
from gateway.recording import ExchangeSummary, Recording, summarize
from gateway.server.child_process import run_child
from gateway.server.observability.access_log import access_log_fields
from gateway.server.observability.recording_writer import LENGTH, RecordingFolder, WriteOrder, packed
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.request_recorder import RequestRecorder

_PROGRAM = (sys.executable, "-P", "-m", "gateway.server.observability.recording_writer")
_MAX = 64 << 20  # bytes that wait to be written
_SECONDS = 30  # to write them at the end
_log = logging.getLogger("gateway")
_RECORD_HEADER = (b"x-gateway-record", b"1")
_ENDPOINTS = frozenset(
    ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/compact", "/v1/messages")
).union(row.path for row in PASS_THROUGH)
_size = attrgetter("size")
_RECENT = 200
_MAX_RECENT = 64 << 20  # bytes of these
SUMMARIES = 1000  # finished requests in the list
_MAX_KEYS_BEFORE = 100  # keys of backends from earlier configurations


class RecordingWriter:
    """A child process that writes recordings: `write` while it is `alive`, then `end` it."""

    def __init__(self) -> None:
        self.alive, self._over = True, False
        self._early: list[bytes] = []  # data from before its start
        self._input: asyncio.StreamWriter | None = None
        self._life = asyncio.create_task(self._live())

    def write(self, order: bytes) -> bool:
        """Queue a WriteOrder; return False if too much data waits already."""
        if self._waiting + len(order) > _MAX:
            return False
        self._early += (len(order).to_bytes(LENGTH, "big"), order)
        self._pass_on()
        return True

    async def end(self) -> None:
        """Return when all recordings are written, or after 30 s."""
        self._over = True
        self._pass_on()
        try:
            await asyncio.wait_for(self._life, _SECONDS)
        except TimeoutError:
            _log.warning("recordings are lost: writing them took longer than %d s", _SECONDS)

    @property
    def _waiting(self) -> int:
        return sum(map(len, self._early)) + (self._input.transport.get_write_buffer_size() if self._input else 0)

    def _pass_on(self) -> None:
        if self._input:
            self._input.writelines(self._early)
            self._early.clear()
            if self._over:
                self._input.close()

    async def _live(self) -> None:
        known = {"PYTHONPATH": os.pathsep.join(sys.path)}  # the path of this gateway, but no secrets
        try:
            async with run_child(*_PROGRAM, stdin=PIPE, stdout=PIPE, env=known, start_new_session=True) as process:
                assert process.stdin and process.stdout
                self._input = process.stdin
                self._pass_on()
                async for line in process.stdout:
                    _log.warning("a recording could not be written: %s", line.decode(errors="replace").strip())
                self.alive = False
                code = await process.wait()
        except OSError as error:
            self.alive = False
            _log.error("recordings are lost: the recording writer cannot start: %s", error.strerror)
            return
        if code or not self._over:
            _log.error("the recording writer exited with status %d; its pending recordings are lost", code)


class Recorder:
    """Record requests.

    enabled: some requests are recorded.
    recent: recordings of recent and running requests, for the inspector; secrets: values that recordings must not hold.
    Summaries of finished requests are kept longer.
    """

    def __init__(self) -> None:
        self.recent: deque[Recording] = deque(maxlen=_RECENT)
        self._summaries: deque[ExchangeSummary] = deque(maxlen=SUMMARIES)
        self._writer: RecordingWriter | None = None
        self.secrets: Sequence[bytes] = ()
        self.follow(Config())

    def follow(self, config: Config) -> None:
        """Apply these settings from now on."""
        self._settings, self._shown = config.recording, config.inspector.enabled
        self.enabled = self._shown or self._settings.mode != "off"
        keys = [one.api_key.get_secret_value() for one in config.backends.values() if one.api_key]
        known = [key.encode() for key in keys]
        before = [key for key in self.secrets if key not in known]  # recordings of requests before may have these
        self.secrets = [*known, *before[:_MAX_KEYS_BEFORE]]
        settings = config.recording
        self._folder = RecordingFolder(settings.directory, settings.files, settings.bytes, settings.content)

    def begin(self, id: str, endpoint: str, headers: Iterable[tuple[bytes, bytes]]) -> RequestRecorder | None:
        """Return the recorder of a new request; None if it is not recorded."""
        if endpoint not in _ENDPOINTS:
            return None
        chosen = self._chosen(headers)
        if not (chosen or self._shown):
            return None
        recorder = RequestRecorder(id, self._settings.exchange_bytes, chosen=chosen)
        if self._shown:
            while sum(map(_size, self.recent)) > _MAX_RECENT:
                self.recent.popleft()
            self.recent.append(recorder.recording)
        return recorder

    def end(self, record: RequestRecord, recorder: RequestRecorder) -> None:
        """End the recording, and write it if it is of the configured sort."""
        line = access_log_fields(record)
        del line["error"], line["ledger"]  # the recording has these itself
        recorder.over(record.outcome, record.problem, record.ledger.listed(), line)
        if self._shown:
            self._summaries.append(summarize(recorder.recording, self.secrets))
        failed = record.outcome >= 400
        if recorder.chosen and (failed or self._settings.mode != "errors") and recorder.recording.request_entry:
            self._write(recorder.recording)

    def exchanges(self) -> list[ExchangeSummary]:
        """Return the summaries of the running requests and of the finished ones, each the newest last."""
        running = [one for one in self.recent if not one.over]
        for one in running:
            one.settle()
        return [*self._summaries, *(summarize(one, self.secrets) for one in running if one.count)]

    def _chosen(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        match self._settings.mode:
            case "off":
                return False
            case "sample":
                return random.random() < self._settings.share
            case "header":
                return _RECORD_HEADER in headers
            case _:
                return True

    def _write(self, recording: Recording) -> None:
        try:
            order = packed(_write_order(recording, self._folder, self.secrets))
        except Exception as error:  # noqa: BLE001 - the request has its response and must not fail
            _log.error("a recording is lost: it cannot be encoded (%s)", type(error).__name__)
            return
        if not (self._writer and self._writer.alive):
            self._writer = RecordingWriter()
        if not self._writer.write(order):
            _log.warning("a recording is lost: the queue of the recording writer is full")

    async def flush(self) -> None:
        """Return when all recordings are written; the next one starts a new child process."""
        writer, self._writer = self._writer, None
        if writer:
            await writer.end()


def _write_order(recording: Recording, folder: RecordingFolder, secrets: Sequence[bytes]) -> WriteOrder:
    return WriteOrder(
        recording.id,
        recording.started,
        recording.entries,
        recording.size,
        recording.max_bytes,
        folder,
        secrets,
    )
