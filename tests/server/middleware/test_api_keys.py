"""Test API keys: how they are configured, what they allow, and the delay of clients that try wrong ones."""

import asyncio
import json
import pickle
import re
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256

import httpx
import pytest
from fastapi.routing import APIRoute
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st
from starlette.requests import HTTPConnection
from typer.testing import CliRunner

from gateway.cli.main import app as commands
from gateway.config import Config, ConfigError, dump_effective, parse
from gateway.server.app import create_app
from gateway.server.http.paths import canonical, roots
from gateway.server.middleware.auth import Authenticator
from gateway.server.middleware.auth_throttle import AuthThrottle
from support.anthropic_server import message, text
from support.app import HELLO_MESSAGES, bearer, gateway, listening, problem, settings
from support.serve_process import config_of, first, living, post_chat, rest, streaming, until_refused
from support.sse import text_of
from support.upstream import HELLO, Upstream, paused, whole
from support.wait import DEADLINE, until

RIGHT, WRONG = "gw-right-and-long-enough", "gw-wrong-and-long-enough"
DIGEST = f"sha256:{sha256(RIGHT.encode()).hexdigest()}"
SOCKETS = ("/v1/responses", "/v1/realtime")
KEYLESS = {
    *("/health", "/ready", "/docs", "/docs/warnings", "/inspector", "/playground", "/assets/{digest}/{name}")
}  # they have no data
VISIBLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)


def auth_of(key, **more):
    return {"keys": [{"name": "ci", "key": key, **more}]}


def load(auth):
    return parse(json.dumps({"auth": auth}), "g", {}, [])


# Configuration


@pytest.mark.parametrize("written", [RIGHT, DIGEST, DIGEST.upper().replace("SHA", "sha"), [RIGHT], ["old", DIGEST]])
async def test_api_key_may_be_configured_as_text_digest_or_list(written):
    async with gateway(HELLO, auth=auth_of(written)) as site:
        assert (await site.client.get("/v1/models", headers=bearer(RIGHT))).status_code == 200
        assert (await site.client.get("/v1/models", headers=bearer("old"))).status_code == (
            200 if "old" in written else 401
        )
        assert (await site.client.get("/v1/models", headers=bearer(DIGEST))).status_code == 401, "it is no key itself"


def test_api_key_without_a_name_may_be_a_digest():
    assert load({"keys": [DIGEST]}) == load({"keys": [RIGHT]})


@hypothesis(deadline=None)
@given(VISIBLE.filter(lambda key: "$" not in key))
def test_api_key_is_not_in_the_parsed_config(key):
    """The pickled config, which workers get, has no key either; the digest of a key gives an equal config."""
    key = f"begin-{key}"
    config = load(auth_of(key))
    assert config == load(auth_of(f"sha256:{sha256(key.encode()).hexdigest()}"))
    assert key.encode() not in pickle.dumps(config)


def test_api_key_and_digest_are_masked_in_the_shown_config():
    shown = dump_effective(load(auth_of([RIGHT, WRONG])))
    assert "    key:\n    - '**********'\n    - '**********'\n" in shown and "sha256" not in shown
    assert DIGEST.removeprefix("sha256:") not in shown + repr(load(auth_of(DIGEST)))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([{"name": "a", "key": RIGHT}, {"name": "b", "key": DIGEST}], "keys: the same key is listed twice"),
        ([{"name": "a", "key": [RIGHT, "x"]}, {"name": "b", "key": ["y", RIGHT]}], "keys: the same key is listed twice"),
        ([{"name": "a", "key": [RIGHT, RIGHT]}], "keys: the same key is listed twice"),
        ([{"name": "a", "key": []}], "keys[0].key: should have at least one entry"),
        ([{"name": "a", "key": 12345}], "keys[0].key: should be a string; write it in quotes"),
        ([{"name": "a", "key": ["x", None]}], "keys[0].key[1]: should be a string; write it in quotes"),
        ([{"name": "a", "key": ["x", "ä"]}], "keys[0].key[1]: should be visible ASCII characters, at least one"),
        ([{"name": "a", "key": DIGEST[:-1]}], "keys[0].key: should be sha256: and 64 hexadecimal digits, or a key with another prefix"),
        ([DIGEST + "0"], "keys[0].key: should be sha256: and 64 hexadecimal digits, or a key with another prefix"),
        ([{"name": "a", "key": "x", "endpoints": []}], "keys[0].endpoints: should have at least one entry"),
        *(
            ([{"name": "a", "key": "x", "endpoints": ["/v1", path]}], "keys[0].endpoints[1]: should be a path like /v1/chat/completions")
            for path in ("", "/", "v1", "/v1/", "//v1", "/v1//models", "/v1?a", "/v1 ", "/%2F", "/v1#", "/v1\n")
        ),
    ],
)  # fmt: skip
def test_api_key_config_errors_do_not_contain_the_key(keys, message):
    with pytest.raises(ConfigError) as caught:
        load({"keys": keys})
    (fault,) = map(str, caught.value.faults)
    assert fault == f"g:1: auth.{message}"


# The command


def run(*words, given=None):
    result = CliRunner().invoke(commands, ["key", *words], input=given)
    return result.exit_code, result.stdout, result.stderr


def test_api_key_command_makes_a_key_and_its_digest():
    code, out, err = run()
    why, key, how, digest = out.splitlines()
    assert (code, err) == (0, "") and why.startswith("# The key: ") and how.startswith("# Its digest: ")
    assert re.fullmatch(r"gw-[A-Za-z0-9_-]{43}", key)
    assert digest == f"sha256:{sha256(key.encode()).hexdigest()}"
    assert load(auth_of(key)) == load(auth_of(digest))
    assert key not in run()[1]


@pytest.mark.parametrize("given", [RIGHT, f"{RIGHT}\n", f"{RIGHT}\r\n", f"{DIGEST}\n"])
def test_api_key_command_digests_a_given_key(given):
    assert run("--hash", given=given) == (0, f"{DIGEST}\n", "")


@pytest.mark.parametrize("given", ["", "\n", "two words\n", b"\xff\xfe\n", f"{DIGEST}0"])
def test_api_key_command_refuses_a_key_that_no_client_can_send(given):
    code, out, err = run("--hash", given=given)
    assert (code, out) == (2, "") and "the key on standard input should be" in err


# Endpoints


def scope_of(path, method="POST", kind="http", headers=(), client=("192.0.2.1", 7)):
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return {"type": kind, "method": method, "path": path, "query_string": b"", "headers": raw, "client": client}


def _code(error):
    """Return the code of an error; of Anthropic's API its type."""
    return error.get("code", error["type"])


async def status_and_code(app, scope):
    """Return the status and error code of the response to an ASGI scope, whose path stays as it is."""
    steps = [{"type": "websocket.connect" if scope["type"] == "websocket" else "http.request", "body": b"{}"}]
    messages = []

    async def receive():
        return steps.pop(0) if steps else await asyncio.Event().wait()

    async def send(message):
        messages.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in messages[1:])
    return messages[0]["status"], (_code(json.loads(body)["error"]) if body else None)


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/chat/completions", True),
        ("/v1/chat/completions/chatcmpl-1", True),
        ("/v1/chat/completions/chatcmpl-1/messages", True),
        ("/v1/chat/completionsx", None),
        ("/v1/completions", False),
        ("/v1/responses", False),
        ("/v1/responses/compact", False),
        ("/v1/responses/resp_1", False),
        ("/v1/responses/..%2Fchat/completions", None),
        ("/v1/responses/%2Fv1%2Fchat%2Fcompletions", None),
        ("/v1/conversations/%2e%2e", False),
        ("/v1/chat/completions/../../embeddings", None),
        ("/v1/chat/completions/%2e%2e%2f%2e%2e/embeddings", None),
        ("/v1/chat/completions/..", True),
        ("/v1/chat%2Fcompletions", True),
        ("/%76%31/%65mbeddings", False),
        ("//v1/chat/completions", True),
        ("//v1/embeddings", False),
        ("/v1//embeddings", False),
        ("/embeddings/", False),
        ("/chat//completions", True),
        ("/v1/./embeddings", None),
        ("/V1/EMBEDDINGS", None),
        ("/v1/embeddings;/v1/chat/completions", None),
        ("/v1/embeddings?/v1/chat/completions", False),
        ("/v1/embeddings%3F/v1/chat/completions", None),
        ("/v1/embeddings%00", None),
        ("/v1/models/..%2Fchat%2Fcompletions", False),
    ],
)  # fmt: skip
async def test_api_key_for_some_endpoints_is_refused_at_others(path, allowed):
    """Send raw requests with several methods; `allowed` is None where the path does not exist."""
    async with listening(auth=auth_of(RIGHT, endpoints=["/v1/chat/completions"])) as site:
        found = set()
        for method in ("GET", "POST", "DELETE"):
            raw = await over_socket(site, f"{method} {path} HTTP/1.1", f"authorization: Bearer {RIGHT}")
            found.add((raw["status"], raw.get("code")))
        refused = (403, "endpoint_not_allowed") in found
        assert refused == (allowed is False)
        statuses = {status for status, _ in found}
        assert statuses <= {False: {403, 405}, True: {400, 404, 405, 200}, None: {404}}[allowed], found
        assert statuses != {405}


async def over_socket(site, line, *headers, body=b"{}"):
    """Send an unchanged request line and return the status of the response, with the members of its error."""
    url = site.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    lines = [line, "host: gateway", "connection: close", f"content-length: {len(body)}", *headers]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    async with asyncio.timeout(DEADLINE):
        head, _, text = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status = int(head.split()[1])
    return {"status": status, **(json.loads(text)["error"] if status >= 400 and text[:1] == b"{" else {})}


@cache
def closed(endpoints=None):
    """Return an application without a backend, with a key for these endpoints."""
    auth = auth_of(RIGHT, **({"endpoints": endpoints} if endpoints else {}))
    return create_app(settings("http://127.0.0.1:1", auth=auth), throttle=AuthThrottle(sleep=at_once))


async def at_once(seconds):
    """Return without a delay."""


@hypothesis(deadline=None)
@given(
    st.lists(
        st.sampled_from(["v1", "chat", "completions", "embeddings", "models", "..", ".", "", "x", "%2F"]), max_size=5
    )
)
def test_api_key_endpoints_are_compared_by_path_segments(segments):
    path = "/" + "/".join(segments)

    async def admitted():
        for allowed in (("/v1/chat",), ("/v1/models", "/v1/chat/completions")):
            outcome = await status_and_code(
                closed(allowed), scope_of(path, "GET", headers=[("authorization", f"Bearer {RIGHT}")])
            )
            parts = [one.split("/")[1:] for one in allowed]
            meant = canonical(path, roots(closed(allowed).paths)).split("/")[1:]
            below = any(meant[: len(part)] == part for part in parts)
            assert not (below and outcome[1] == "endpoint_not_allowed")
            assert below or outcome in [
                (403, "endpoint_not_allowed"),
                (403, "scope_not_allowed"),  # of a page
                (404, None),
                (405, "method_not_supported"),
                (307, None),
            ]

    asyncio.run(admitted())


async def test_api_key_endpoints_apply_to_the_websocket():
    headers = [("authorization", f"Bearer {RIGHT}")]
    for allowed, expected in (("/v1/chat", (403, "endpoint_not_allowed")), ("/v1/responses", None)):
        app = create_app(settings("http://127.0.0.1:1", auth=auth_of(RIGHT, endpoints=[allowed])))
        async with app.router.lifespan_context(app):
            if expected:
                assert (
                    await status_and_code(app, scope_of("/v1/responses", kind="websocket", headers=headers)) == expected
                )
            else:
                assert await is_accepted(app, scope_of("/v1/responses", kind="websocket", headers=headers))


async def is_accepted(app, scope):
    """Return True if the application accepts the WebSocket, which is closed at once."""
    steps = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]
    types = []

    async def receive():
        return steps.pop(0)

    async def send(message):
        types.append(message["type"])

    await app(scope, receive, send)
    return types[0] == "websocket.accept"


# Bodies that name two models: a server in Go compares the names of members without regard to case.
CASES = {
    "/v1/chat/completions": {"messages": HELLO_MESSAGES},
    "/v1/messages": {"messages": HELLO_MESSAGES, "max_tokens": 5},
    "/v1/responses": {"input": "Hello"},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/embeddings": {"input": "Hello"},
    "/v1/rerank": {"query": "Hello", "documents": ["Hello"]},
    "/v1/images/generations": {"prompt": "Hello"},
}


@pytest.mark.parametrize("path", CASES)
@pytest.mark.parametrize("name", ["Model", "MODEL", "mod\\u0045l"])
async def test_api_key_reaches_no_other_model_by_the_case_of_a_member(path, name):
    raw = json.dumps({"model": "m", **CASES[path]}).replace('"model"', f'"{name}": "other", "model"')
    async with gateway(HELLO, auth=auth_of(RIGHT, models=["m"])) as site:
        answer = await site.client.post(path, content=raw, headers=bearer(RIGHT))
        assert (answer.status_code, site.upstream.posts) == (400, [])
        assert "Send 'model' alone." in answer.json()["error"]["message"]


OTHERS = {
    "models": ["m", "other"],
    "Fallbacks": [{"model": "other"}],
    "lora_path": "other",
    "extra_body": {"model": "other"},
}


@pytest.mark.parametrize("path", CASES)
@pytest.mark.parametrize("field", OTHERS)
async def test_api_key_reaches_no_other_model_by_another_field(path, field):
    body = {"model": "m", **CASES[path], field: OTHERS[field]}
    async with gateway(HELLO, auth=auth_of(RIGHT, models=["m"])) as site:
        answer = await site.client.post(path, json=body, headers=bearer(RIGHT))
        assert (answer.status_code, site.upstream.posts) == (403, [])
        message = f"'{field}' names the model 'other', which the API key 'ci' is not allowed to use. Leave it out."
        assert answer.json()["error"]["message"].endswith(message)


@pytest.mark.parametrize("models", [None, ["m", "other"], ["m", "other", "third"]])
async def test_api_key_reaches_its_other_models_by_another_field(models):
    body = {"model": "m", "messages": HELLO_MESSAGES, "models": ["other"]}
    async with gateway(HELLO, auth=auth_of(RIGHT, models=models)) as site:
        answer = await site.client.post("/v1/chat/completions", json=body, headers=bearer(RIGHT))
        assert (answer.status_code, site.upstream_body["models"]) == (200, ["other"])


async def test_api_key_reaches_no_other_model_by_a_tool_in_a_message_that_goes_as_it_is():
    body = {"model": "m", "messages": HELLO_MESSAGES, "max_tokens": 5, "tools": [{"type": "advisor", "model": "other"}]}
    async with gateway(HELLO, backend={"kind": "anthropic"}, auth=auth_of(RIGHT, models=["m"])) as site:
        answer = await site.client.post("/v1/messages", json=body, headers=bearer(RIGHT))
        assert (answer.status_code, site.upstream.posts) == (403, [])


@pytest.mark.parametrize(
    ("models", "fallbacks", "kept"),
    [
        (["m"], [{"model": "other"}], False),
        (["m"], "default", False),
        (["m", "other"], [{"model": "other"}], True),
        (["m"], [], True),
        (None, "default", True),
    ],
)
async def test_api_key_leaves_out_the_fallbacks_of_a_message_to_other_models(models, fallbacks, kept):
    """Claude Code sends them by itself, so an error would refuse all of its requests."""
    body = {"model": "m", "messages": HELLO_MESSAGES, "max_tokens": 5, "fallbacks": fallbacks}
    async with gateway(
        whole(message(text("Hi"))), backend={"kind": "anthropic"}, auth=auth_of(RIGHT, models=models)
    ) as site:
        answer = await site.client.post("/v1/messages", json=body, headers=bearer(RIGHT))
        assert (answer.status_code, "fallbacks" in site.upstream_body) == (200, kept)
        assert answer.headers.get("x-gateway-warnings") == (None if kept else "dropped:fallbacks")


# Headers


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([f"Authorization: Bearer {RIGHT}"], 200),
        ([f"AUTHORIZATION: BEARER {RIGHT}"], 200),
        ([f"authorization: bearer   {RIGHT}   "], 200),
        ([f"authorization: \tBearer {RIGHT}\t"], 200),
        ([f"authorization: Bearer \t{RIGHT}"], 200),
        ([f"api-key: {RIGHT}"], 200),
        ([f"authorization: Bearer {RIGHT}", f"authorization: Bearer {WRONG}"], 400),
        ([f"authorization: Bearer {WRONG}", f"authorization: Bearer {RIGHT}"], 400),
        ([f"authorization: Bearer {WRONG}", f"api-key: {RIGHT}"], 401),
        ([f"authorization: Bearer {RIGHT}, Bearer {WRONG}"], 401),
        ([f"authorization: Bearer{RIGHT}"], 401),
        ([f"authorization: Bearer\t{RIGHT}"], 401),
        ([f"authorization: {RIGHT}"], 401),
        ([f"authorization: Bearer {RIGHT.upper()}"], 401),
        ([f"authorization: Bearer {RIGHT} {RIGHT}"], 401),
        ([f"authorization: Bearer {RIGHT}\xa0x"], 401),
        (["authorization: Bearer \xff\xfe\x80"], 401),
        (["authorization: Bearer"], 401),
        (["authorization:"], 401),
        (["api-key:   "], 401),
        ([f"authorization: Bearer {'k' * 50_000}"], 401),
        ([f"authorization: Bearer {'k' * 100_000}"], 431),
        ([f"authorization: Bearer {RIGHT}\0"], 400),
        ([f"authorization: Bearer \0{RIGHT}"], 400),
    ],
)
async def test_api_key_in_any_header_line_is_accepted_or_refused(headers, status):
    async with listening(HELLO, auth=auth_of(RIGHT)) as site:
        assert (await over_socket(site, "GET /v1/models HTTP/1.1", *headers))["status"] == status


@hypothesis(deadline=None)
@given(st.text(st.characters(max_codepoint=255), max_size=40))
async def test_api_key_of_any_text_is_a_401_and_no_failure(shown):
    for header in ("authorization", "api-key"):
        for value in (shown, f"Bearer {shown}"):
            outcome = await status_and_code(closed(), scope_of("/v1/models", "GET", headers=[(header, value)]))
            assert outcome == (401, "invalid_api_key") or RIGHT in value


# Delay


class Time:
    """A fake clock; `delays` are the seconds of each `wait`, which ends at once while `going` is set."""

    def __init__(self):
        self.now, self.delays = 100.0, []
        self.going = asyncio.Event()
        self.going.set()

    async def wait(self, seconds):
        self.delays.append(seconds)
        if seconds:
            await self.going.wait()
            self.now += seconds

    async def until_delayed(self, count):
        """Return when so many delays have begun."""
        await until(lambda: len(self.delays) >= count)


@asynccontextmanager
async def guarded(**auth):
    """Yield a function that sends a key from an address, the fake clock of the delays, and the application."""
    time = Time()
    async with Upstream([HELLO], ()).serving() as upstream:
        known = settings(upstream.url, auth=auth or auth_of(RIGHT))
        app = create_app(known, throttle=AuthThrottle(lambda: time.now, time.wait))

        async def ask(key, address="192.0.2.1"):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=address and (address, 7))
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway", verify=False) as client:
                body = {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
                return await client.post("/v1/chat/completions", json=body, headers=bearer(key) if key else {})

        async with app.router.lifespan_context(app):
            yield ask, time, app


async def test_api_key_that_is_wrong_is_delayed_and_a_right_one_is_not():
    async with guarded() as (ask, time, _):
        for _ in range(14):
            assert problem(await ask(WRONG))[0] == 401
        assert time.delays[:5] == [0] * 5
        assert all(one < other or other == 5 for one, other in zip(time.delays[5:], time.delays[6:], strict=False))
        assert time.delays[5] == pytest.approx(0.1) and time.delays[-1] == 5
        count = len(time.delays)
        assert (await ask(RIGHT)).status_code == 200 and len(time.delays) == count
        assert (await ask(None)).status_code == 401 and len(time.delays) == count, "none was shown"
        await ask(WRONG, "192.0.2.2")
        assert time.delays[-1] == 0
        time.now += 1000
        await ask(WRONG)
        assert time.delays[-1] == 0, "that was long ago"


async def test_api_key_of_another_scope_is_not_delayed():
    async with guarded(keys=[{"name": "a", "key": RIGHT, "scopes": ["admin"]}]) as (ask, time, _):
        assert [(await ask(RIGHT)).status_code for _ in range(9)] == [403] * 9
        assert time.delays == []


async def test_api_key_is_refused_with_429_while_16_of_its_network_wait():
    async with guarded() as (ask, time, _), asyncio.TaskGroup() as tasks:
        for _ in range(5):
            await ask(WRONG, "2001:db8::1")
        time.going.clear()
        waiting = [tasks.create_task(ask(WRONG, f"2001:db8::{count}")) for count in range(16)]
        await time.until_delayed(21)
        for key in (WRONG, RIGHT):
            refused = await ask(key, "2001:db8::ffff:1")
            assert problem(refused)[:3] == (429, "rate_limit_error", "rate_limit_exceeded")
            assert refused.headers["retry-after"] == "5"
        assert (await ask(RIGHT, "2001:db8:0:1::")).status_code == 200
        assert problem(await ask(None, "2001:db8::1"))[0] == 401
        time.going.set()
        assert [(await task).status_code for task in waiting] == [401] * 16
        assert (await ask(RIGHT, "2001:db8::1")).status_code == 200


async def test_api_key_delay_ends_when_its_request_is_cancelled():
    async with guarded() as (ask, time, _):
        for _ in range(5):
            await ask(WRONG)
        time.going.clear()
        waiting = [asyncio.create_task(ask(WRONG)) for _ in range(16)]
        await time.until_delayed(21)
        assert (await ask(RIGHT)).status_code == 429
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert (await ask(RIGHT)).status_code == 200


async def test_api_key_delay_covers_clients_without_an_address():
    async with guarded() as (ask, time, _):
        for _ in range(6):
            await ask(WRONG, None)
        assert time.delays[-1] > 0


async def test_api_key_delay_covers_every_endpoint():
    """No endpoint lets a client try keys without the delay."""
    async with guarded() as (_, time, app):
        ways = [
            scope_of(re.sub(r"\{\w+(:path)?\}", "x", route.path), method)
            for route in app.routes
            if isinstance(route, APIRoute) and route.path not in KEYLESS
            for method in sorted(route.methods)
            if method not in {"GET", "HEAD"} or route.path not in SOCKETS
        ]
        assert len(ways) > 20
        headers = [("authorization", f"Bearer {WRONG}")]
        sockets = [scope_of(path, kind="websocket") for path in SOCKETS]
        for count, scope in enumerate([*ways, *sockets], 1):
            raw = [(name.encode(), value.encode()) for name, value in headers]
            status, code = await status_and_code(app, {**scope, "headers": raw})
            assert status == 401 and code in ("invalid_api_key", "authentication_error"), scope["path"]
            assert len(time.delays) == count, scope["path"]


async def test_api_key_failures_are_logged_once_a_minute_by_address(caplog):
    async with guarded() as (ask, time, _):
        for _ in range(4):
            await ask(WRONG, "evil\nFATAL: all is lost")
        await ask(WRONG, "2001:db8::1")
        time.now += 60
        await ask(WRONG, "evil\nFATAL: all is lost")
    lines = [record.getMessage() for record in caplog.records if record.name == "gateway"]
    assert lines == [
        f"requests with a wrong API key from {address}: {count} since the last report"
        for address, count in (
            (r"'evil\nFATAL: all is lost'", 1),
            ("'2001:db8::/64'", 1),
            (r"'evil\nFATAL: all is lost'", 4),
        )
    ]
    assert all(record.levelname == "WARNING" for record in caplog.records)


async def test_api_key_delay_survives_a_new_config():
    """Each request reaches a new application; the delays go on."""
    time = Time()
    strangers = AuthThrottle(lambda: time.now, time.wait)
    headers = [("authorization", f"Bearer {WRONG}")]
    for _ in range(6):
        app = create_app(settings("http://127.0.0.1:1", auth=auth_of(RIGHT)), throttle=strangers)
        assert (await status_and_code(app, scope_of("/v1/models", "GET", headers=headers)))[0] == 401
    assert time.delays == pytest.approx([0] * 5 + [0.1])


def test_api_key_is_found_by_one_comparison_of_digests():
    """The time of the look-up depends neither on the number of keys nor on the key."""
    looked = []

    class Watched(str):
        __slots__ = ()

        def __hash__(self):
            return super().__hash__()

        def __eq__(self, other):
            looked.append(other)
            return super().__eq__(other)

    keys = [{"name": f"k{count}", "key": f"key-{count}"} for count in range(500)]
    authenticator = Authenticator(Config(auth={"keys": keys}), AuthThrottle())
    authenticator._keys = {Watched(known): key for known, key in authenticator._keys.items()}
    request = httpx.Headers(bearer("key-77"))
    http = scope_of("/v1/models", "GET", headers=request.items())
    assert asyncio.run(authenticator.authenticate(HTTPConnection(http))).name == "k77"
    assert len(looked) == 1


# Reload


@pytest.mark.parametrize("workers", [1, 2])
async def test_api_key_in_a_file_is_replaced_without_a_restart(workers, tmp_path):
    """The folder is replaced by a change of its symbolic link, as Kubernetes does; a running stream goes on."""
    go, link = asyncio.Event(), tmp_path / "secrets"

    def swap(name, text):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(text)
        (tmp_path / "next").symlink_to(tmp_path / name)
        (tmp_path / "next").replace(link)

    swap("one", "key-1\n")
    async with Upstream([paused(go), HELLO], ()).serving() as upstream:
        configuration = config_of(
            upstream.url,
            tmp_path,
            auth=auth_of(["${file:secrets/key}", "key-of-the-change"]),
            server={"watch_seconds": 0.05, "workers": workers},
        )
        async with living(tmp_path, configuration) as one, streaming(one, "key-1") as answer:
            pieces, body = await first(answer, "Hel")
            swap("empty", "\n")
            await one.wait_for("gateway.yaml:1: auth.keys[0].key[0]: should be visible ASCII characters, at least one")
            assert (await post_chat(one, "key-1", stream=True)).status_code == 200, (
                "nothing changes by what is not sound"
            )
            swap("two", "key-2")
            await one.wait_for("the changes apply")
            await taken(one, "key-2", 8 * workers)
            await until_refused(one, "key-1")
            assert (await post_chat(one, "key-of-the-change", stream=True)).status_code == 200
            go.set()
            assert text_of(await rest(pieces, body)) == "Hello"
            await one.wait_for("requests with a wrong API key from '127.0.0.1': ")
            assert "key-1" not in one.output and "key-2" not in one.output


async def taken(one, key, times):
    """Return when the key has been accepted so often in a row, each time over a new connection."""
    async with asyncio.timeout(DEADLINE):
        right = 0
        while right < times:
            async with httpx.AsyncClient(base_url=one.client.base_url, headers=bearer(key), verify=False) as new:
                right = right + 1 if (await new.get("/v1/models")).status_code == 200 else 0


async def test_request_with_two_keys_is_refused():
    async with gateway(HELLO, auth={"keys": ["sk-first-0123456789", "sk-second-0123456789"]}) as site:
        lines = [("authorization", f"Bearer sk-{name}-0123456789") for name in ("first", "second")]
        answer = await site.client.get("/v1/models", headers=lines)
        assert problem(answer) == (400, "invalid_request_error", "invalid_value", None)


async def test_request_with_another_header_twice_is_one_of_its_key():
    async with gateway(HELLO, auth={"keys": ["sk-first-0123456789"]}) as site:
        lines = [("x-note", "a"), ("x-note", "b"), ("authorization", "Bearer sk-first-0123456789")]
        assert (await site.client.get("/v1/models", headers=lines)).status_code == 200
