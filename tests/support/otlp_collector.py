"""A collector of traces: it speaks OTLP over HTTP as far as an exporter needs it, and keeps the spans."""

import gzip
import http.server
import threading
from contextlib import contextmanager

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

KINDS = {Span.SPAN_KIND_SERVER: "server", Span.SPAN_KIND_CLIENT: "client", Span.SPAN_KIND_INTERNAL: "internal"}


class Got:
    """A span with plain members."""

    def __init__(self, span, resource):
        self.trace, self.id, self.parent = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
        self.name, self.kind, self.error = span.name, KINDS[span.kind], span.status.code == Status.STATUS_CODE_ERROR
        self.begun, self.ended = span.start_time_unix_nano, span.end_time_unix_nano
        self.attributes, self.resource = plain(span.attributes), plain(resource.attributes)


class Collector:
    """The collected spans, and the headers of the requests."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/v1/traces"
        self.spans, self.heads = [], []

    def take(self, path, headers, body):
        """Take a request of an exporter."""
        assert path == "/v1/traces" and headers["content-type"] == "application/x-protobuf"
        export = ExportTraceServiceRequest.FromString(
            gzip.decompress(body) if headers["content-encoding"] == "gzip" else body
        )
        self.heads.append(dict(headers))
        self.spans += [
            Got(span, one.resource)
            for one in export.resource_spans
            for scope in one.scope_spans
            for span in scope.spans
        ]

    def of(self, kind):
        """Return the spans of this kind, by their beginning."""
        return sorted((span for span in self.spans if span.kind == kind), key=lambda span: span.begun)


def plain(attributes):
    """Return attributes as a dictionary."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collecting():
    """Run a collector within the block."""

    class Take(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            collector.take(self.path, self.headers, self.rfile.read(int(self.headers["content-length"])))
            data = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            """Log nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Take) as server:
        collector = Collector(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield collector
        server.shutdown()
        thread.join()
