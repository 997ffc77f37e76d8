"""Select the requests that are traced, and export their spans; one tracer per process."""

import asyncio
import logging
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway import config
from gateway.installation import install_command
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.spans import make_spans
from gateway.server.observability.trace_context import Trace, parse_traceparent

if TYPE_CHECKING:
    from gateway.server.observability.otlp_exporter import OtlpExporter

_log = logging.getLogger("gateway")


class Tracer:
    """Trace a share of the requests, as configured.  enabled: False if no request is traced."""

    def __init__(self) -> None:
        self._settings = config.TracingSettings()
        self._export: OtlpExporter | None = None
        self.enabled = False

    def follow(self, settings: config.TracingSettings) -> None:
        """Apply these settings from now on."""
        if settings == self._settings:
            return
        self._settings, old = settings, self._export
        self._export = self._made(settings)
        self.enabled = self._export is not None
        if old:
            old.close()

    def begin(self, endpoint: str, headers: Iterable[tuple[bytes, bytes]]) -> Trace | None:
        """Return the trace of a new request; None if tracing is off or the endpoint has no traces."""
        if not self._export or not endpoint:
            return None
        before = parse_traceparent(headers)
        return Trace(before, sampled=before.sampled if before else random.random() < self._settings.share)

    def end(self, record: RequestRecord, trace: Trace) -> None:
        """Export the spans of a finished request, if its trace is sampled."""
        if self._export and trace.sampled:
            self._export.send(trace.id, make_spans(record, trace))

    async def flush(self) -> None:
        """Return when all spans are sent, or after a timeout."""
        if self._export:
            await asyncio.to_thread(self._export.flush)

    def _made(self, settings: config.TracingSettings) -> "OtlpExporter | None":
        if not settings.enabled:
            return None
        try:
            from gateway.server.observability.otlp_exporter import OtlpExporter  # noqa: PLC0415 - an extra
        except ImportError:
            _log.warning("tracing needs packages that are not installed; run: %s", install_command("gateway[otel]"))
            return None
        return OtlpExporter(settings)
