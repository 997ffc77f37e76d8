"""Test /admin/overview: requests, models, backends and rates, without the content of requests."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest
from msgspec import structs

from gateway import config
from gateway.errors import Problem
from gateway.formats import FORMATS
from gateway.routing import Health
from gateway.server.admin import overview, overview_model
from gateway.server.admin.overview_model import Overview, format_duration
from gateway.server.observability import logs, telemetry
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.snapshot import (
    BackendCondition,
    FailureInfo,
    ModelRate,
    WorkerSnapshot,
    compute_rates,
)
from gateway.server.observability.telemetry import RecentRequests
from support.app import bearer, gateway, listening
from support.backends import fleet
from support.overview import CHAT, KEYS, PATH, seen
from support.upstream import HANG, HELLO, KEY, Upstream, chunk, completion_body, head, list_of, whole
from support.wait import now, until

NOTHING = {"in_flight": 0, "requests_per_second": 0.0, "tokens_per_second": 0.0}


async def get_overview(site, key=None):
    answer = await site.client.get(PATH, headers=bearer(key) if key else None)
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def named(entries, name):
    (found,) = [one for one in entries if name in (one.get("id"), one.get("name"))]
    return found


# Access


@pytest.mark.parametrize(("key", "status"), [(None, 401), ("ann-key", 403), ("no-key", 401), ("eve-key", 200)])
async def test_overview_requires_a_key_with_the_admin_scope(key, status):
    async with gateway(HELLO, auth={"keys": KEYS}) as site:
        answer = await site.client.get(PATH, headers=bearer(key) if key else None)
        assert answer.status_code == status


async def test_overview_without_api_keys_refuses_only_foreign_pages():
    async with gateway(HELLO) as site:
        assert (await get_overview(site))["version"]
        assert (await site.client.get(PATH, headers={"origin": "https://evil.example"})).status_code == 403
        assert (await site.client.get(PATH, headers={"host": "evil.example"})).status_code == 403


async def test_overview_does_not_list_requests_for_admin_pages():
    async with gateway(HELLO, inspector={"enabled": True}) as site:
        for path in (PATH, "/", "/inspector", "/docs", "/openapi.json", "/assets/-/base.css", "/assets/-/none"):
            await site.client.get(path)
        seen = await get_overview(site)
        assert seen["requests"] == seen["errors"] == [] and seen["pace"] == NOTHING


# Requests


async def test_overview_lists_a_request_while_it_runs_and_afterwards():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, *HELLO[1:]]
    async with listening(script, auth={"keys": [*KEYS, {"name": "tom", "key": "tom-key"}]}) as site:
        begun, clock = now(), time.perf_counter()
        asking = asyncio.create_task(site.chat(stream=True, surprise=1, headers=bearer("tom-key")))
        await site.upstream.arrived.wait()
        (live,) = (await get_overview(site, "eve-key"))["requests"]
        assert (live["live"], live["status"], live["endpoint"]) == (True, None, CHAT)
        go.set()
        answer = await asking
        elapsed = time.perf_counter() - clock
        seen = await get_overview(site, "eve-key")
    (over,) = seen["requests"]
    assert over.items() >= {
        "id": answer.headers["x-request-id"], "key": "tom", "model": "m", "backend": "up", "format": "auto",
        "live": False, "status": 200, "error": None, "message": None, "streamed": True,
        "input_tokens": 7, "output_tokens": 2, "cached_tokens": 0, "reasoning_tokens": 0, "ledger": {"forwarded": 1},
    }.items()  # fmt: skip
    assert 0 <= over["asked"] <= over["first_content"] <= over["duration"] <= elapsed
    assert begun - 1 <= over["arrived"] <= seen["time"] <= now() + 1
    assert seen["errors"] == []


async def test_overview_lists_failures_without_their_content():
    secret = {"error": {"message": f"{KEY} tells of a prompt", "code": "the-words-of-a-backend"}}
    async with gateway(whole(secret, 400), whole(secret, 500), HELLO) as site:
        begun = now()
        for _ in range(3):
            await site.chat()
        text = (await site.client.get(PATH)).text
    seen = json.loads(text)
    assert [(one["status"], one["error"], one["message"]) for one in seen["errors"]] == [
        (502, "upstream_error", None),
        (400, "invalid_request_error", None),
    ]
    assert [one["status"] for one in seen["requests"]] == [200, 502, 400]
    failure = named(seen["backends"], "up")["last_failure"]
    assert (failure["status"], failure["code"], failure["message"]) == (502, "upstream_error", None)
    assert begun - 1 <= failure["time"] <= seen["time"]
    assert {one["code"]: one["count"] for one in seen["hour"]["errors"]} == {
        "upstream_error": 1, "invalid_request_error": 1,
    }  # fmt: skip
    assert "of a prompt" not in text and "words" not in text and KEY not in text


async def test_overview_has_error_messages_if_content_is_on():
    try:
        async with gateway(whole({"error": "my prompt"}, 500), logs={"content": True}) as site:
            await site.chat()
            assert [one["message"] for one in (await get_overview(site))["errors"]] == ["my prompt"]
    finally:
        logs.apply_settings(config.LogSettings())


async def test_overview_has_error_messages_of_the_gateway():
    async with fleet([HELLO], model={"backends": ["up"], "retries": 0}) as site:
        await site.chat()
        seen = await get_overview(site)
    (error,) = seen["errors"]
    assert error["error"] == "upstream_unreachable" and "Backend 'up' cannot be reached" in error["message"]
    assert named(seen["backends"], "up")["last_failure"]["message"] == error["message"]


# Models


async def test_overview_lists_configured_models_with_their_formats():
    models = whole({"data": [{"id": "listed", "max_model_len": 4096}]})
    more = {
        "qwen3-8b": {"backends": ["up"], "aliases": ["other"]},
        "fixed": {"backends": ["up"], "upstream_model": "theirs", "format": "llama3_json", "thought": "open"},
    }
    async with gateway(HELLO, more_models=more, more_backends={}, model=False) as site:
        site.upstream.answer_lists_with(models)
        seen = await get_overview(site)
    assert [one["id"] for one in seen["models"]] == ["qwen3-8b", "fixed"] and seen["models_left_out"] == 0
    model = named(seen["models"], "qwen3-8b")
    assert (model["source"], model["aliases"], model["context_length"], model["pace"]) == (
        "configured", ["other"], None, NOTHING,
    )  # fmt: skip
    (place,) = model["places"]
    assert place == {
        "backend": "up", "upstream_model": "qwen3-8b", "format": "hermes_json", "reason": place["reason"],
        "parsed": True, "thought": "auto", "tools": "native",
    }  # fmt: skip
    assert place["reason"].startswith("its name matches")
    (place,) = named(seen["models"], "fixed")["places"]
    assert (place["upstream_model"], place["format"], place["reason"]) == ("theirs", "llama3_json", "configured")


async def test_overview_lists_models_of_a_backend_with_their_context_length():
    async with gateway(HELLO, model=False, backend={"kind": "vllm"}) as site:
        site.upstream.answer_lists_with(whole({"data": [{"id": "listed", "max_model_len": 4096}, {"id": "two"}]}))
        seen = await get_overview(site)
    model = named(seen["models"], "listed")
    assert (model["source"], model["context_length"], model["capabilities"]) == ("listed", 4096, None)
    assert named(seen["backends"], "up")["models"] == 2


async def test_overview_has_capabilities_and_the_format_from_the_template():
    shown = {"chat_template": "".join(FORMATS["glm47_xml"].signs), "modalities": {"vision": True}}
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = whole(shown)
        model = named((await get_overview(site))["models"], "m")
    assert model["capabilities"] == ["vision"]
    assert model["places"][0]["reason"].startswith("its chat template has")


async def test_overview_counts_models_beyond_its_maximum(monkeypatch):
    monkeypatch.setattr(overview, "_MODELS", 2)
    async with gateway(HELLO, model=False, models=["a", "b", "c"]) as site:
        seen = await get_overview(site)
    assert ([one["id"] for one in seen["models"]], seen["models_left_out"]) == (["a", "b"], 1)


async def test_overview_omits_a_model_that_disappears_meanwhile(monkeypatch):
    async with gateway(HELLO, model=False, models=["a", "b"]) as site:
        directory = site.app.state.directory
        listed = await directory.list()
        site.app.state.directory = SimpleNamespace(
            backends=directory.backends, model=directory.model, get=directory.get, last_list=lambda: listed
        )
        site.upstream.answer_lists_with(list_of("b"))
        directory.backends["up"]._listed_at = float("-inf")
        seen = await get_overview(site)
        site.app.state.directory = directory
    assert [one["id"] for one in seen["models"]] == ["b"]


# Backends


async def test_overview_shows_why_a_backend_is_unavailable():
    async with fleet([HELLO]) as site:
        seen = await get_overview(site)
    well, gone = named(seen["backends"], "b0"), named(seen["backends"], "up")
    assert (well["models"], well["problem"], well["healthy"], well["circuit"]) == (0, None, True, "closed")
    assert gone["models"] is None and "did not list its models" in gone["problem"]
    assert gone["url"] == "http://127.0.0.1:1" and gone["kind"] == "openai"
    assert (well["state"], well["cause"]) == ("healthy", None)
    assert gone["state"] == "unreachable" and gone["cause"] == f"{gone['problem']} Its address is http://127.0.0.1:1."


async def test_overview_has_the_models_of_other_backends_while_one_is_silent(monkeypatch):
    monkeypatch.setattr(overview, "_MAX_WAIT", 0.05)
    async with (
        Upstream([HELLO], ["theirs"]).serving() as other,
        gateway(HELLO, more_backends={"open": {"url": other.url}}) as site,
    ):
        await site.app.state.directory.backends["open"].models()
        site.upstream.answer_lists_with([HANG])
        site.app.state.directory._open.append(site.app.state.directory.backends["up"])
        seen = await get_overview(site)
    assert "did not list its models within" in named(seen["backends"], "up")["problem"]
    assert [one["id"] for one in seen["models"]] == ["m", "theirs"]


async def test_overview_counts_queued_and_running_requests():
    backend = {"concurrent": 1}
    async with listening([head(), HANG], backend=backend) as site:
        asking = [asyncio.create_task(site.chat(stream=True)) for _ in range(2)]
        await site.upstream.arrived.wait()

        async def running_and_queued():
            seen = await get_overview(site)
            return seen["pace"]["in_flight"], seen["backends"][0]["queued"]

        await until(running_and_queued, (2, 1))
        seen = await get_overview(site)
        assert (seen["backends"][0]["queued"], seen["backends"][0]["concurrent"]) == (1, 1)
        assert seen["backends"][0]["pace"]["in_flight"] == named(seen["models"], "m")["pace"]["in_flight"] == 2
        for one in asking:
            one.cancel()


async def test_overview_of_a_replaced_application_has_its_own_backends():
    async with gateway(HELLO) as site:
        site.app.state.telemetry._directory = SimpleNamespace(backends={})
        assert [one["name"] for one in (await get_overview(site))["backends"]] == ["up"]


def condition(**members):
    return BackendCondition(
        **{"state": "closed", "healthy": True, "back_in": 0.0, "queued": 0, "failure": None, **members}
    )


def test_overview_of_workers_has_the_worst_health_and_last_failure():
    failures = [FailureInfo(float(number), 502, None, None) for number in (1, 2)]
    ill = condition(state="open", healthy=False, back_in=3.0, queued=1, failure=failures[0])
    well = condition(queued=2, failure=failures[1])
    trial = condition(state="half_open", healthy=False, failure=None)
    assert overview._worst([well, trial, ill]) == structs.replace(ill, queued=3, failure=failures[1])
    assert overview._worst([well]) == well


# Rates


def test_overview_rate_counts_tokens_within_its_window():
    live = seen(live=True, status=None, arrived=80.0, first_content=0.0, duration=20.0, output_tokens=200)
    (rate,) = compute_rates([live], [], 0.0, 100.0)
    assert rate == ModelRate("m", "up", 1, 0.0, 10.0)


def test_overview_rate_of_a_whole_response_begins_at_its_upstream_call():
    whole_one = seen(streamed=False, arrived=85.0, asked=5.0, first_content=9.9, duration=10.0, output_tokens=50)
    (rate,) = compute_rates([], [whole_one], 0.0, 100.0)
    assert rate == ModelRate("m", "up", 0, 0.1, 5.0)
    unasked = structs.replace(whole_one, asked=None, output_tokens=0)
    assert compute_rates([], [unasked], 0.0, 100.0)[0].requests == 0.1


def test_overview_rate_ignores_requests_that_ended_before_its_window():
    assert compute_rates([], [seen(arrived=80.0, duration=9.9)], 0.0, 100.0) == []


def test_overview_rate_window_is_shorter_if_records_were_dropped():
    over = [seen(arrived=99.0, duration=duration, output_tokens=10) for duration in (0.5, 0.75)]
    (rate,) = compute_rates([], over, 99.5, 100.0)
    assert (rate.requests, round(rate.tokens, 3)) == (4.0, 6.667)
    assert compute_rates([], [seen(arrived=100.0)], 100.0, 100.0)[0].requests == 1000.0, "the window is never empty"


def test_overview_rate_is_separate_for_each_model_and_backend():
    found = compute_rates([], [seen(), seen(), seen(backend="other"), seen(model="n")], 0.0, 100.0)
    assert [(rate.model, rate.backend, rate.requests) for rate in found] == [
        ("m", "up", 0.2), ("m", "other", 0.1), ("n", "up", 0.1),
    ]  # fmt: skip


# Records


def observation(number=0, problem=None):
    made = RequestRecord(f"r{number}", "POST", CHAT, lambda _: None)
    made.problem = problem
    return made


def test_overview_keeps_the_last_records_and_failures_longer(monkeypatch):
    for name, most in (("_KEPT", 3), ("_KEPT_FAILED", 2), ("_MAX_RUNNING", 1)):
        monkeypatch.setattr(telemetry, name, most)
    one = RecentRequests()
    going_on = [observation(number) for number in (90, 91)]
    for number, live in enumerate(going_on):
        live.arrived = float(number)
        one.begin(live)
    for number in range(6):
        made = observation(number, Problem(502, "no") if number < 2 else None)
        one.begin(made)
        one.end(made)
    sight = one.snapshot({}, 0.0)
    assert [seen.id for seen in sight.requests] == ["r91", "r5", "r4", "r3"]
    assert [seen.id for seen in sight.failed] == ["r1", "r0"]
    assert sight.rates[0].in_flight == 2, "requests that are not listed count too"


def test_overview_snapshot_has_the_health_of_each_backend():
    queue = SimpleNamespace(active=1, waiting=2)
    health = Health(lambda: 0.5)
    backend = SimpleNamespace(limiter=SimpleNamespace(health=health, queue=queue))
    for _ in range(5):
        health.record_failure(health.begin(0.0), 0.0)
    one = RecentRequests()
    one.failed("b", Problem(502, "secret", "upstream_error"))
    state = one.snapshot({"b": backend}, 0.5).backends["b"]
    assert (state.state, state.healthy, state.queued) == ("open", False, 2) and state.back_in > 0
    assert state.failure.message is None
    health = backend.limiter.health = Health(lambda: 0.5)
    health.eject(0.0)
    assert not one.snapshot({"b": backend}, 0.5).backends["b"].healthy


def test_overview_snapshot_is_equal_after_serialization():
    from msgspec import msgpack

    sight = WorkerSnapshot(
        [ModelRate("m", "up", 1, 2.0, 3.0)], [seen(ledger={"forwarded": 2})], [], {"up": condition()}
    )
    assert msgpack.decode(msgpack.encode(sight), type=WorkerSnapshot) == sight


async def test_overview_document_matches_its_schema():
    from msgspec import json as msgspec_json

    async with gateway(whole(completion_body()), models=["m"]) as site:
        await site.chat()
        decoded = msgspec_json.decode((await site.client.get(PATH)).content, type=Overview)
    assert decoded.requests[0].ended >= decoded.requests[0].arrived
    assert isinstance(decoded.backends[0], overview_model.BackendView)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 s"), (9.99, "9.99 s"), (10, "10 s"), (99, "99 s"), (101, "2 min"), (6001, "2 h"), (8 * 86400, "8 d")],
)
def test_overview_durations_are_formatted_briefly(seconds, text):
    assert format_duration(seconds) == text
