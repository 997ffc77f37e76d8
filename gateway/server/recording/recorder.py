"""Which requests are written down, and where they go; a process has one."""

import logging
import random
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter

from gateway.config import Config
from gateway.recording import Recording
from gateway.server.recording.order import RecordingFolder, WriteOrder, packed
from gateway.server.recording.tape import RequestRecorder
from gateway.server.recording.writer import RecordingWriter
from gateway.server.telemetry.line import access_log_fields
from gateway.server.telemetry.observation import RequestRecord

_log = logging.getLogger("gateway")
_ASKED_FOR = (b"x-gateway-record", b"1")
_ENDPOINTS = frozenset(("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/responses/compact"))
_size = attrgetter("size")
_RECENT = 32
_MOST_RECENT = 64 << 20  # bytes of these


class Recorder:
    """recent: recordings of late and running requests, for the inspector.

    secrets: values that are masked.
    """

    def __init__(self) -> None:
        self.recent: deque[Recording] = deque(maxlen=_RECENT)
        self._writer: RecordingWriter | None = None
        self.follow(Config())

    def follow(self, config: Config) -> None:
        """Apply these settings from now on."""
        self._settings, self._shown = config.recording, config.inspector.enabled
        keys = [one.api_key.get_secret_value() for one in config.backends.values() if one.api_key]
        self.secrets: Sequence[bytes] = [key.encode() for key in keys]
        settings = config.recording
        self._folder = RecordingFolder(settings.directory, settings.files, settings.bytes, settings.content)

    def begin(self, id: str, endpoint: str, headers: Iterable[tuple[bytes, bytes]]) -> RequestRecorder | None:
        """Return None if recordings are off."""
        if (self._settings.mode == "off" and not self._shown) or endpoint not in _ENDPOINTS:
            return None
        chosen = self._chosen(headers)
        if not (chosen or self._shown):
            return None
        tape = RequestRecorder(id, self._settings.exchange_bytes, chosen=chosen)
        if self._shown:
            while sum(map(_size, self.recent)) > _MOST_RECENT:
                self.recent.popleft()
            self.recent.append(tape.recording)
        return tape

    def end(self, seen: RequestRecord, tape: RequestRecorder) -> None:
        """End the recording."""
        line = access_log_fields(seen)
        del line["error"], line["ledger"]  # these it has itself
        tape.over(seen.outcome, seen.problem, seen.ledger.listed(), line)
        failed = seen.outcome >= 400
        if tape.chosen and (failed or self._settings.mode != "errors") and tape.recording.asked:
            self._write(tape.recording)

    def _chosen(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        match self._settings.mode:
            case "off":
                return False
            case "sample":
                return random.random() < self._settings.share
            case "header":
                return _ASKED_FOR in headers
            case _:
                return True

    def _write(self, recording: Recording) -> None:
        try:
            order = packed(WriteOrder(recording.id, recording.started, recording.entries, self._folder, self.secrets))
        except Exception as error:  # noqa: BLE001 - it is no fault of the request, which has its answer
            _log.error("a recording is lost: %s", type(error).__name__)
            return
        if not (self._writer and self._writer.alive):
            self._writer = RecordingWriter()
        if not self._writer.write(order):
            _log.warning("a recording is lost: more come than can be written")

    async def flush(self) -> None:
        """Return when all is written; nothing is left running until there is more."""
        writer, self._writer = self._writer, None
        if writer:
            await writer.end()
