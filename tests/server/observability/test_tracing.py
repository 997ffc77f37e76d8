"""Test traces: the spans that a collector gets, their semantic conventions, and the trace headers of upstream requests."""

import subprocess
import sys

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes, http_attributes, server_attributes, url_attributes

from gateway import config
from gateway.installation import install_command
from gateway.server.app import create_app
from gateway.server.observability import logs, tracer
from gateway.server.observability.trace_context import TraceParent, parse_traceparent
from support.app import gateway, listening, settings
from support.mcp_server import operators, toys
from support.otlp_collector import collecting
from support.upstream import CLOSE, HELLO, call, chunk, head, stream, whole
from support.websocket import connected

MODULES = (error_attributes, gen_ai_attributes, http_attributes, server_attributes, url_attributes)
NAMES = {
    value for module in MODULES for name, value in vars(module).items() if name.isupper() and isinstance(value, str)
}
TEMPLATED = http_attributes.HTTP_RESPONSE_HEADER_TEMPLATE
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GIVEN = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1,b=2"}


@pytest.fixture
def collector():
    with collecting() as one:
        yield one


def traced(collector, **more):
    return {"tracing": {"enabled": True, "url": collector.url, **more}}


def checked(spans):
    """Check that all attributes have names of the OpenTelemetry conventions, and return the spans."""
    for span in spans:
        for name in span.attributes:
            assert name in NAMES or name.rpartition(".")[0] == TEMPLATED, name
        assert span.begun <= span.ended
    return spans


async def test_trace_of_a_stream_has_a_request_span_and_an_attempt_span(collector):
    async with gateway(HELLO, backend={"kind": "vllm"}, model={"upstream_model": "up-m"}, **traced(collector)) as site:
        await site.chat(stream=True, headers={"x-request-id": "r1"})
    ((request,), (attempt,)) = collector.of("server"), collector.of("client")
    checked(collector.spans)
    first = request.attributes.pop("gen_ai.response.time_to_first_chunk")
    assert 0 < first < (request.ended - request.begun) / 1e9
    assert (request.name, request.parent, request.error) == ("POST /v1/chat/completions", "", False)
    assert request.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "http.response.header.x-request-id": "r1",
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": True,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.reasoning.output_tokens": 0,
    }
    assert (attempt.name, attempt.parent, attempt.trace) == ("chat up-m", request.id, request.trace)
    port = int(site.upstream.url.rpartition(":")[2])
    assert attempt.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "up-m",
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "server.address": "127.0.0.1",
        "server.port": port,
        "url.path": "/v1/chat/completions",
    }
    assert site.upstream.posts[0].headers["traceparent"] == f"00-{request.trace}-{attempt.id}-01"
    assert request.resource["service.name"] == "gateway"


async def test_trace_of_the_client_is_continued(collector):
    async with gateway(HELLO, **traced(collector, share=0)) as site:
        await site.respond(headers=GIVEN)
        headers = site.upstream.posts[0].headers
    ((request,), (attempt,)) = collector.of("server"), collector.of("client")
    assert (request.trace, request.parent, attempt.parent) == (TRACE, SPAN, request.id)
    assert (headers["traceparent"], headers["tracestate"]) == (f"00-{TRACE}-{attempt.id}-01", "a=1,b=2")


async def test_trace_that_is_not_sampled_is_propagated_but_not_exported(collector):
    async with gateway(HELLO, **traced(collector, share=0)) as site:
        await site.chat()
        await site.chat(headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})
        own, given = (post.headers["traceparent"] for post in site.upstream.posts)
    assert collector.spans == []
    assert own.endswith("-00") and given.startswith(f"00-{TRACE}-") and given.endswith("-00")


async def test_trace_headers_are_not_forwarded_without_tracing():
    async with gateway(HELLO) as site:
        await site.chat(headers=GIVEN)
        assert not {"traceparent", "tracestate"} & site.upstream.posts[0].headers.keys()


async def test_trace_has_a_span_per_attempt_with_its_error(collector):
    no = whole({"error": {"message": "s3cret"}}, 503, retry_after="0")
    async with gateway(no, HELLO, **traced(collector)) as site:
        assert (await site.chat()).status_code == 200
    first, second = collector.of("client")
    checked(collector.spans)
    assert (first.error, first.attributes["error.type"], first.attributes["http.response.status_code"]) == (
        True, "server_is_overloaded", 503,
    )  # fmt: skip
    assert not second.error and "error.type" not in second.attributes


async def test_trace_request_span_has_the_error_of_the_request(collector):
    async with gateway([head(), chunk("Hi"), CLOSE], model={"retries": 0}, **traced(collector)) as site:
        await site.chat(stream=True)
        await site.chat(b"{")
    lost, wrong = collector.of("server")
    assert (lost.error, lost.attributes["error.type"], lost.attributes["http.response.status_code"]) == (
        True, "upstream_lost", 200,
    )  # fmt: skip
    assert not wrong.error and wrong.attributes["http.response.status_code"] == 400
    assert "gen_ai.request.model" not in wrong.attributes and "error.type" not in wrong.attributes


async def test_trace_attempt_span_of_an_unreachable_backend_has_no_status(collector):
    async with gateway(HELLO, **traced(collector)) as site:
        again = settings("https://127.0.0.1:1", **traced(collector))
        app = create_app(again, telemetry=site.app.state.telemetry)
        site.client._transport.app = app
        async with app.router.lifespan_context(app):
            assert (await site.chat()).status_code == 502
    (attempt,) = collector.of("client")
    assert attempt.attributes["error.type"] == "upstream_unreachable" and attempt.attributes["server.port"] == 1
    assert "http.response.status_code" not in attempt.attributes


async def test_trace_has_a_span_per_tool_call_at_the_gateway(collector):
    called = stream(
        chunk(tool_calls=call("toys__echo", '{"text": "a"}', id="c1")),
        chunk(tool_calls=call("toys__fail", "{}", id="c2", place=1)),
        chunk(finish="tool_calls"),
    )
    async with toys() as server, gateway(called, HELLO, tools=operators(server), **traced(collector)) as site:
        await site.respond(tools=[{"type": "mcp", "server_label": "toys"}])
    (request,) = collector.of("server")
    echo, fail = sorted(checked(collector.of("internal")), key=lambda span: span.name)
    assert (echo.name, echo.parent, echo.error, fail.error) == ("execute_tool echo", request.id, False, True)
    assert echo.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "echo",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "extension",
    }
    assert fail.attributes["error.type"] == "tool_error"


async def test_trace_covers_services_and_model_lists_but_not_health(collector):
    vectors = whole({"data": [{"embedding": [0.5], "index": 0}], "usage": {"prompt_tokens": 3, "total_tokens": 3}})
    async with gateway(vectors, **traced(collector)) as site:
        await site.client.post("/v1/embeddings", json={"model": "m", "input": "a"})
        await site.client.get("/v1/models")
        await site.client.get("/nothing")
        await site.client.get("/favicon.ico")  # for the pages, as /health is for probes
        await site.client.get("/health")
    embeddings, models, other = checked(collector.of("server"))
    assert (embeddings.name, embeddings.attributes["gen_ai.operation.name"]) == ("POST /v1/embeddings", "embeddings")
    assert collector.of("client")[0].name == "embeddings m"
    assert (models.name, models.attributes["http.route"]) == ("GET /v1/models", "/v1/models")
    assert other.name == "GET" and "http.route" not in other.attributes


async def test_trace_of_a_websocket_response_continues_its_handshake(collector):
    async with listening(HELLO, **traced(collector)) as site, connected(site, headers=GIVEN) as socket:
        await socket.respond(store=False)
    (turn,) = collector.of("server")
    assert (turn.trace, turn.parent) == (TRACE, SPAN)


async def test_tracing_uses_configured_headers_and_the_otel_environment(collector, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url.removesuffix("/v1/traces"))
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    async with gateway(HELLO, tracing={"enabled": True, "headers": {"x-key": "k"}}) as site:
        await site.chat()
    assert collector.heads[0]["x-key"] == "k" and collector.spans[0].resource["service.name"] == "mine"


async def test_tracing_can_be_switched_on_and_off(collector):
    async with gateway(HELLO) as site:
        known = site.app.state.telemetry
        create_app(settings(site.upstream.url, **traced(collector)), telemetry=known)
        await site.chat()
        create_app(settings(site.upstream.url), telemetry=known)
        await site.chat()
    assert len(collector.of("server")) == 1


async def test_tracing_switched_off_during_a_request_drops_its_span(collector):
    async with gateway(HELLO, **traced(collector)) as site:
        seen = site.app.state.telemetry.begin("r", "/v1/responses")
        create_app(settings(site.upstream.url), telemetry=site.app.state.telemetry)
        seen.release()
    assert collector.spans == []


async def test_trace_request_span_without_a_response_has_no_status(collector):
    async with gateway(HELLO, **traced(collector)) as site:
        site.app.state.telemetry.begin("r", "/v1/responses").release()
    (request,) = collector.of("server")
    assert "http.response.status_code" not in request.attributes


async def test_access_log_line_has_the_trace_id(collector, caplog):
    async with gateway(HELLO, logs={"requests": True}, **traced(collector)) as site:
        await site.chat(headers=GIVEN)
    logs.apply_settings(config.LogSettings())
    entries = [record.msg.fields() for record in caplog.records if record.name == "gateway.requests"]
    assert [entry["trace_id"] for entry in entries] == [TRACE]


def test_tracing_without_its_packages_logs_what_to_install(caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "gateway.server.observability.otlp_exporter", None)
    one = tracer.Tracer()
    one.follow(config.TracingSettings(enabled=True))
    assert install_command("gateway[otel]") in caplog.text and one.begin("/v1/responses", []) is None


def test_tracing_switched_off_imports_no_packages():
    code = (
        "import sys; from gateway.config import Config; from gateway.server.app import create_app; create_app(Config());"
        "print([name for name in sys.modules if name in ('opentelemetry.sdk', 'opentelemetry.exporter', 'google.protobuf', 'requests')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ([(b"traceparent", f"00-{TRACE}-{SPAN}-01")], TraceParent(TRACE, SPAN, True)),
        ([(b"traceparent", f"00-{TRACE}-{SPAN}-02")], TraceParent(TRACE, SPAN, False)),
        ([(b"traceparent", f"cc-{TRACE}-{SPAN}-01-more")], TraceParent(TRACE, SPAN, True)),
        ([(b"traceparent", f"00-{TRACE}-{SPAN}-01"), (b"tracestate", "a=1"), (b"tracestate", "b=2")], TraceParent(TRACE, SPAN, True, "a=1,b=2")),
        ([(b"traceparent", f"00-{TRACE}-{SPAN}-01"), (b"tracestate", "a" * 513)], TraceParent(TRACE, SPAN, True)),
        ([(b"traceparent", f"00-{TRACE}-{SPAN}-01-more")], None),
        ([(b"traceparent", f"ff-{TRACE}-{SPAN}-01")], None),
        ([(b"traceparent", f"00-{'0' * 32}-{SPAN}-01")], None),
        ([(b"traceparent", f"00-{TRACE}-{'0' * 16}-01")], None),
        ([(b"traceparent", f"00-{TRACE.upper()}-{SPAN}-01")], None),
        ([(b"traceparent", f"00-{TRACE}-{SPAN}-01")] * 2, None),
        ([(b"tracestate", "a=1")], None),
        ([], None),
    ],
)  # fmt: skip
def test_traceparent_is_accepted_only_if_valid(header, found):
    assert parse_traceparent([(name, value.encode()) for name, value in header]) == found
