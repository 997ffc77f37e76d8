"""Send spans to a collector: over HTTP by OpenTelemetry's own exporter, in a thread of its own.

Its packages are an extra (`gateway[otel]`), and are imported only if there is something to export.
"""

from collections.abc import Callable, Iterable
from time import perf_counter, time_ns

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from gateway import __version__, config
from gateway.server.observability.spans import Span

_KINDS = {"server": SpanKind.SERVER, "client": SpanKind.CLIENT, "internal": SpanKind.INTERNAL}
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_UNNAMED = "unknown_service"  # OpenTelemetry's prefix of the service name if the environment has none
_SECONDS = 5  # for the remaining spans at the end


class OtlpExporter:
    """Export spans.  The environment (`OTEL_EXPORTER_OTLP_…`, `OTEL_SERVICE_NAME`) completes the settings."""

    def __init__(self, settings: config.TracingSettings) -> None:
        headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
        exporter = OTLPSpanExporter(endpoint=settings.url, headers=headers or None)
        self._processor = BatchSpanProcessor(exporter)
        # Sends the remaining spans and blocks: not for the event loop.
        self.close: Callable[[], None] = self._processor.shutdown
        self._resource = _resource()
        self._scope = InstrumentationScope("gateway", __version__)

    def send(self, trace: str, spans: Iterable[Span]) -> None:
        """Queue spans; they are sent in batches."""
        zero = time_ns() - int(perf_counter() * 1e9)
        for span in spans:
            self._processor.on_end(self._readable(trace, span, zero))

    def flush(self) -> None:
        """Return when all spans are sent, or after 5 s.  Blocks: not for the event loop."""
        self._processor.force_flush(_SECONDS * 1000)

    def _readable(self, trace: str, span: Span, zero: int) -> ReadableSpan:
        return ReadableSpan(
            span.name,
            _context(trace, span.id),
            _context(trace, span.parent) if span.parent else None,
            self._resource,
            span.attributes,
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR if span.error else StatusCode.UNSET),
            start_time=zero + int(span.begun * 1e9),
            end_time=zero + int(span.ended * 1e9),
            instrumentation_scope=self._scope,
        )


def _resource() -> Resource:
    resource = Resource.create({"service.version": __version__})
    named = not str(resource.attributes["service.name"]).startswith(_UNNAMED)
    return resource if named else resource.merge(Resource({"service.name": "gateway"}))


def _context(trace: str, span: str) -> SpanContext:
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=_SAMPLED)
