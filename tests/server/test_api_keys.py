"""Keys: what is known of them, what they are for, and what becomes of those who try others."""

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

from gateway.cli import app as commands
from gateway.config import Config, ConfigError, effective, parse
from gateway.server.app import create_app
from gateway.server.auth import Doorkeeper
from gateway.server.strangers import Strangers
from support.app import HELLO_MESSAGES, bearer, gateway, listening, problem, settings
from support.serve_process import PATIENCE, asked, config_of, first, living, rest, streaming
from support.sse import text_of
from support.upstream import HELLO, Upstream, paused

RIGHT, WRONG = "gw-right-and-long-enough", "gw-wrong-and-long-enough"
DIGEST = f"sha256:{sha256(RIGHT.encode()).hexdigest()}"
VISIBLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1)


def auth_of(key, **more):
    return {"keys": [{"name": "ci", "key": key, **more}]}


def load(auth):
    return parse(json.dumps({"auth": auth}), "g", {}, [])


# What is written down


@pytest.mark.parametrize("written", [RIGHT, DIGEST, DIGEST.upper().replace("SHA", "sha"), [RIGHT], ["old", DIGEST]])
async def test_a_key_or_its_digest_may_be_written_or_several(written):
    async with gateway(HELLO, auth=auth_of(written)) as site:
        assert (await site.client.get("/v1/models", headers=bearer(RIGHT))).status_code == 200
        assert (await site.client.get("/v1/models", headers=bearer("old"))).status_code == (
            200 if "old" in written else 401
        )
        assert (await site.client.get("/v1/models", headers=bearer(DIGEST))).status_code == 401, "it is no key itself"


def test_a_bare_text_may_be_a_digest():
    assert load({"keys": [DIGEST]}) == load({"keys": [RIGHT]})


@hypothesis(deadline=None)
@given(VISIBLE.filter(lambda key: "$" not in key))
def test_the_configuration_has_no_key_as_soon_as_it_is_read(key):
    """Neither in this process, nor in what workers are sent; any key can be written, and its digest means the same."""
    key = f"begin-{key}"
    config = load(auth_of(key))
    assert config == load(auth_of(f"sha256:{sha256(key.encode()).hexdigest()}"))
    assert key.encode() not in pickle.dumps(config)


def test_all_of_them_are_masked_in_what_is_shown():
    shown = effective(load(auth_of([RIGHT, WRONG])))
    assert "    key:\n    - '**********'\n    - '**********'\n" in shown and "sha256" not in shown
    assert DIGEST.removeprefix("sha256:") not in shown + repr(load(auth_of(DIGEST)))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ([{"name": "a", "key": RIGHT}, {"name": "b", "key": DIGEST}], "keys: the same key is there twice"),
        ([{"name": "a", "key": [RIGHT, "x"]}, {"name": "b", "key": ["y", RIGHT]}], "keys: the same key is there twice"),
        ([{"name": "a", "key": [RIGHT, RIGHT]}], "keys: the same key is there twice"),
        ([{"name": "a", "key": []}], "keys[0].key: should have at least one entry"),
        ([{"name": "a", "key": 12345}], "keys[0].key: should be a text; write it in quotes"),
        ([{"name": "a", "key": ["x", None]}], "keys[0].key[1]: should be a text; write it in quotes"),
        ([{"name": "a", "key": ["x", "ä"]}], "keys[0].key[1]: should be visible ASCII characters, at least one"),
        ([{"name": "a", "key": DIGEST[:-1]}], "keys[0].key: should begin otherwise, or be sha256: and 64 hexadecimal digits"),
        ([DIGEST + "0"], "keys[0].key: should begin otherwise, or be sha256: and 64 hexadecimal digits"),
        ([{"name": "a", "key": "x", "endpoints": []}], "keys[0].endpoints: should have at least one entry"),
        *(
            ([{"name": "a", "key": "x", "endpoints": ["/v1", path]}], "keys[0].endpoints[1]: should be a path like /v1/chat/completions")
            for path in ("", "/", "v1", "/v1/", "//v1", "/v1//models", "/v1?a", "/v1 ", "/%2F", "/v1#", "/v1\n")
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_without_the_key(keys, said):
    with pytest.raises(ConfigError) as caught:
        load({"keys": keys})
    (fault,) = map(str, caught.value.faults)
    assert fault == f"g:1: auth.{said}"


# The command


def run(*words, given=None):
    result = CliRunner().invoke(commands, ["key", *words], input=given)
    return result.exit_code, result.stdout, result.stderr


def test_the_command_makes_a_key_and_its_digest():
    code, out, err = run()
    why, key, how, digest = out.splitlines()
    assert (code, err) == (0, "") and why.startswith("# The key: ") and how.startswith("# Its digest: ")
    assert re.fullmatch(r"gw-[A-Za-z0-9_-]{43}", key)
    assert digest == f"sha256:{sha256(key.encode()).hexdigest()}"
    assert load(auth_of(key)) == load(auth_of(digest))
    assert key not in run()[1]


@pytest.mark.parametrize("given", [RIGHT, f"{RIGHT}\n", f"{RIGHT}\r\n", f"{DIGEST}\n"])
def test_the_command_digests_a_key(given):
    assert run("--hash", given=given) == (0, f"{DIGEST}\n", "")


@pytest.mark.parametrize("given", ["", "\n", "two words\n", b"\xff\xfe\n", f"{DIGEST}0"])
def test_the_command_refuses_what_no_client_can_show(given):
    code, out, err = run("--hash", given=given)
    assert (code, out) == (2, "") and "the key on standard input should be" in err


# What a key is for


def scope_of(path, method="POST", kind="http", headers=(), client=("192.0.2.1", 7)):
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return {"type": kind, "method": method, "path": path, "query_string": b"", "headers": raw, "client": client}


async def told(app, scope):
    """The status and the code of the answer to a scope as it is: nothing on the way makes its path another one."""
    steps = [{"type": "websocket.connect" if scope["type"] == "websocket" else "http.request", "body": b"{}"}]
    said = []

    async def receive():
        return steps.pop(0) if steps else await asyncio.Event().wait()

    async def send(message):
        said.append(message)

    await app(scope, receive, send)
    body = b"".join(message.get("body", b"") for message in said[1:])
    return said[0]["status"], json.loads(body)["error"]["code"] if body else None


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
        ("//v1/chat/completions", None),
        ("//v1/embeddings", None),
        ("/v1//embeddings", None),
        ("/v1/./embeddings", None),
        ("/V1/EMBEDDINGS", None),
        ("/v1/embeddings;/v1/chat/completions", None),
        ("/v1/embeddings?/v1/chat/completions", False),
        ("/v1/embeddings%3F/v1/chat/completions", None),
        ("/v1/embeddings%00", None),
        ("/v1/models/..%2Fchat%2Fcompletions", False),
    ],
)  # fmt: skip
async def test_a_key_for_some_endpoints_is_for_no_others(path, allowed):
    """As asked over a socket, with all methods.  None: there is nothing, whoever asks."""
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
    """The status of the answer to a request that is written as it is, and the code of its error."""
    url = site.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    lines = [line, "host: gateway", "connection: close", f"content-length: {len(body)}", *headers]
    writer.write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)
    async with asyncio.timeout(PATIENCE):
        head, _, said = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    status = int(head.split()[1])
    return {"status": status, **(json.loads(said)["error"] if status >= 400 and said[:1] == b"{" else {})}


@cache
def closed(endpoints=None):
    """An application without a backend, for a key of these endpoints."""
    auth = auth_of(RIGHT, **({"endpoints": endpoints} if endpoints else {}))
    return create_app(settings("http://127.0.0.1:1", auth=auth), strangers=Strangers(sleep=at_once))


async def at_once(seconds):
    """Nobody waits."""


@hypothesis(deadline=None)
@given(
    st.lists(
        st.sampled_from(["v1", "chat", "completions", "embeddings", "models", "..", ".", "", "x", "%2F"]), max_size=5
    )
)
def test_paths_are_compared_by_their_segments(segments):
    path = "/" + "/".join(segments)

    async def admitted():
        for allowed in (("/v1/chat",), ("/v1/models", "/v1/chat/completions")):
            said = await told(closed(allowed), scope_of(path, "GET", headers=[("authorization", f"Bearer {RIGHT}")]))
            parts = [one.split("/")[1:] for one in allowed]
            below = any(segments[: len(part)] == part for part in parts)
            assert not (below and said[1] == "endpoint_not_allowed")
            assert below or said in [
                (403, "endpoint_not_allowed"),
                (404, None),
                (405, "method_not_supported"),
                (307, None),
            ]

    asyncio.run(admitted())


async def test_the_websocket_is_an_endpoint_as_well():
    headers = [("authorization", f"Bearer {RIGHT}")]
    for allowed, said in (("/v1/chat", (403, "endpoint_not_allowed")), ("/v1/responses", None)):
        app = create_app(settings("http://127.0.0.1:1", auth=auth_of(RIGHT, endpoints=[allowed])))
        async with app.router.lifespan_context(app):
            if said:
                assert await told(app, scope_of("/v1/responses", kind="websocket", headers=headers)) == said
            else:
                assert await accepted(app, scope_of("/v1/responses", kind="websocket", headers=headers))


async def accepted(app, scope):
    """Whether a connection is taken; it is left at once."""
    steps = [{"type": "websocket.connect"}, {"type": "websocket.disconnect", "code": 1000}]
    said = []

    async def receive():
        return steps.pop(0)

    async def send(message):
        said.append(message["type"])

    await app(scope, receive, send)
    return said[0] == "websocket.accept"


# What can be shown


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([f"Authorization: Bearer {RIGHT}"], 200),
        ([f"AUTHORIZATION: BEARER {RIGHT}"], 200),
        ([f"authorization: bearer   {RIGHT}   "], 200),
        ([f"authorization: \tBearer {RIGHT}\t"], 200),
        ([f"authorization: Bearer \t{RIGHT}"], 200),
        ([f"api-key: {RIGHT}"], 200),
        ([f"authorization: Bearer {RIGHT}", f"authorization: Bearer {WRONG}"], 200),
        ([f"authorization: Bearer {WRONG}", f"authorization: Bearer {RIGHT}"], 401),
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
        ([f"authorization: Bearer {'k' * 100_000}"], 400),
        ([f"authorization: Bearer {RIGHT}\0"], 400),
        ([f"authorization: Bearer \0{RIGHT}"], 400),
    ],
)
async def test_whatever_is_shown_is_right_or_wrong_and_never_a_failure(headers, status):
    async with listening(HELLO, auth=auth_of(RIGHT)) as site:
        assert (await over_socket(site, "GET /v1/models HTTP/1.1", *headers))["status"] == status


@hypothesis(deadline=None)
@given(st.text(st.characters(max_codepoint=255), max_size=40))
async def test_no_text_is_a_failure_even_where_the_server_lets_it_through(shown):
    for header in ("authorization", "api-key"):
        for value in (shown, f"Bearer {shown}"):
            said = await told(closed(), scope_of("/v1/models", "GET", headers=[(header, value)]))
            assert said == (401, "invalid_api_key") or RIGHT in value


# Who tries others


class Time:
    """A clock, and sleep on it: `slept` are the seconds of each, which pass at once unless `held`."""

    def __init__(self):
        self.now, self.slept = 100.0, []
        self.going = asyncio.Event()
        self.going.set()

    async def sleep(self, seconds):
        self.slept.append(seconds)
        if seconds:
            await self.going.wait()
            self.now += seconds

    async def asleep(self, count):
        async with asyncio.timeout(PATIENCE):
            while len(self.slept) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@asynccontextmanager
async def guarded(**auth):
    """A function that asks with a key from an address, and the time that it takes."""
    time = Time()
    async with Upstream([HELLO], ()).serving() as upstream:
        known = settings(upstream.url, auth=auth or auth_of(RIGHT))
        app = create_app(known, strangers=Strangers(lambda: time.now, time.sleep))

        async def ask(key, address="192.0.2.1"):
            transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=address and (address, 7))
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway", verify=False) as client:
                body = {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
                return await client.post("/v1/chat/completions", json=body, headers=bearer(key) if key else {})

        async with app.router.lifespan_context(app):
            yield ask, time, app


async def test_wrong_keys_are_answered_later_and_later_and_right_ones_at_once():
    async with guarded() as (ask, time, _):
        for _ in range(14):
            assert problem(await ask(WRONG))[0] == 401
        assert time.slept[:5] == [0] * 5
        assert all(one < other or other == 5 for one, other in zip(time.slept[5:], time.slept[6:], strict=False))
        assert time.slept[5] == pytest.approx(0.1) and time.slept[-1] == 5
        count = len(time.slept)
        assert (await ask(RIGHT)).status_code == 200 and len(time.slept) == count
        assert (await ask(None)).status_code == 401 and len(time.slept) == count, "none was shown"
        await ask(WRONG, "192.0.2.2")
        assert time.slept[-1] == 0
        time.now += 1000
        await ask(WRONG)
        assert time.slept[-1] == 0, "that was long ago"


async def test_a_key_that_is_not_for_this_is_no_wrong_one():
    async with guarded(keys=[{"name": "a", "key": RIGHT, "scopes": ["admin"]}]) as (ask, time, _):
        assert [(await ask(RIGHT)).status_code for _ in range(9)] == [403] * 9
        assert time.slept == []


async def test_while_many_of_an_address_wait_no_key_of_it_is_looked_at():
    async with guarded() as (ask, time, _), asyncio.TaskGroup() as tasks:
        for _ in range(5):
            await ask(WRONG, "2001:db8::1")
        time.going.clear()
        waiting = [tasks.create_task(ask(WRONG, f"2001:db8::{count}")) for count in range(16)]
        await time.asleep(21)
        for key in (WRONG, RIGHT):
            refused = await ask(key, "2001:db8::ffff:1")
            assert problem(refused)[:3] == (429, "rate_limit_error", "rate_limit_exceeded")
            assert refused.headers["retry-after"] == "5"
        assert (await ask(RIGHT, "2001:db8:0:1::")).status_code == 200
        assert problem(await ask(None, "2001:db8::1"))[0] == 401
        time.going.set()
        assert [(await task).status_code for task in waiting] == [401] * 16
        assert (await ask(RIGHT, "2001:db8::1")).status_code == 200


async def test_who_is_cancelled_waits_no_more():
    async with guarded() as (ask, time, _):
        for _ in range(5):
            await ask(WRONG)
        time.going.clear()
        waiting = [asyncio.create_task(ask(WRONG)) for _ in range(16)]
        await time.asleep(21)
        assert (await ask(RIGHT)).status_code == 429
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert (await ask(RIGHT)).status_code == 200


async def test_who_is_not_known_by_an_address_is_one_client_with_all_others():
    async with guarded() as (ask, time, _):
        for _ in range(6):
            await ask(WRONG, None)
        assert time.slept[-1] > 0


async def test_every_way_in_is_slowed():
    """So that there is no other one to try keys."""
    async with guarded() as (_, time, app):
        ways = [
            scope_of(re.sub(r"\{\w+(:path)?\}", "x", route.path), method)
            for route in app.routes
            if isinstance(route, APIRoute) and route.path not in ("/health", "/ready")
            for method in route.methods
            if (method, route.path) != ("GET", "/v1/responses")
        ]
        assert len(ways) > 20
        headers = [("authorization", f"Bearer {WRONG}")]
        for count, scope in enumerate([*ways, scope_of("/v1/responses", kind="websocket")], 1):
            raw = [(name.encode(), value.encode()) for name, value in headers]
            assert await told(app, {**scope, "headers": raw}) == (401, "invalid_api_key"), scope["path"]
            assert len(time.slept) == count, scope["path"]


async def test_they_are_told_to_the_log_once_a_minute_and_by_address_only(caplog):
    async with guarded() as (ask, time, _):
        for _ in range(4):
            await ask(WRONG, "evil\nFATAL: all is lost")
        await ask(WRONG, "2001:db8::1")
        time.now += 60
        await ask(WRONG, "evil\nFATAL: all is lost")
    lines = [record.getMessage() for record in caplog.records if record.name == "gateway"]
    assert lines == [
        f"wrong API keys came from {address}: {count} since the last word of them"
        for address, count in (
            (r"'evil\nFATAL: all is lost'", 1),
            ("'2001:db8::/64'", 1),
            (r"'evil\nFATAL: all is lost'", 4),
        )
    ]
    assert all(record.levelname == "WARNING" for record in caplog.records)


async def test_a_new_configuration_forgets_nobody():
    """Whatever generation of the application it is that they come to."""
    time = Time()
    strangers = Strangers(lambda: time.now, time.sleep)
    headers = [("authorization", f"Bearer {WRONG}")]
    for _ in range(6):
        app = create_app(settings("http://127.0.0.1:1", auth=auth_of(RIGHT)), strangers=strangers)
        assert (await told(app, scope_of("/v1/models", "GET", headers=headers)))[0] == 401
    assert time.slept == pytest.approx([0] * 5 + [0.1])


def test_one_among_many_is_found_by_its_digest_without_looking_at_the_others():
    """So that the time is the same for any number of keys, and for any key."""
    looked = []

    class Watched(str):
        __slots__ = ()

        def __hash__(self):
            return super().__hash__()

        def __eq__(self, other):
            looked.append(other)
            return super().__eq__(other)

    keys = [{"name": f"k{count}", "key": f"key-{count}"} for count in range(500)]
    door = Doorkeeper(Config(auth={"keys": keys}), Strangers())
    door._keys = {Watched(known): key for known, key in door._keys.items()}
    request = httpx.Headers(bearer("key-77"))
    http = scope_of("/v1/models", "GET", headers=request.items())
    assert asyncio.run(door.admit(HTTPConnection(http))).name == "k77"
    assert len(looked) == 1


# While it runs


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_key_in_a_file_is_changed_without_a_restart_or_a_gap(workers, tmp_path):
    """A folder is swapped by its link, as Kubernetes does; a stream that runs goes on."""
    go, link = asyncio.Event(), tmp_path / "secrets"

    def swap(name, text):
        (tmp_path / name).mkdir()
        (tmp_path / name / "key").write_text(text)
        (tmp_path / "next").symlink_to(tmp_path / name)
        (tmp_path / "next").replace(link)

    swap("one", "key-1\n")
    async with Upstream([paused(go), HELLO], ()).serving() as upstream:
        said = config_of(
            upstream.url,
            tmp_path,
            auth=auth_of(["${file:secrets/key}", "key-of-the-change"]),
            server={"watch_seconds": 0.05, "workers": workers},
        )
        async with living(tmp_path, said) as one, streaming(one, "key-1") as answer:
            pieces, heard = await first(answer, "Hel")
            swap("empty", "\n")
            await one.says("gateway.yaml:1: auth.keys[0].key[0]: should be visible ASCII characters, at least one")
            assert (await asked(one, "key-1", stream=True)).status_code == 200, "nothing changes by what is not sound"
            swap("two", "key-2")
            await one.says("what is new holds")
            await taken(one, "key-2", 8 * workers)
            assert problem(await asked(one, "key-1"))[0] == 401
            assert (await asked(one, "key-of-the-change", stream=True)).status_code == 200
            go.set()
            assert text_of(await rest(pieces, heard)) == "Hello"
            await one.says("wrong API keys came from '127.0.0.1': ")
            assert "key-1" not in one.heard and "key-2" not in one.heard


async def taken(one, key, times):
    """Return when it has been let in so often in a row, by whoever answers."""
    async with asyncio.timeout(PATIENCE):
        right = 0
        while right < times:
            async with httpx.AsyncClient(base_url=one.client.base_url, headers=bearer(key), verify=False) as new:
                right = right + 1 if (await new.get("/v1/models")).status_code == 200 else 0
