"""Build the spans of a trace by OpenTelemetry's semantic conventions.  They hold no content."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from gateway.backends.pass_through import OPERATIONS
from gateway.server.observability.request_record import OTHER, RequestRecord
from gateway.server.observability.trace_context import AttemptStep, ToolStep, Trace

SpanAttributes = dict[str, str | int | float | bool]
_OPERATIONS = {**OPERATIONS, "/v1/completions": "text_completion", "/v1/embeddings": "embeddings"}


class Span(Struct, frozen=True):
    """A span.  begun, ended: times of `perf_counter`; error: its type."""

    id: str
    parent: str | None
    name: str
    kind: Literal["server", "client", "internal"]
    begun: float
    ended: float
    attributes: SpanAttributes
    error: str | None = None


def make_spans(record: RequestRecord, trace: Trace) -> Iterator[Span]:
    """Yield the span of the request, and one for each step."""
    yield _request(record, trace)
    for step in trace.steps:
        ended = step.ended or record.ended
        if isinstance(step, AttemptStep):
            name, attributes = f"{operation_name(step.path)} {step.model}", _of_attempt(step)
            yield Span(step.id, trace.span, name, "client", step.begun, ended, attributes, step.error)
        else:
            yield Span(
                step.id,
                trace.span,
                f"execute_tool {step.name}",
                "internal",
                step.begun,
                ended,
                _of_tool(step),
                step.error,
            )


def _request(record: RequestRecord, trace: Trace) -> Span:
    """Return the span of the request; an error of the client is no failure of it."""
    problem, before = record.problem, trace.parent.span if trace.parent else None
    error = (problem.code or problem.type) if problem and problem.status >= 500 else None
    attributes = {**_of_request(record), **({"error.type": error} if error else {})}
    name = record.method if record.endpoint == OTHER else f"{record.method} {record.endpoint}"
    return Span(trace.span, before, name, "server", record.arrived, record.ended, attributes, error)


def _of_request(record: RequestRecord) -> SpanAttributes:
    fields: SpanAttributes = {
        "http.request.method": record.method,
        **({} if record.endpoint == OTHER else {"http.route": record.endpoint}),
        "http.response.header.x-request-id": record.id,
    }
    if record.status:
        fields["http.response.status_code"] = record.status
    if not record.backend:
        return fields
    used = record.usage()
    fields |= {
        "gen_ai.operation.name": operation_name(record.endpoint),
        "gen_ai.request.model": record.model,
        "gen_ai.request.stream": record.streamed,
        "gen_ai.usage.input_tokens": used.prompt,
        "gen_ai.usage.output_tokens": used.completion,
        "gen_ai.usage.cache_read.input_tokens": used.cached,
        "gen_ai.usage.reasoning.output_tokens": used.reasoning,
    }
    if record.streamed and record.pace.first_content is not None:
        fields["gen_ai.response.time_to_first_chunk"] = record.pace.first_content - record.arrived
    return fields


def _of_attempt(step: AttemptStep) -> SpanAttributes:
    fields: SpanAttributes = {
        "gen_ai.operation.name": operation_name(step.path),
        "gen_ai.provider.name": step.kind,
        "gen_ai.request.model": step.model,
        "http.request.method": "POST",
        "url.path": step.path,
        "server.address": step.host,
        "server.port": step.port,
    }
    if step.status:
        fields["http.response.status_code"] = step.status
    return {**fields, **({"error.type": step.error} if step.error else {})}


def _of_tool(step: ToolStep) -> SpanAttributes:
    fields: SpanAttributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": step.name,
        "gen_ai.tool.call.id": step.call,
        "gen_ai.tool.type": "extension",  # runs at the gateway
    }
    return {**fields, **({"error.type": step.error} if step.error else {})}


def operation_name(path: str) -> str:
    """Return the operation of an endpoint's path, the client's or a backend's."""
    return _OPERATIONS.get(path.partition("?")[0], "chat")
