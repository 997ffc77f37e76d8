"""Test /metrics and the access log: each request is counted once, and no label comes from a client."""

import asyncio
import json
import logging
import subprocess
import sys
import time

import pytest
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from starlette.routing import Route

from gateway import config
from gateway.server.observability import logs, metric_values, metrics
from gateway.server.observability.request_record import OTHER, RequestRecord, StreamTiming, endpoint_label
from support.app import bearer, gateway, listening
from support.backends import extend_pauses, fleet
from support.jobs import ended
from support.metrics import scrape
from support.overview import CHAT, KEYS
from support.paths import ROOT
from support.upstream import CLOSE, COUNTS, DONE, END, HANG, HELLO, chunk, completion_body, frame, head, stream, whole
from support.wait import until
from support.websocket import connected

RESPONSES = "/v1/responses"
WELL = (RESPONSES, "m", "up", "200")


@pytest.fixture
def lines():
    records, formatter = [], logs.JsonFormatter()
    handler = logging.Handler()
    handler.emit = lambda record: records.append(formatter.format(record))
    logs.requests.addHandler(handler)
    yield records
    logs.requests.removeHandler(handler)
    logs.apply_settings(config.LogSettings())


# Names and formats


def test_metrics_names_are_stable_and_follow_the_conventions():
    named = {one.name: one.labels for one in metrics.METRICS}
    promised = {
        "gateway_requests_total": ("endpoint", "model", "backend", "status", "key"),
        "gateway_requests_in_flight": ("endpoint",),
        "gateway_request_duration_seconds": ("endpoint", "model", "backend"),
        "gateway_time_to_first_token_seconds": ("endpoint", "model", "backend"),
        "gateway_inter_token_seconds": ("endpoint", "model", "backend"),
        "gateway_tokens_total": ("model", "kind", "key"),
        "gateway_ledger_total": ("code",),
        "gateway_upstream_errors_total": ("backend", "kind"),
        "gateway_backend_healthy": ("backend",),
        "gateway_queue_depth": ("backend",),
        "gateway_model_price": ("model", "kind"),
    }
    assert promised.items() <= named.items() and len(named) == len(metrics.METRICS)
    for one in metrics.METRICS:
        assert (one.kind == "counter") == one.name.endswith("_total")
        assert (one.kind == "histogram") == bool(one.buckets) and [*one.buckets] == sorted(set(one.buckets))
        assert one.help.endswith(".") and all(len(labels) == len(one.labels) for labels in one.initial_labels)


async def test_metrics_scrape_is_complete_and_parsed_by_prometheus():
    async with gateway(HELLO) as site:
        await site.chat(stream=True)
        got = await scrape(site)
        for one in metrics.METRICS:
            family = got.families[one.name.removesuffix("_total")]
            assert (family.type, family.documentation) == (one.kind, one.help)
        assert got.sum("gateway_ledger_total") == 0 and got.of("gateway_ledger_total", code="repaired") == 0


@pytest.mark.parametrize(
    ("accept", "type"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text; version=1.0.0"),
    ],
)
async def test_metrics_format_follows_the_accept_header(accept, type):
    async with gateway(HELLO) as site:
        answer = await site.client.get("/metrics", headers={"accept": accept})
        assert answer.headers["content-type"].startswith(type)
        assert answer.text.endswith("# EOF\n") == ("openmetrics" in type)


# Access


async def test_metrics_without_api_keys_refuse_only_foreign_origins():
    async with gateway(HELLO) as site:
        await scrape(site)
        answer = await site.client.get("/metrics", headers={"origin": "https://evil.example.com"})
        assert answer.status_code == 403, "but no page of a stranger"


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("ann-key", 403), ("eve-key", 200), ("no-key", 401)])
async def test_metrics_require_a_key_with_the_admin_scope(key, status):
    async with gateway(HELLO, auth={"keys": KEYS}) as site:
        answer = await site.client.get("/metrics", headers=bearer(key) if key else None)
        assert answer.status_code == status


async def test_metrics_require_no_key_if_open():
    async with gateway(HELLO, auth={"keys": KEYS}, metrics={"open": True}) as site:
        assert (await scrape(site)).requests() == {}


# Requests


async def test_metrics_count_a_stream_with_its_tokens_times_and_bytes():
    usage = {
        **COUNTS,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk("!"), chunk(finish="stop"), frame(choices=[], usage=usage), DONE, END]
    async with listening(script) as site:
        begun = time.perf_counter()
        asking = asyncio.create_task(site.chat(stream=True, surprise=1))
        await site.upstream.arrived.wait()
        assert (await scrape(site)).of("gateway_requests_in_flight", endpoint=CHAT) == 1
        go.set()
        answer = await asking
        elapsed = time.perf_counter() - begun
        got = await scrape(site)
    assert got.of("gateway_requests_in_flight", endpoint=CHAT) == 0
    assert got.requests() == {(CHAT, "m", "up", "200"): 1}
    kinds = {
        kind: got.of("gateway_tokens_total", model="m", kind=kind)
        for kind in ("input", "output", "cached", "reasoning")
    }
    assert kinds == {"input": 7, "output": 2, "cached": 4, "reasoning": 1}
    assert got.of("gateway_formats_total", format="auto") == 1
    assert got.of("gateway_ledger_total", code="forwarded") == 1
    for histogram in "gateway_request_duration_seconds", "gateway_time_to_first_token_seconds":
        assert got.of(f"{histogram}_count", endpoint=CHAT, model="m", backend="up") == 1
        assert 0 < got.sum(f"{histogram}_sum") < elapsed
    assert got.sum("gateway_inter_token_seconds_count") >= 1
    assert got.of("gateway_sent_bytes_total", endpoint=CHAT) == len(answer.content)
    assert got.of("gateway_received_bytes_total", endpoint=CHAT) == len(answer.request.content)


async def test_metrics_of_a_whole_response_have_no_first_token():
    async with gateway(whole(completion_body())) as site:
        await site.chat()
        got = await scrape(site)
    assert got.requests() == {(CHAT, "m", "up", "200"): 1}
    assert got.sum("gateway_request_duration_seconds_count") == 1
    assert got.sum("gateway_time_to_first_token_seconds_count") == got.sum("gateway_inter_token_seconds_count") == 0
    assert got.of("gateway_tokens_total", model="m", kind="input") == 7


async def test_metrics_count_several_choices_as_one_request():
    async with gateway(HELLO, backend={"kind": "transformers"}) as site:
        await site.chat(stream=True, n=3)
        got = await scrape(site)
    assert len(site.upstream.posts) == 3
    assert got.requests() == {(CHAT, "m", "up", "200"): 1}
    assert got.of("gateway_tokens_total", model="m", kind="output") == 6


async def test_metrics_label_aliases_by_model_and_unknown_names_as_empty():
    async with gateway(HELLO, model={"aliases": ["alias"]}) as site:
        await site.chat(model="alias")
        for number in range(20):
            await site.chat(model=f"made-up-{number}")
            await site.client.get(f"/made-up/{number}")
            await site.client.request(f"MADE{number}", CHAT)
        got = await scrape(site)
    assert got.requests() == {
        (CHAT, "m", "up", "200"): 1,
        (CHAT, "", "", "404"): 20,
        (OTHER, "", "", "404"): 20,
        ("/v1/chat/completions/{id}", "", "", "405"): 20,
    }
    assert got.values("gateway_tokens_total", "model") == {"m"}


async def test_metrics_label_requests_and_tokens_by_key_if_configured():
    names = ("ann", "zoe", "kim")
    keys = {"keys": [{"name": name, "key": f"{name}-key"} for name in names]}
    async with gateway(HELLO, auth=keys, metrics={"keys": 2, "open": True}) as site:
        for name in (*names, "ann"):
            await site.chat(headers=bearer(f"{name}-key"))
        await site.chat()
        got = await scrape(site)
    route = {"endpoint": CHAT, "model": "m", "backend": "up", "status": "200"}
    counts = {key: got.of("gateway_requests_total", **route, key=key) for key in ("ann", "zoe", OTHER)}
    assert counts == {"ann": 2, "zoe": 1, OTHER: 1}
    assert got.of("gateway_requests_total", **{**route, "model": "", "backend": "", "status": "401"}) == 1
    assert got.of("gateway_tokens_total", model="m", kind="input", key="ann") == 14


async def test_metrics_have_the_prices_of_models_that_have_any():
    prices = {"price": {"input": 0.5, "output": 1.5}}, {"price": {"input": 2, "output": 4, "cached": 0.2}}
    more = {"other": {"backends": ["up"], **prices[1]}, "free": {"backends": ["up"]}}
    async with gateway(HELLO, model=prices[0], more_models=more) as site:
        got = await scrape(site)
    found = [
        [got.of("gateway_model_price", model=m, kind=k) for k in ("input", "cached", "output")] for m in ("m", "other")
    ]
    assert found == [[0.5, 0.5, 1.5], [2, 0.2, 4]]
    assert got.values("gateway_model_price", "model") == {"m", "other"}


def test_metrics_bound_the_names_of_a_label():
    label = metric_values.BoundedLabel(2)
    assert [label.value(name) for name in ("a", "", "b", "c", "a", "")] == ["a", "", "b", OTHER, "a", ""]


async def test_metrics_have_the_names_of_opentelemetry_if_configured():
    fleet_of = {"backend": {"kind": "vllm"}, "model": {"retries": 0}, "metrics": {"gen_ai": True}}
    async with gateway(HELLO, whole(completion_body()), whole("no", 500), **fleet_of) as site:
        for streamed in True, False, False:
            await site.chat(stream=streamed)
        await site.chat(model="made-up")
        got = await scrape(site)
    labels = {"gen_ai_operation_name": "chat", "gen_ai_provider_name": "vllm", "gen_ai_request_model": "m"}
    duration, first, tokens = (one.name for one in metrics.GEN_AI_METRICS)
    assert [got.of(f"{duration}_count", **labels, error_type=error) for error in ("", "502")] == [2, 1]
    assert got.of(f"{first}_count", **labels) == 1
    sums = {type: got.of(f"{tokens}_sum", **labels, gen_ai_token_type=type) for type in ("input", "output")}
    assert sums == {"input": 14, "output": 4} and got.sum(f"{tokens}_count") == 4
    assert got.of(f"{tokens}_bucket", **labels, gen_ai_token_type="input", le="16.0") == 2


async def test_metrics_have_no_names_of_opentelemetry_by_default():
    async with gateway(HELLO) as site:
        await site.chat()
        assert not [name for name in (await scrape(site)).families if name.startswith("gen_ai")]


def test_metrics_of_opentelemetry_have_names_and_units_of_its_package():
    units = {"s": "_seconds", "{token}": ""}
    named = {
        gen_ai_metrics.GEN_AI_SERVER_REQUEST_DURATION: "s",
        gen_ai_metrics.GEN_AI_SERVER_TIME_TO_FIRST_TOKEN: "s",
        gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE: "{token}",
    }
    wanted = [name.replace(".", "_") + units[unit] for name, unit in named.items()]
    assert [one.name for one in metrics.GEN_AI_METRICS] == wanted


def test_metrics_collector_follows_the_number_of_keys():
    tally = metric_values.MetricValues()
    counter = metric_values.MetricsCollector(tally)
    seen = RequestRecord("r", "POST", CHAT, lambda _: None, key="ann", status=200)
    for keys in (0, 1, 1, 0):
        counter.follow(keys)
        counter.count(seen)
    counts = {labels[-1]: values for labels, values in tally.series["gateway_requests_total"].items()}
    assert counts == {"": [2], "ann": [2]}


async def test_metrics_label_models_listed_by_a_backend():
    async with gateway(HELLO, models=["listed"], model=False) as site:
        await site.chat(model="listed")
        assert (await scrape(site)).requests() == {(CHAT, "listed", "up", "200"): 1}


async def test_metrics_count_a_fallback_as_the_model_that_responds():
    async with fleet(
        [whole("no", 503)],
        [HELLO],
        backends=[{}, {}],
        model={"backends": ["b0"], "fallback": ["other"]},
        more_models={"other": {"backends": ["b1"]}},
    ) as site:
        await site.chat()
        got = await scrape(site)
    assert got.requests() == {(CHAT, "other", "b1", "200"): 1}
    assert got.of("gateway_ledger_total", code="translated") == 1
    assert got.of("gateway_upstream_errors_total", backend="b0", kind="overloaded") == 1


async def test_metrics_count_refused_requests_without_a_model():
    limits = {"body_bytes": 200}
    async with gateway(HELLO, auth={"keys": [*KEYS, {"name": "few", "key": "few-key", "limits": {"requests_per_minute": 1}}]}, limits=limits) as site:  # fmt: skip
        await site.chat(headers=bearer("wrong"))
        await site.chat(headers=bearer("eve-key"))
        await site.chat(b"{", headers=bearer("ann-key"))
        await site.chat(b" " * 300, headers=bearer("ann-key"))
        await site.chat(headers=bearer("few-key"))
        await site.chat(headers=bearer("few-key"))
        got = await scrape(site, "eve-key")
    assert got.requests() == {
        (CHAT, "", "", "401"): 1,
        (CHAT, "", "", "403"): 1,
        (CHAT, "", "", "400"): 1,
        (CHAT, "", "", "413"): 1,
        (CHAT, "m", "up", "200"): 1,
        (CHAT, "m", "", "429"): 1,
    }
    assert got.sum("gateway_request_duration_seconds_count") == 1


async def test_metrics_count_requests_refused_by_the_concurrency_limit():
    async with listening([head(), HANG], limits={"concurrent": 1}) as site:
        first = asyncio.create_task(site.chat(stream=True))
        await site.upstream.arrived.wait()
        assert (await site.chat()).status_code == 503
        first.cancel()
        await until(site.upstream.gone.is_set)
        await until_counted(site, {(CHAT, "", "", "503"): 1, (CHAT, "m", "up", "499"): 1})


async def until_counted(site, wanted):
    """Wait for these requests: a disconnect is counted when the gateway notices it."""

    async def requests():
        return (await scrape(site)).requests()

    await until(requests, wanted)


@pytest.mark.parametrize("script", [[head(), HANG], [head(), chunk("Hi"), HANG]])
@pytest.mark.parametrize("streamed", [True, False])
async def test_metrics_count_a_client_disconnect_as_499(script, streamed):
    async with listening(script) as site:
        asking = asyncio.create_task(site.chat(stream=streamed))
        await site.upstream.arrived.wait()
        asking.cancel()
        await until_counted(site, {(CHAT, "m", "up", "499"): 1})
        assert (await scrape(site)).of("gateway_requests_in_flight", endpoint=CHAT) == 0


async def test_metrics_count_a_disconnect_during_the_request_body_as_499():
    async with gateway(HELLO) as site:
        messages = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

        async def receive():
            return messages.pop(0)

        async def send(message):
            raise AssertionError(message)

        scope = {"type": "http", "method": "POST", "path": CHAT, "query_string": b"", "headers": []}
        await site.app(scope, receive, send)
        got = await scrape(site)
    assert got.requests() == {(CHAT, "", "", "499"): 1}
    assert got.of("gateway_received_bytes_total", endpoint=CHAT) == 1


async def test_metrics_count_a_stream_that_breaks_off_as_502():
    async with gateway([head(), chunk("Hi"), CLOSE]) as site:
        assert (await site.chat(stream=True)).status_code == 200
        got = await scrape(site)
    assert got.requests() == {(CHAT, "m", "up", "502"): 1}
    assert got.of("gateway_upstream_errors_total", backend="up", kind="lost") == 1


async def test_metrics_count_a_gateway_error_as_500(caplog):
    async with gateway(HELLO) as site:
        site.app.state.handler, asking = None, site.app.state.handler
        assert (await site.chat()).status_code == 500
        site.app.state.handler = asking
        assert (await scrape(site)).requests() == {(CHAT, "", "", "500"): 1}


async def test_metrics_count_embeddings_and_rerank():
    embedded = {"data": [{"embedding": [1.0]}], "usage": {"prompt_tokens": 5, "total_tokens": 5}}
    async with gateway(whole(embedded), backend={"kind": "vllm"}) as site:
        await site.client.post("/v1/embeddings", json={"model": "m", "input": "Hi"})
        await site.client.post("/v1/embeddings", json={"model": "no", "input": "Hi"})
        await site.client.post("/v1/rerank", json={"model": "m", "query": "Hi", "documents": ["a"]})
        got = await scrape(site)
    assert got.requests() == {
        ("/v1/embeddings", "m", "up", "200"): 1,
        ("/v1/embeddings", "", "", "404"): 1,
        ("/v1/rerank", "m", "up", "502"): 1,
    }
    assert got.of("gateway_tokens_total", model="m", kind="input") == 5
    assert got.of("gateway_upstream_errors_total", backend="up", kind="error") == 1
    assert got.labelled("gateway_formats_total") == []


async def test_metrics_count_a_disconnect_from_embeddings_as_499():
    async with listening([HANG], backend={"kind": "vllm"}) as site:
        asking = asyncio.create_task(site.client.post("/v1/embeddings", json={"model": "m", "input": "Hi"}))
        await site.upstream.arrived.wait()
        asking.cancel()
        await until_counted(site, {("/v1/embeddings", "m", "up", "499"): 1})


async def test_metrics_count_no_tokens_for_an_input_token_count():
    async with gateway(HELLO) as site:
        await site.client.post("/v1/responses/input_tokens", json={"model": "m", "input": "Hi"})
        got = await scrape(site)
    assert got.requests() == {("/v1/responses/input_tokens", "m", "", "200"): 1}
    assert got.of("gateway_ledger_total", code="estimated") == 1
    assert got.labelled("gateway_tokens_total") == []


async def test_metrics_count_an_idempotent_replay_without_a_model():
    async with gateway(HELLO) as site:
        for _ in range(2):
            await site.chat(headers={"idempotency-key": "one"})
        got = await scrape(site)
    assert got.requests() == {(CHAT, "m", "up", "200"): 1, (CHAT, "", "", "200"): 1}
    assert got.of("gateway_tokens_total", model="m", kind="input") == 7


async def test_metrics_count_a_background_job_as_one_request_at_its_end():
    go = asyncio.Event()
    async with gateway(
        [head(), go, chunk("Hi"), chunk(finish="stop"), frame(choices=[], usage=COUNTS), DONE, END]
    ) as site:
        id = (await site.respond(background=True)).json()["id"]
        await site.upstream.arrived.wait()
        got = await scrape(site)
        assert (got.requests(), got.of("gateway_requests_in_flight", endpoint=RESPONSES)) == ({}, 1)
        go.set()
        assert (await ended(site, id))["status"] == "completed"
        await until(site.app.state.handler.jobs.wait_idle, None)
        got = await scrape(site)
    requests = got.requests()
    assert requests.pop(WELL) == 1 and {one[0] for one in requests} == {"/v1/responses/{id}"}
    assert got.of("gateway_tokens_total", model="m", kind="input") == 7
    assert got.of("gateway_stored_total") == 1


@pytest.mark.parametrize("script", [[head(), HANG], [head(), chunk("Hi"), HANG]])
async def test_metrics_count_a_cancelled_background_job_as_499(script):
    async with gateway(script) as site:
        id = (await site.respond(background=True)).json()["id"]
        await site.upstream.arrived.wait()
        await site.client.post(f"/v1/responses/{id}/cancel")
        await until(site.app.state.handler.jobs.wait_idle, None)
        got = await scrape(site)
    assert got.of("gateway_requests_total", endpoint=RESPONSES, model="m", backend="up", status="499") == 1


async def test_metrics_count_a_stream_that_outlives_its_client_by_its_result():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END]
    async with listening(script, responses={"resume_seconds": 60}) as site:
        async with site.client.stream("POST", RESPONSES, json={"model": "m", "input": "Hi", "stream": True}) as answer:
            await anext(answer.aiter_raw())
        go.set()
        await until_counted(site, {WELL: 1})


async def test_metrics_count_a_job_at_the_gateway_that_takes_it_over(tmp_path):
    where = {"store": {"url": f"sqlite:///{tmp_path}/gateway.db"}}
    async with gateway([head(), HANG], **where, server={"drain_seconds": 0}) as site:
        id = (await site.respond(background=True)).json()["id"]
        await site.upstream.arrived.wait()
    async with gateway(HELLO, **where) as site:
        await ended(site, id)
        await until(site.app.state.handler.jobs.wait_idle, None)
        got = await scrape(site)
    assert got.of("gateway_requests_total", endpoint=RESPONSES, model="m", backend="up", status="200") == 1
    assert got.of("gateway_tokens_total", model="m", kind="input") == 7


async def test_metrics_count_each_response_of_a_websocket_as_a_request():
    async with listening(HELLO) as site, connected(site) as socket:
        await socket.respond(store=False)
        await socket.respond(store=False)
        await socket.respond(model="no")
        got = await scrape(site)
        assert got.requests() == {WELL: 2, (RESPONSES, "", "", "404"): 1}
        assert got.of("gateway_requests_in_flight", endpoint=RESPONSES) == 0
        assert got.sum("gateway_time_to_first_token_seconds_count") == 2
        assert (
            got.of("gateway_sent_bytes_total", endpoint=RESPONSES)
            > 0
            < got.of("gateway_received_bytes_total", endpoint=RESPONSES)
        )


@pytest.mark.parametrize("script", [[head(), HANG], [head(), chunk("Hi"), HANG]])
async def test_metrics_count_a_websocket_disconnect_as_499(script):
    async with listening(script) as site:
        async with connected(site) as socket:
            await socket.create()
            await site.upstream.arrived.wait()
            if len(script) > 2:
                await socket.until("response.output_text.delta")
        await until_counted(site, {(RESPONSES, "m", "up", "499"): 1})


async def test_metrics_first_token_is_not_that_of_a_compaction_summary():
    """The summary costs tokens and delays the first token."""
    async with gateway(stream(chunk("Summary"), chunk(finish="stop"), frame(choices=[], usage=COUNTS)), HELLO) as site:
        answer = await site.respond(
            stream=True, context_management=[{"type": "compaction", "compact_threshold": 1000}], input="x" * 8000
        )
        assert answer.status_code == 200
        got = await scrape(site)
    assert len(site.upstream.posts) == 2 and got.requests() == {WELL: 1}
    assert got.sum("gateway_time_to_first_token_seconds_count") == 1
    assert got.of("gateway_tokens_total", model="m", kind="input") == 14


async def test_metrics_do_not_count_health_ready_and_metrics():
    async with gateway(HELLO) as site:
        for path in "/health", "/ready", "/metrics":
            await site.client.get(path)
        got = await scrape(site)
    assert got.requests() == {} and got.labelled("gateway_requests_in_flight") == []


async def test_metrics_endpoint_label_is_unique_for_each_route():
    async with gateway(HELLO) as site:
        routes = [route for route in site.app.routes if isinstance(route, Route)]
    found = {
        endpoint_label(method, route.path)
        for route in routes
        for method in route.methods
        if route.path.startswith("/v1")
    }
    assert OTHER not in found and len(found) == 34
    assert endpoint_label("GET", "/v1/modelsx") == endpoint_label("POST", "/v1") == OTHER


@pytest.mark.parametrize("script", [[head(), HANG], [head(), chunk("Hi"), HANG]])
async def test_metrics_count_a_websocket_response_ended_by_the_gateway_as_503(script):
    async with listening(script) as site, connected(site) as socket:
        await socket.create()
        await site.upstream.arrived.wait()
        (one,) = site.app.state.sockets._open
        for turn in one._running:
            turn.cancel()
        await until_counted(site, {(RESPONSES, "m", "up", "503"): 1})
        assert (await scrape(site)).of("gateway_requests_in_flight", endpoint=RESPONSES) == 0


async def test_access_log_line_of_a_websocket_has_the_key_of_its_connection(lines):
    async with listening(HELLO, auth={"keys": KEYS}, logs={"requests": True}) as site:
        async with connected(site, headers=bearer("ann-key")) as socket:
            await socket.respond(store=False)
        await until(lambda: len(lines), 1)
    assert [(line["key"], line["status"]) for line in map(json.loads, lines)] == [("ann", 200)]


def test_metrics_library_is_not_imported_at_start():
    code = "import sys; from gateway.server import process; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60).returncode == 0


# Backends and store


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([CLOSE], "lost"),
        (whole("no", 500), "error"),
        (whole("no", 503), "overloaded"),
        (whole({"error": "Loading model"}, 503), "loading"),
        (whole("no", 504), "timeout"),
        (whole("no", 401), "auth"),
        (whole("no", 429), "rate_limit"),
        (stream(frame(error={"message": "out of memory"})), "error"),
        (whole("no", 400), None),
    ],
    ids=str,
)
async def test_metrics_count_upstream_errors_by_kind(script, kind):
    async with gateway(script, model={"retries": 0}) as site:
        await site.chat(stream=True)
        found = (await scrape(site)).labelled("gateway_upstream_errors_total")
    assert found == ([{"backend": "up", "kind": kind}] if kind else [])


async def test_metrics_show_an_unreachable_backend_as_unhealthy():
    async with gateway(HELLO, backend={"url": "http://127.0.0.1:1", "probe_seconds": 0}, model={"retries": 0}) as site:
        assert (await scrape(site)).of("gateway_backend_healthy", backend="up") == 1
        extend_pauses(site, "up")
        for _ in range(5):
            await site.chat()
        got = await scrape(site)
    assert got.of("gateway_upstream_errors_total", backend="up", kind="unreachable") == 5
    assert got.of("gateway_backend_healthy", backend="up") == 0
    states = {labels["state"] for labels in got.labelled("gateway_backend_circuit")}
    assert states == {"open"}


async def test_metrics_show_the_queue_depth_of_a_backend():
    go = asyncio.Event()
    script = [head(), go, chunk("Hi"), chunk(finish="stop"), DONE, END]
    async with listening(script, backend={"concurrent": 1}) as site:
        asking = [asyncio.create_task(site.chat(stream=True)) for _ in range(3)]

        async def waiting():
            return (await scrape(site)).of("gateway_queue_depth", backend="up")

        await until(waiting, 2)
        go.set()
        await asyncio.gather(*asking)
        assert await waiting() == 0


async def test_metrics_count_store_errors(tmp_path):
    async with gateway(HELLO, store={"url": f"sqlite:///{tmp_path}"}) as site:
        await site.respond()
        got = await scrape(site)
    assert got.of("gateway_store_errors_total") >= 1 and got.of("gateway_stored_total") == 0
    assert got.of("gateway_ledger_total", code="dropped") == 1


def test_metrics_show_an_ejected_backend_as_unhealthy():
    async def ejected():
        async with fleet([HELLO], [HELLO], together=True) as site:
            now = asyncio.get_running_loop().time()
            site.backend("b0").limiter.health.eject(now)
            return metric_values.backend_states(site.app.state.directory.backends, now)

    states = asyncio.run(ejected())
    assert states["gateway_backend_healthy"] == {("up",): [1], ("b0",): [0], ("b1",): [1]}


# Times


def test_metrics_measure_chunk_gaps_from_the_first_content_on():
    pace = StreamTiming()
    pace.chunk_received(1.0, False)
    assert (pace.first_byte, pace.first_content) == (1.0, None)
    pace.chunk_received(2.0, True)
    assert (pace.first_byte, pace.first_content, pace.last, sum(pace.gaps)) == (1.0, 2.0, 2.0, 0)
    pace.chunk_received(2.001, True)
    pace.chunk_received(99.0, True)
    assert pace.gaps == [1, *[0] * (len(metrics.GAPS) - 1), 1] and pace.last == 99.0


# Access log


async def test_access_log_is_off_by_default(lines):
    async with gateway(HELLO) as site:
        await site.chat()
    assert lines == []


async def test_access_log_line_is_one_json_object_per_request(lines):
    keys = {"keys": KEYS}
    async with gateway(HELLO, auth=keys, logs={"requests": True}) as site:
        await site.chat(stream=True, surprise="secret", headers={**bearer("ann-key"), "x-request-id": "mine"})
    (line,) = map(json.loads, lines)
    times = [line.pop(name) for name in ("asked", "first_byte", "first_content", "duration")]
    assert times == sorted(times) and times[0] > 0
    assert line.pop("time").endswith("+00:00") and line.pop("received_bytes") and line.pop("sent_bytes")
    assert line == {
        "level": "info", "logger": "gateway.requests", "message": "request completed", "id": "mine", "endpoint": CHAT, "key": "ann", "model": "m", "backend": "up", "format": "auto", "status": 200,
        "error": None, "streamed": True, "input_tokens": 7, "cached_tokens": 0, "output_tokens": 2, "reasoning_tokens": 0,
        "ledger": {"forwarded": 1}, "stored": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("content", "error", "ledger"),
    [
        (False, "invalid_request_error", {"forwarded": 1}),
        (True, "said_word: said it", ["forwarded:surprise"]),
    ],
)
async def test_access_log_has_upstream_text_only_if_content_is_on(lines, content, error, ledger):
    refused = whole({"error": {"message": "said it", "code": "said_word"}}, 400)
    async with gateway(refused, logs={"requests": True, "content": content}) as site:
        await site.chat(surprise=1)
    (line,) = map(json.loads, lines)
    assert (line["status"], line["error"], line["ledger"]) == (400, error, ledger)


async def test_access_log_line_of_a_failure_has_its_code(lines):
    async with gateway(whole("no", 500), model={"retries": 0}, logs={"requests": True}) as site:
        await site.chat()
        await site.client.get("/v1/models/none")
        await site.client.get("/v1/none")
    found = [(line["status"], line["error"], line["asked"] is None) for line in map(json.loads, lines)]
    assert found == [(502, "upstream_error", False), (404, "model_not_found", True), (404, None, True)]
