"""Test the application around a response: errors, bodies, ids, API keys, CORS, health, models and keepalives."""

import asyncio
import json
import logging
import re
import socket
import time
from functools import partial

import httpx
import pytest

from gateway.server.app import create_app
from gateway.server.routes import readiness
from gateway.server.upstream.backend import Backend
from support.app import HELLO_MESSAGES, bearer, gateway, listening, problem, running, settings, streaming
from support.metrics import scrape
from support.raw_requests import HEAD
from support.sse import comments, payloads, text_of
from support.upstream import (
    CLOSE,
    DONE,
    END,
    HANG,
    HELLO,
    KEY,
    Upstream,
    call,
    chunk,
    completion_body,
    head,
    list_of,
    stream,
    whole,
)
from support.wait import DEADLINE, idle, until

ID = re.compile(r"req_[A-Za-z0-9]{24}")
KEYS = {
    "keys": [
        {"name": "all", "key": "key-of-everything-1"},
        {"name": "one", "key": "key-of-m-only-1", "models": ["m"]},
        {"name": "other", "key": "key-of-another-1", "models": ["z"]},
        {"name": "nick", "key": "key-of-the-alias-1", "models": ["nickname"]},
        {"name": "boss", "key": "key-of-admin-1", "scopes": ["admin"]},
        {"name": "odd", "key": "~!key"},
    ]
}
NO_KEY = (
    "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY' or 'x-api-key: YOUR_KEY'."
)
REFUSED = "endpoint_not_supported"


# Errors


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "message", "allow"),
    [
        ("GET", "/v1/nothing", 404, None, "Invalid URL (GET /v1/nothing). The nearest path is /v1/pooling.", None),
        ("POST", "/readi", 404, None, "Invalid URL (POST /readi). The nearest path is /ready.", None),
        ("POST", "/v1/skills", 404, REFUSED, "Invalid URL (POST /v1/skills). The gateway stores no skills. Send their text in instructions.", None),
        ("GET", "/skills/a", 404, REFUSED, "Invalid URL (GET /skills/a). The gateway stores no skills. Send their text in instructions.", None),
        ("POST", "/", 405, "method_not_supported", "Not allowed to POST on /. Allowed: GET, HEAD.", "GET, HEAD"),
        ("GET", "/v1/conversations", 405, "method_not_supported", "Not allowed to GET on /v1/conversations. Allowed: POST.", "POST"),
        ("PUT", "/v1/conversations/a", 405, "method_not_supported", "Not allowed to PUT on /v1/conversations/a. Allowed: DELETE, GET, HEAD, POST.", "DELETE, GET, HEAD, POST"),
        ("DELETE", "/v1/models", 405, "method_not_supported", "Not allowed to DELETE on /v1/models. Allowed: GET, HEAD.", "GET, HEAD"),
        ("OPTIONS", "/v1/models", 405, "method_not_supported", "Not allowed to OPTIONS on /v1/models. Allowed: GET, HEAD.", "GET, HEAD"),
    ],
)  # fmt: skip
async def test_request_of_an_unknown_path_or_method_gets_an_api_error(method, path, status, code, message, allow):
    async with gateway(HELLO) as site:
        answer = await site.client.request(method, path)
        assert problem(answer) == (status, "invalid_request_error", code, None)
        assert answer.json()["error"]["message"] == message
        assert answer.headers.get("allow") == allow
        assert answer.headers["content-type"] == "application/json"


async def test_response_of_an_http_exception_keeps_its_headers():
    from starlette.exceptions import HTTPException

    async with Upstream([HELLO], ()).serving() as upstream:
        app = create_app(settings(upstream.url))

        @app.get("/teapot")
        async def teapot():
            raise HTTPException(418, headers={"x-short": "stout"})

        async with client_of(app) as client:
            answer = await client.get("/teapot")
            assert problem(answer) == (418, "invalid_request_error", None, None)
            assert answer.headers["x-short"] == "stout"


async def test_response_of_a_fault_is_a_500_with_only_the_request_id(caplog):
    async with Upstream([HELLO], ()).serving() as upstream:
        app = create_app(settings(upstream.url))

        @app.get("/fault")
        async def fault():
            raise RuntimeError("a secret of ours")

        async with client_of(app) as client:
            answer = await client.get("/fault", headers={"x-request-id": "mine-7"})
    assert problem(answer) == (500, "server_error", "server_error", None)
    assert "mine-7" in answer.json()["error"]["message"]
    assert "secret" not in answer.text
    assert answer.headers["x-request-id"] == "mine-7"
    (record,) = [record for record in caplog.records if record.name == "gateway"]
    assert (record.getMessage(), record.request_id) == ("the gateway failed with an internal error", "mine-7")
    assert "a secret of ours" in str(record.exc_info[1])


async def test_response_is_cut_and_logged_when_a_fault_comes_in_its_middle(caplog):
    from starlette.responses import StreamingResponse

    async def pieces():
        yield b"half"
        raise RuntimeError("broken")

    async with Upstream([HELLO], ()).serving() as upstream:
        app = create_app(settings(upstream.url))

        @app.get("/half")
        async def half():
            return StreamingResponse(pieces())

        async with (
            running(app) as url,
            httpx.AsyncClient(base_url=url) as client,
            client.stream("GET", "/half") as answer,
        ):
            assert answer.status_code == 200
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
                await answer.aread()
    assert any(record.request_id.startswith("req_") for record in caplog.records if record.name == "gateway")


def client_of(app):
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


# The body


@pytest.mark.parametrize("encoding", ["identity", "Identity"])
async def test_request_body_of_identity_encoding_is_read(encoding):
    async with gateway(HELLO) as site:
        assert (await site.chat(stream=True, headers={"content-encoding": encoding})).status_code == 200


@pytest.mark.parametrize("pieces", [1, 50])
async def test_request_body_beyond_the_limit_is_refused(pieces):
    fitting = json.dumps({"model": "m", "stream": True, "messages": HELLO_MESSAGES}).encode().ljust(1000)

    async def cut(body):
        for start in range(0, len(body), len(body) // pieces):
            yield body[start : start + len(body) // pieces]

    async with gateway(HELLO, limits={"body_bytes": 1000}) as site:
        assert (await site.client.post("/v1/chat/completions", content=cut(fitting))).status_code == 200
        answer = await site.client.post("/v1/chat/completions", content=cut(fitting + b" "))
        assert problem(answer) == (413, "invalid_request_error", "request_too_large", None)
        assert "1000 bytes" in answer.json()["error"]["message"]


async def test_request_body_without_a_content_type_is_json():
    async with gateway(HELLO) as site:
        body = json.dumps({"model": "m", "stream": True, "messages": HELLO_MESSAGES}).encode()
        assert (await site.client.post("/v1/chat/completions", content=body)).status_code == 200


async def test_request_body_that_breaks_off_is_not_logged_as_a_failure(caplog):
    async with listening(HELLO) as site:
        _, writer = await asyncio.open_connection("127.0.0.1", site.client.base_url.port)
        writer.write(HEAD % 100 + b"{")
        await until(lambda: requests_in_flight(site), 1)
        writer.transport.abort()
        assert (await site.client.get("/health")).status_code == 200
        await until(lambda: requests_in_flight(site), 0)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def requests_in_flight(site):
    return (await scrape(site)).sum("gateway_requests_in_flight")


# The request id


@pytest.mark.parametrize("given", ["abc", "req_1/2:3", "x" * 200])
async def test_request_id_of_the_client_is_kept_if_printable(given):
    async with gateway(HELLO) as site:
        for answer in (
            await site.chat(stream=True, headers={"x-request-id": given}),
            await site.client.get("/nothing", headers={"x-request-id": given}),
            await site.client.get("/health", headers={"X-Request-ID": given}),
        ):
            assert answer.headers.get_list("x-request-id") == [given]


@pytest.mark.parametrize("given", [None, "", "two words", "x" * 201, "caf\xe9"])
async def test_request_id_is_made_where_the_client_sends_no_usable_one(given):
    async with gateway(HELLO) as site:
        headers = {} if given is None else {"x-request-id": given.encode("latin-1")}
        answer = await site.client.get("/health", headers=headers)
        assert ID.fullmatch(answer.headers["x-request-id"])


async def test_response_headers_have_the_version_and_the_processing_time():
    async with gateway(HELLO) as site:
        for ask in (
            partial(site.client.get, "/health"),
            partial(site.client.get, "/no"),
            partial(site.chat, stream=True),
        ):
            begun = time.perf_counter()
            answer = await ask()
            spent = (time.perf_counter() - begun) * 1000
            assert answer.headers["openai-version"] == "2020-10-01"
            assert 0 <= int(answer.headers["openai-processing-ms"]) <= spent


# Keys


async def test_api_key_is_ignored_where_none_is_configured():
    async with gateway(HELLO) as site:
        assert (await site.client.get("/v1/models")).status_code == 200
        assert (await site.client.get("/v1/models", headers=bearer("anything"))).status_code == 200


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, NO_KEY),
        ({"authorization": "Bearer"}, NO_KEY),
        ({"authorization": "Bearer "}, NO_KEY),
        ({"authorization": "Basic a2V5"}, NO_KEY),
        (bearer("short"), "Incorrect API key provided: …."),
        (bearer("sk-wrong-and-long-enough"), "Incorrect API key provided: sk-…ough."),
        (bearer("key-of-everything-2"), "Incorrect API key provided: key…ng-2."),
        (bearer("key-of-everything-"), "Incorrect API key provided: key…ing-."),
        ({"api-key": "wrong"}, "Incorrect API key provided: …."),
        ({"authorization": "Bearer \xe9\xff"}, "Incorrect API key provided: …."),
    ],
)  # fmt: skip
async def test_api_key_that_is_wrong_or_missing_is_a_401_on_every_endpoint(headers, message):
    headers = {name: value.encode("latin-1") for name, value in headers.items()}
    async with gateway(HELLO, auth=KEYS) as site:
        for answer in (
            await site.chat(b"what is no JSON", headers=headers),
            await site.client.get("/v1/models", headers=headers),
            await site.client.get("/v1/models/m", headers=headers),
        ):
            assert problem(answer) == (401, "invalid_request_error", "invalid_api_key", None)
            assert answer.json()["error"]["message"] == message
        assert site.upstream.posts == []


@pytest.mark.parametrize(
    "headers",
    [bearer("key-of-everything-1"), {"authorization": "bearer  key-of-everything-1 "}, {"api-key": "key-of-everything-1"},
     {"authorization": "Basic a2V5", "api-key": "key-of-everything-1"}, bearer("~!key")],
)  # fmt: skip
async def test_api_key_is_accepted_in_either_header(headers):
    async with gateway(HELLO, auth=KEYS) as site:
        assert (await site.chat(stream=True, headers=headers)).status_code == 200
        assert (await site.client.get("/v1/models", headers=headers)).status_code == 200


async def test_api_key_is_not_needed_for_health_ready_and_docs():
    async with gateway(HELLO, auth=KEYS) as site:
        for path in ("/health", "/ready", "/docs"):
            assert (await site.client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("key", "model", "status"),
    [
        ("key-of-m-only-1", "m", 200),
        ("key-of-m-only-1", "nickname", 200),  # another name for the same
        ("key-of-m-only-1", "n", 403),
        ("key-of-another-1", "m", 403),
        ("key-of-another-1", "nickname", 403),
        ("key-of-the-alias-1", "nickname", 200),
        ("key-of-the-alias-1", "m", 403),
        ("key-of-everything-1", "n", 200),
    ],
)
async def test_api_key_for_some_models_is_refused_for_others(key, model, status):
    async with gateway(HELLO, auth=KEYS, model={"aliases": ["nickname"]}, more_models={"n": {}}) as site:
        answer = await site.chat(model=model, stream=True, headers=bearer(key))
        assert answer.status_code == status
        if status == 403:
            assert problem(answer) == (403, "invalid_request_error", "model_not_allowed", "model")
            assert f"'{model}'" in answer.json()["error"]["message"]


async def test_api_key_without_the_api_scope_is_refused():
    async with gateway(HELLO, auth=KEYS) as site:
        for answer in (
            await site.chat(stream=True, headers=bearer("key-of-admin-1")),
            await site.client.get("/v1/models", headers=bearer("key-of-admin-1")),
        ):
            assert problem(answer) == (403, "invalid_request_error", "scope_not_allowed", None)


async def test_api_key_of_a_client_is_not_sent_to_the_upstream():
    async with gateway(HELLO, auth=KEYS) as site:
        await site.chat(stream=True, headers={**bearer("key-of-everything-1"), "api-key": "key-of-everything-1"})
        (post,) = site.upstream.posts
        assert "key-of-everything" not in str(post.headers) + post.body.decode()
        assert post.headers["authorization"] == f"Bearer {KEY}"


async def test_backend_without_a_key_gets_no_authorization_header():
    async with gateway(HELLO, backend={"api_key": ""}) as site:
        await site.chat(stream=True)
        assert "authorization" not in site.upstream.posts[0].headers


# CORS


async def test_cors_headers_are_absent_unless_configured():
    async with gateway(HELLO) as site:
        answer = await site.client.get("/health", headers={"origin": "https://chat.example"})
        assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_cors_origin_that_is_configured_may_send_and_read_headers():
    origin = {"origin": "https://chat.example"}
    async with gateway(HELLO, server={"cors": ["https://chat.example"]}, auth=KEYS) as site:
        asking = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        before = await site.client.options("/v1/chat/completions", headers=asking)
        assert (before.status_code, before.headers["access-control-allow-origin"]) == (200, "https://chat.example")
        for answer in (
            await site.client.get("/health", headers=origin),
            await site.client.get("/v1/models", headers=origin),
        ):
            assert answer.headers["access-control-allow-origin"] == "https://chat.example"
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
        other = await site.client.get("/health", headers={"origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers


# Health


async def test_health_is_ok_without_a_backend():
    async with client_of(create_app(settings("http://127.0.0.1:1"))) as client:
        answer = await client.get("/health")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


async def test_ready_is_200_as_long_as_one_backend_answers():
    async with gateway(HELLO) as site:
        answer = await site.client.get("/ready")
        assert (answer.status_code, answer.json()) == (200, {"backends": {"up": "ok"}})


@pytest.mark.parametrize("script", [whole({"error": "no"}, 500), whole(b"<html>"), whole(b"\xff")])
async def test_ready_is_200_when_a_backend_cannot_list_its_models(script):
    async with gateway(HELLO, models=script) as site:
        assert (await site.client.get("/ready")).status_code == 200


@pytest.mark.parametrize("script", [[HANG], [CLOSE]])
async def test_ready_is_503_while_no_backend_answers(script, monkeypatch):
    monkeypatch.setattr(readiness, "_SECONDS", 0.1)
    async with gateway(HELLO, models=script) as site:
        answer = await site.client.get("/ready")
        assert (answer.status_code, answer.json()) == (503, {"backends": {"up": "unreachable"}})


# Models


async def test_models_list_has_only_the_models_of_the_key():
    keys = [{"name": "one", "key": "k1", "models": ["gpt-4o-mini"]}, {"name": "all", "key": "k2"}]
    async with gateway(HELLO, model={"aliases": ["gpt-4o-mini"]}, auth={"keys": keys}) as site:
        for key, seen in (("k1", ["gpt-4o-mini"]), ("k2", ["m", "gpt-4o-mini"])):
            headers = bearer(key)
            listed = await site.client.get("/v1/models", headers=headers)
            assert [entry["id"] for entry in listed.json()["data"]] == seen
            one = await site.client.get("/v1/models/m", headers=headers)
            assert one.status_code == (200 if "m" in seen else 404)


async def test_models_list_is_kept_when_its_backend_fails():
    now = 0.0
    upstream = Upstream([HELLO], ["theirs"])
    async with upstream.serving():
        backend = Backend("up", settings(upstream.url).backends["up"], clock=lambda: now)
        lists = await asyncio.gather(backend.models(), backend.models())
        assert [[listed.id for listed in one] for one in lists] == [["theirs"]] * 2 and len(upstream.gets) == 1
        upstream.answer_lists_with([CLOSE])
        now = 100.0
        assert [listed.id for listed in await backend.models()] == ["theirs"] and len(upstream.gets) == 2
        assert backend.lists_model("theirs") and not backend.lists_model("mine")
        await backend.close()


async def test_models_list_is_read_without_its_first_caller():
    ready = asyncio.Event()
    upstream = Upstream([HELLO], [ready, *list_of("theirs")])
    async with upstream.serving():
        backend = Backend("up", settings(upstream.url).backends["up"])
        first = asyncio.create_task(backend.models())
        await until(lambda: len(upstream.gets), 1)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        ready.set()
        assert [listed.id for listed in await backend.models()] == ["theirs"] and len(upstream.gets) == 1
        await backend.close()


@pytest.mark.parametrize(("seconds", "outcomes"), [(9.0, [404, 404]), (11.0, [404, 200])], ids=["young", "outdated"])
async def test_model_that_moved_to_another_backend_is_found_again(seconds, outcomes):
    """A list that is still young is not read again for each request."""
    gone = whole({"error": {"message": "The model `a` does not exist.", "code": 404}}, 404)
    servers = Upstream([gone], ["a"]), Upstream([whole(completion_body())], ["b"])
    async with (
        servers[0].serving() as old,
        servers[1].serving() as new,
        gateway(HELLO, more_backends={"old": {"url": old.url}, "new": {"url": new.url}}) as site,
    ):
        now = 0.0
        for backend in site.app.state.directory.backends.values():
            backend._clock = lambda: now
        assert (await site.chat(model="b")).status_code == 200  # reads both lists
        now = seconds
        old.answer_lists_with(list_of("b"))
        new.answer_lists_with(list_of("a"))
        answers = [await site.chat(model="a") for _ in outcomes]
        assert [answer.status_code for answer in answers] == outcomes


async def test_model_that_is_unknown_is_looked_up_at_all_backends_at_once(monkeypatch):
    """Each backend sends its list when all were asked for theirs."""
    monkeypatch.setattr("gateway.server.upstream.backend._LIST_SECONDS", DEADLINE)
    ready = asyncio.Event()
    second, third = (Upstream([HELLO], [ready, *list_of(name)]) for name in ("b", "c"))
    async with (
        second.serving(),
        third.serving(),
        gateway(
            HELLO,
            model=False,
            models=[ready, *list_of("a")],
            more_backends={"second": {"url": second.url}, "third": {"url": third.url}},
        ) as site,
    ):
        request = asyncio.create_task(site.chat(model="none"))
        await until(lambda: [len(one.gets) for one in (site.upstream, second, third)], [1, 1, 1])
        ready.set()
        assert problem(await request)[2] == "model_not_found"


@pytest.mark.parametrize(("seconds", "status"), [(0.9, 404), (1.1, 200)], ids=["just read", "read before"])
async def test_model_that_its_backend_has_just_loaded_is_found(seconds, status):
    async with gateway(whole(completion_body()), model=False, models=["a"]) as site:
        now = 0.0
        site.app.state.directory.backends["up"]._clock = lambda: now
        assert (await site.chat(model="a")).status_code == 200
        site.upstream.answer_lists_with(list_of("a", "b"))
        now = seconds
        assert (await site.chat(model="b")).status_code == status


async def test_models_list_that_is_in_doubt_is_kept_when_it_cannot_be_read_again():
    gone = whole({"error": {"message": "The model `a` does not exist.", "code": 404}}, 404)
    async with gateway(gone, whole(completion_body()), model=False, models=["a", "b"]) as site:
        now = 0.0
        site.app.state.directory.backends["up"]._clock = lambda: now
        assert (await site.client.get("/v1/models")).status_code == 200
        now = 11.0
        site.upstream.answer_lists_with([CLOSE])
        assert (await site.chat(model="a")).status_code == 404
        assert (await site.chat(model="b")).status_code == 200 and len(site.upstream.gets) == 2


async def test_models_list_has_the_configured_models_and_aliases():
    async with gateway(HELLO, model={"aliases": ["gpt-4o-mini", "org/m:1"]}, models=["unheard"]) as site:
        body = (await site.client.get("/v1/models")).json()
        entry = {"object": "model", "created": 0, "owned_by": "gateway"}
        assert body == {"object": "list", "data": [{"id": id, **entry} for id in ("m", "gpt-4o-mini", "org/m:1")]}
        assert site.upstream.gets == []
        for id in ("m", "gpt-4o-mini", "org/m:1"):
            assert (await site.client.get(f"/v1/models/{id}")).json() == {"id": id, **entry}


async def test_models_list_has_all_of_a_backend_that_no_model_names():
    async with gateway(HELLO, model=False, models=["a", "org/b"]) as site:
        body = (await site.client.get("/v1/models")).json()
        assert [(one["id"], one["created"]) for one in body["data"]] == [("a", 3), ("org/b", 3)]
        assert (await site.client.get("/v1/models/org/b")).json()["id"] == "org/b"
        answer = await site.chat(model="org/b", stream=True)
        assert (answer.status_code, site.upstream_body["model"]) == (200, "org/b")
        assert payloads(answer.text)[0]["model"] == "org/b"
        assert len(site.upstream.gets) == 1, "the list is kept for a while"
        assert site.upstream.gets[0].path == "/v1/models"
        assert site.upstream.gets[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"data": [{"id": "a"}, {"id": 7}, "b", None, {"created": 1}, {"id": "c", "created": "soon"}]}, ["a", "c"]),
        ({"data": [{"id": "a"}, {"id": "a"}]}, ["a"]),
        ({"data": "none"}, []),
        (["a"], []),
        ({"models": []}, []),
    ],
)
async def test_models_list_ignores_malformed_entries_of_a_backend(body, ids):
    async with gateway(HELLO, model=False, models=whole(body)) as site:
        assert [one["id"] for one in (await site.client.get("/v1/models")).json()["data"]] == ids


async def test_models_of_the_config_win_over_models_of_a_backend():
    async with Upstream([HELLO], ["m", "other"]).serving() as second:
        more = {"also": {"url": second.url}}
        async with gateway(HELLO, more_backends=more, model={"upstream_model": "theirs"}) as site:
            ids = [one["id"] for one in (await site.client.get("/v1/models")).json()["data"]]
            assert ids == ["m", "other"]
            await site.chat(stream=True)
            assert site.upstream_body["model"] == "theirs"
            await site.chat(model="other", stream=True)
            assert second.posts[0].json["model"] == "other"


@pytest.mark.parametrize("model", [None, False])
async def test_model_that_is_unknown_is_a_404(model):
    async with gateway(HELLO, model=model, models=["a"]) as site:
        for answer in (await site.chat(model="none"), await site.client.get("/v1/models/none")):
            assert problem(answer) == (404, "invalid_request_error", "model_not_found", "model")
            listed = "m" if model is None else "a"
            text = f"The model 'none' does not exist or you do not have access to it. There are: {listed}."
            assert answer.json()["error"]["message"] == text


@pytest.mark.parametrize(
    ("script", "what"),
    [(whole({"error": "x"}, 500), "HTTP 500"), (whole(b"<html>"), "no JSON"), ([CLOSE], "no valid HTTP response")],
)
async def test_model_is_a_502_if_its_backend_cannot_list_its_models(script, what):
    async with gateway(HELLO, model=False, models=script) as site:
        answer = await site.chat(model="a")
        assert problem(answer) == (502, "server_error", "upstream_unreachable", None)
        assert what in answer.json()["error"]["message"]
        assert KEY not in answer.text
        assert (await site.client.get("/v1/models")).json() == {"object": "list", "data": []}
        assert len(site.upstream.gets) == 1, "it is not asked again for a while"


async def test_model_alias_is_the_name_in_the_response():
    async with gateway(HELLO, model={"aliases": ["nickname"]}) as site:
        answer = await site.chat(model="nickname", stream=True)
        assert {chunk["model"] for chunk in payloads(answer.text) if chunk != "[DONE]"} == {"nickname"}
        assert site.upstream_body["model"] == "m"


async def test_docs_show_the_chat_endpoint():
    async with gateway(HELLO) as site:
        assert "/v1/chat/completions" in (await site.client.get("/docs")).text
        schema = (await site.client.get("/openapi.json")).json()
        body = schema["paths"]["/v1/chat/completions"]["post"]["requestBody"]
        assert body["content"]["application/json"]["schema"]["required"] == ["model", "messages"]


# Headers of a response


@pytest.mark.parametrize(
    ("format", "shown"),
    [
        ("auto", "auto; its name is unknown, so its output decides"),
        ("native", "native; configured"),
        ("hermes", "hermes_json; configured"),
    ],
)
async def test_debug_headers_are_sent_only_on_request(format, shown):
    async with gateway(HELLO, model={"format": format, "aliases": ["nickname"]}) as site:
        quiet = await site.chat(stream=True)
        assert not [name for name in quiet.headers if name.startswith("x-gateway")]
        for streamed in (True, False):
            answer = await site.chat(model="nickname", stream=streamed, headers={"x-gateway-debug": "1"})
            assert {name: value for name, value in answer.headers.items() if name.startswith("x-gateway-")} == {
                "x-gateway-model": "m", "x-gateway-backend": "up", "x-gateway-format": shown,
            }  # fmt: skip


@pytest.mark.parametrize(
    ("script", "model", "fields", "shown"),
    [
        (whole({"error": {"message": "no"}}, 400), "m", {}, {"model": "m", "backend": "up", "format": "native"}),
        (whole({"error": {"message": "no"}}, 500), "m", {}, {"model": "m", "backend": "up", "format": "native"}),
        (HELLO, "m", {"top_k": 1}, {"model": "m"}),
        (HELLO, "none", {}, {}),
    ],
)
async def test_debug_headers_are_those_of_the_last_attempt_in_an_error(script, model, fields, shown):
    headers = {"x-gateway-debug": "1", "x-gateway-strict": "1"}
    async with gateway(script, model={"format": "native"}) as site:
        for streamed in (True, False):
            answer = await site.chat(model=model, stream=streamed, headers=headers, **fields)
            assert answer.status_code >= 400
            found = {name: value for name, value in answer.headers.items() if name.startswith("x-gateway-")}
            assert found == {f"x-gateway-{name}": value for name, value in shown.items()}
            quiet = await site.chat(model=model, stream=streamed, headers={"x-gateway-strict": "1"}, **fields)
            assert not [name for name in quiet.headers if name.startswith("x-gateway")]


async def test_debug_headers_escape_the_name_of_a_model():
    async with gateway(HELLO, model=False, models=["modèle\r\nx-evil: 1"]) as site:
        answer = await site.chat(model="modèle\r\nx-evil: 1", stream=True, headers={"x-gateway-debug": "1"})
        assert (answer.status_code, answer.headers.get("x-evil")) == (200, None)
        assert answer.headers["x-gateway-model"] == "mod%C3%A8le%0D%0Ax-evil%3A%201"


async def test_warnings_of_a_stream_are_in_the_header_or_in_a_late_comment():
    twice = stream(chunk(tool_calls=call("f", "{}")), chunk(finish="tool_calls"))
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with gateway(twice, backend={"kind": "vllm"}) as site:
        answer = await site.chat(stream=True, tools=tools, top_k=3, verbosity="low")
        assert answer.headers["x-gateway-warnings"].split(", ")[:2] == ["forwarded:top_k", "dropped:verbosity"]
        assert "estimated:usage" in comments(answer.text)[-1]
        assert comments(answer.text)[-1].startswith(": gateway-warnings ")
        *_, last = answer.text.strip().split("\n\n")
        assert last == "data: [DONE]"


async def test_warnings_of_a_whole_response_are_all_in_the_header():
    body = {**completion_body(), "usage": None}
    async with gateway(whole(body), backend={"kind": "vllm"}) as site:
        answer = await site.chat(top_k=3)
        assert answer.headers["x-gateway-warnings"] == "forwarded:top_k, estimated:usage"


@pytest.mark.parametrize("streamed", [True, False])
async def test_warnings_of_hostile_field_names_add_no_header_and_no_event(streamed):
    names = ["a\r\nx-evil: 1", "b\n\ndata: evil", "schön", "x" * 9000, *(f"n{i}" for i in range(500))]
    script = HELLO if streamed else whole(completion_body())
    async with listening(script) as site:
        answer = await site.chat(stream=streamed, **dict.fromkeys(names, 1))
        assert (answer.status_code, answer.headers.get("x-evil")) == (200, None)
        assert len(answer.headers["x-gateway-warnings"]) < 5000
        assert answer.headers["x-gateway-warnings"].startswith("forwarded:a")
        assert "data: evil" not in answer.text
        assert {*names} < {*site.upstream_body}


# Grace and keepalives


async def test_keepalive_comments_fill_silence_after_the_status():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END]
    async with listening(script, stream={"grace_seconds": DEADLINE, "keepalive_seconds": 0.02}) as site:
        lines = []
        async with streaming(site) as answer:
            async for line in answer.aiter_lines():
                lines.append(line)
                if lines.count(": keep-alive") == 3:
                    go.set()
        assert lines.count(": keep-alive") >= 3
        assert text_of("\n".join(lines)) == "Hi"
        assert [line for line in lines if line][-1] == "data: [DONE]"


@pytest.mark.parametrize("before", [[], [head()], [head(), b": ping\n\n", chunk(role="assistant", content="")]])
async def test_keepalive_comments_follow_the_status_after_the_grace(before):
    go = asyncio.Event()
    after = [chunk("Hi"), chunk(finish="stop"), DONE, END]
    script = [*before, go, *([] if before else [head()]), *after]
    async with listening(script, stream={"grace_seconds": 0.03, "keepalive_seconds": 0.02}) as site:
        async with streaming(site) as answer:
            assert answer.status_code == 200
            lines = []
            async for line in answer.aiter_lines():
                lines.append(line)
                if ": keep-alive" in lines:
                    go.set()
        first = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        assert first["choices"][0]["delta"]["role"] == "assistant"
        assert text_of("\n".join(lines)) == "Hi"
        assert sum('"role"' in line for line in lines) == 1


@pytest.mark.parametrize("noise", [b": ping\n\n", chunk(role="assistant", content=""), b'data: {"choices":[]}\n\n'])
async def test_grace_ends_in_spite_of_chunks_without_content(noise):
    left = asyncio.Event()

    async def chatter(writer):
        while not left.is_set():
            writer.write(b"%x\r\n%b\r\n" % (len(noise), noise))
            await writer.drain()
            await idle(0.005)

    async with (
        listening(
            [head(), chatter, chunk("Hi"), chunk(finish="stop"), DONE, END], stream={"grace_seconds": 0.05}
        ) as site,
        asyncio.timeout(DEADLINE),
        streaming(site) as answer,
    ):
        assert answer.status_code == 200
        left.set()
        assert text_of(await text(answer)) == "Hi"


async def text(answer):
    return (await answer.aread()).decode()


async def test_grace_of_zero_sends_the_status_at_once():
    go = asyncio.Event()
    script = [go, head(), chunk("Hi"), chunk(finish="stop"), DONE, END]
    async with listening(script, stream={"grace_seconds": 0}) as site, streaming(site) as answer:
        go.set()
        assert (answer.status_code, text_of(await text(answer))) == (200, "Hi")


async def test_keepalive_comments_are_absent_when_turned_off():
    go = asyncio.Event()
    script = [head(), chunk("Hi"), go, chunk(finish="stop"), DONE, END]
    async with (
        listening(script, stream={"grace_seconds": 0, "keepalive_seconds": 0}) as site,
        streaming(site) as answer,
    ):
        await idle(0.05)
        go.set()
        assert comments(await text(answer)) == [": gateway-warnings estimated:usage"]


async def test_grace_decides_whether_a_failure_is_a_status_or_an_error_frame():
    failure = whole({"error": {"message": "Too many", "code": 429}}, 429, retry_after="7")
    async with gateway(failure, stream={"grace_seconds": DEADLINE}) as site:
        answer = await site.chat(stream=True)
        assert problem(answer) == (429, "rate_limit_error", "rate_limit_exceeded", None)
        assert answer.headers["retry-after"] == "7"
    go = asyncio.Event()
    async with listening([go, *failure], stream={"grace_seconds": 0.02, "keepalive_seconds": 0.02}) as site:
        async with streaming(site) as answer:
            assert answer.status_code == 200
            go.set()
            *_, last = payloads(await text(answer))
        error = {"message": "Too many", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
        assert last == {"error": error}


async def test_response_stream_is_neither_cached_nor_buffered():
    async with gateway(HELLO) as site:
        answer = await site.chat(stream=True)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert (answer.headers["cache-control"], answer.headers["x-accel-buffering"]) == ("no-cache", "no")


async def test_backend_connections_are_used_again():
    async with gateway(HELLO) as site:
        ports = set()
        for _ in range(3):
            await site.chat(stream=True)
        ports = {post.peer for post in site.upstream.posts}
        assert (len(site.upstream.posts), len(ports)) == (3, 1)


async def test_response_streams_at_the_same_time_do_not_mix():
    async with listening(HELLO) as site:
        answers = await asyncio.gather(*(site.chat(stream=True, user=str(i)) for i in range(40)))
        assert [text_of(answer.text) for answer in answers] == ["Hi"] * 40
        assert len({payloads(answer.text)[0]["id"] for answer in answers}) == 40


async def test_request_sent_byte_by_byte_is_read():
    async with Upstream([HELLO], ()).serving() as upstream, running(create_app(settings(upstream.url))) as url:
        body = json.dumps({"model": "m", "messages": HELLO_MESSAGES, "stream": True}).encode()
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in head % len(body) + body:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        raw = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
        assert raw.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
