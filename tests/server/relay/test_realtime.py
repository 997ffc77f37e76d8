"""Test speech sessions, which are WebSockets that are passed on."""

import asyncio
import contextlib
import json
import ssl

import pytest
from openai import AsyncOpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.server.upstream import passed_socket
from gateway.server.upstream.passed_socket import Close
from support.app import bearer
from support.metrics import scrape
from support.otlp_collector import collecting
from support.realtime import PATH, echo, session, speaking
from support.recordings import recorded, recordings
from support.tls import CA
from support.wait import DEADLINE, idle, until

BAD, MESSAGES = "invalid_request_error", 400
SESSION_UPDATE = {"type": "session.update", "session": {"voice": "é"}}


async def refusal(site, path=f"{PATH}?model=m", **options):
    """Return status, type, code and param of the error that refuses a session."""
    with pytest.raises(InvalidStatus) as info:
        await session(site, path, **options)
    error = json.loads(info.value.response.body)["error"]
    return info.value.response.status_code, error["type"], error["code"], error["param"]


async def closed(socket):
    """Return the close that the client gets, and the messages before it."""
    messages = []
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(DEADLINE):
            while True:
                messages.append(await socket.recv())
    return socket.close_code, socket.close_reason, messages


@contextlib.asynccontextmanager
async def answering(data):
    """Yield the URL of a server that answers each connection with these bytes; with None not at all."""

    async def handle(reader, writer):
        if data is None:
            await done.wait()
        else:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
        writer.close()

    done = asyncio.Event()
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    done.set()
    server.close()


# Messages


@pytest.mark.parametrize("path", [f"{PATH}?model=m&intent=t", "/realtime?intent=t&model=m"])
async def test_realtime_session_passes_messages_in_both_directions(path):
    async with speaking(echo, model={"upstream_model": "large"}) as site:
        offered = ["realtime", "openai-insecure-api-key.secret"]
        async with session(site, path, subprotocols=offered, additional_headers={"x-gateway-debug": "1"}) as socket:
            for message in (json.dumps(SESSION_UPDATE), b"\x00\xff", "", "x" * 3_000_000):
                await socket.send(message)
                assert await socket.recv() == message
        request = site.speakers[0].sockets[0].request
    assert sorted(request.path.partition("?")[2].split("&")) == ["intent=t", "model=large"]
    assert request.headers["authorization"].startswith("Bearer ")
    assert request.headers["sec-websocket-protocol"] == socket.subprotocol == "realtime"
    assert socket.response.headers["x-gateway-backend"] == "b0" and socket.response.headers["x-request-id"]


async def test_realtime_session_is_below_the_url_of_an_api():
    async with speaking(echo, path="/v2/openai") as site, session(site):
        pass
    assert site.speakers[0].sockets[0].request.path == "/v2/openai/realtime?model=m"


def naming(model, **more):
    """Return a message that names a model."""
    return json.dumps({"type": "session.update", "session": {"model": model, **more}})


RESTRICTED = {"keys": [{"name": "ci", "key": "gw-right-and-long-enough", "models": ["m", "whisper"]}]}


@pytest.mark.parametrize(
    "message",
    [naming("other"), naming("other").replace("model", "Model"), naming("m", voice={"model": "other"}).encode()],
)
async def test_realtime_session_of_a_key_names_no_model_that_the_key_excludes(message):
    options = {"additional_headers": bearer("gw-right-and-long-enough")}
    async with speaking(echo, model={"upstream_model": "large"}, auth=RESTRICTED) as site:
        async with session(site, **options) as socket:
            for allowed in (naming("large"), naming("m", transcription={"model": "whisper"}), "no model: {"):
                await socket.send(allowed)
                assert await socket.recv() == allowed
            await socket.send(message)
            code, reason, (error,) = await closed(socket)
        assert (code, reason) == (1008, "API key 'ci' is not allowed to use the model 'other'.")
        assert json.loads(error)["error"]["code"] == "model_not_allowed"
        await until(lambda: site.speakers[0].sockets[0].close_code == 1008)


async def test_realtime_session_without_a_restriction_names_any_model():
    async with speaking(echo) as site, session(site) as socket:
        await socket.send(naming("other"))
        assert await socket.recv() == naming("other")


async def test_realtime_session_of_the_openai_sdk():
    async def speak(socket):
        await socket.send(json.dumps({"type": "session.created", "event_id": "e1", "session": {"type": "realtime"}}))
        event = json.loads(await socket.recv())
        await socket.send(json.dumps({"type": "session.updated", "event_id": "e2", "session": event["session"]}))

    async with (
        speaking(speak) as site,
        AsyncOpenAI(base_url=f"{site.client.base_url}/v1", api_key="none") as client,
        client.realtime.connect(model="m") as connection,
    ):
        assert (await connection.recv()).type == "session.created"
        await connection.session.update(session={"type": "realtime", "instructions": "Be brief."})
        updated = await connection.recv()
    assert (updated.type, updated.session.instructions) == ("session.updated", "Be brief.")


async def test_realtime_session_with_a_backend_behind_tls():
    context, trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    CA.issue_cert("localhost").configure_cert(context)
    CA.configure_trust(trusted)
    async with speaking(echo, ssl=context) as site:
        site.app.state.directory.backends["b0"].tls = trusted
        async with session(site) as socket:
            await socket.send("Hello")
            assert await socket.recv() == "Hello"


@pytest.mark.parametrize(
    ("sent", "received"), [((1000, ""), (1000, "")), ((3001, "bye"), (3001, "bye")), ((), (1000, ""))]
)
async def test_realtime_close_reaches_the_other_side(sent, received):
    async with speaking(echo) as site:
        async with session(site) as socket:
            socket.protocol.send_close(*sent)
            socket.transport.write(b"".join(socket.protocol.data_to_send()))
        await until(lambda: site.speakers[0].sockets[0].close_code, received[0])
        backend = site.speakers[0].sockets[0]
        assert (backend.close_code, backend.close_reason) == received
        await until(lambda: site.app.state.directory.backends["b0"].limiter.queue.active, 0)


@pytest.mark.parametrize("sent", [(1000, ""), (1001, "idle"), (1008, "no"), (4000, "own")])
async def test_realtime_close_of_the_backend_reaches_the_client(sent):
    async def handle(socket):
        await socket.send("last")
        await socket.close(*sent)

    async with speaking(handle) as site, session(site) as socket:
        assert await closed(socket) == (*sent, ["last"])


def test_realtime_close_fits_into_a_frame():
    assert Close(1006, "é" * 100).sendable() == Close(1000, "é" * 61)
    assert Close(4999, "x").sendable() == Close(4999, "x")


async def test_realtime_session_ends_with_a_client_that_is_lost():
    async with speaking(echo) as site:
        socket = await session(site)
        socket.transport.abort()
        await until(lambda: site.speakers[0].sockets[0].close_code, 1001)
        await until(lambda: site.app.state.directory.backends["b0"].limiter.queue.active, 0)
        assert (await scrape(site)).sum("gateway_requests_total", endpoint=PATH, status="499") == 1


class Flow:
    """Messages that a side sends until the other side does not read.  sent: their number."""

    def __init__(self):
        self.sent = 0

    async def pour(self, socket):
        """Send all messages."""
        for _ in range(MESSAGES):
            await socket.send("x" * 100_000)
            self.sent += 1

    async def stuck(self):
        """Return the number of messages once no more can be sent."""
        seen = -1
        while not 0 < self.sent == seen:
            seen = self.sent
            await idle(0.2)
        return seen


async def drain(socket):
    """Read all messages."""
    for _ in range(MESSAGES):
        await socket.recv()


async def test_realtime_client_that_does_not_read_holds_the_backend_back():
    flow = Flow()
    async with speaking(flow.pour) as site, session(site) as socket:
        assert await flow.stuck() < MESSAGES // 2
        await drain(socket)


async def test_realtime_backend_that_does_not_read_holds_the_client_back():
    flow, gate = Flow(), asyncio.Event()

    async def wait(socket):
        socket.transport.pause_reading()
        await gate.wait()
        socket.transport.resume_reading()
        await drain(socket)

    async with speaking(wait) as site, session(site) as socket:
        sent = asyncio.create_task(flow.pour(socket))
        assert await flow.stuck() < MESSAGES // 2
        gate.set()
        await sent
        assert flow.sent == MESSAGES


# Errors before the upgrade


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PATH, (400, BAD, "missing_required_parameter", "model")),
        (f"{PATH}?model=other", (400, BAD, "unsupported_value", "model")),
    ],
)
async def test_realtime_session_without_a_model_that_speaks_is_refused(path, expected):
    async with speaking(echo, more_models={"other": {"backends": ["up"]}}, up={"kind": "ollama"}) as site:
        assert await refusal(site, path) == expected
        assert not site.speakers[0].sockets


async def test_realtime_session_is_subject_to_keys_and_limits():
    keys = [
        {"name": "a", "key": "key-of-a", "endpoints": ["/v1/chat"]},
        {"name": "b", "key": "key-of-b", "models": ["other"]},
        {"name": "c", "key": "key-of-c", "limits": {"requests_per_minute": 1}},
    ]
    async with speaking(echo, auth={"keys": keys}) as site:
        found = [await refusal(site, additional_headers=bearer(f"key-of-{one}")) for one in "xab"]
        assert [one[::2] for one in found] == [
            (401, "invalid_api_key"),
            (403, "endpoint_not_allowed"),
            (403, "model_not_allowed"),
        ]
        async with session(site, additional_headers=bearer("key-of-c")) as socket:
            assert socket.response.headers["x-ratelimit-remaining-requests"] == "0"
        assert (await refusal(site, additional_headers=bearer("key-of-c")))[0] == 429


async def test_realtime_request_without_an_upgrade_is_refused():
    async with speaking(echo) as site:
        answer = await site.client.get(f"{PATH}?model=m")
        assert (answer.status_code, answer.json()["error"]["type"]) == (426, BAD)


async def test_realtime_session_counts_against_the_concurrency_limit():
    async with speaking(echo, limits={"concurrent": 1}) as site, session(site) as socket:
        assert (await refusal(site))[::2] == (503, "server_is_overloaded")
        await socket.close()
        await until(lambda: site.app.state.directory.backends["b0"].limiter.queue.active, 0)


async def test_realtime_session_waits_for_its_slot_and_leaves_with_its_client():
    async with speaking(echo, backend={"concurrent": 1}) as site:
        turns = site.app.state.directory.backends["b0"].limiter.queue
        async with session(site) as first:
            waiting, leaving = (asyncio.create_task(session(site).connect()) for _ in range(2))
            await until(lambda: turns.waiting, 2)
            leaving.cancel()
            await until(lambda: turns.waiting, 1)
            await first.close()
        async with await waiting as second:
            await second.send("Hello")
            assert await second.recv() == "Hello"


# Failures


async def test_realtime_session_goes_to_another_backend_after_a_failure():
    refusing = [False, True]

    def refuse(socket, request):
        return socket.respond(503, "busy") if refusing.pop() else None

    async with (
        speaking(echo, echo, refuse=refuse) as site,
        session(site, additional_headers={"x-gateway-debug": "1"}) as socket,
    ):
        assert socket.response.headers["x-gateway-backend"] == "b1"


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"no http\r\n\r\n", 502, "upstream_error"),
        (b"", 502, "upstream_error"),
        (b"HTTP/1.1 101 Yes\r\nupgrade: websocket\r\n\r\n", 502, "upstream_error"),
        (b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n", 400, "unsupported_value"),
        (b"HTTP/1.1 307 No\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", 502, "upstream_error"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", 502, "upstream_error"),
        (None, 504, "upstream_timeout"),
    ],
)
async def test_realtime_backend_that_opens_no_websocket_is_reported(data, status, code, tmp_path):
    with collecting() as collector:
        sections = {"tracing": {"enabled": True, "url": collector.url}, **recorded(tmp_path)}
        async with answering(data) as url:
            backend = {"timeouts": {"first_byte": 60 if data is not None else 0.1}}
            async with speaking(urls=[url], backend=backend, **sections) as site:
                assert (await refusal(site))[::2] == (status, code)
        assert collector.of("server")[0].name == f"GET {PATH}"
    assert recordings(tmp_path)


async def test_realtime_backend_that_cannot_be_reached_is_reported():
    async with speaking(urls=["http://127.0.0.1:1"]) as site:
        assert (await refusal(site))[2] == "upstream_unreachable"


async def test_realtime_backend_that_does_not_answer_to_tls_times_out():
    async with answering(None) as url:
        backend = {"timeouts": {"connect": 0.1}}
        async with speaking(urls=[url.replace("http", "https")], backend=backend) as site:
            assert (await refusal(site))[2] == "upstream_timeout"


async def test_realtime_session_that_breaks_ends_with_an_error(caplog):
    async def handle(socket):
        await socket.send("begun")
        socket.transport.abort()

    async with speaking(handle) as site, session(site) as socket:
        code, reason, (begun, error) = await closed(socket)
        assert (code, reason, begun) == (1011, "Backend 'b0' closed the connection without a close.", "begun")
        event = json.loads(error)
        assert (event["type"], event["error"]["code"]) == ("error", "upstream_lost")
        await until(lambda: "backend b0: upstream_lost" in caplog.text)
        await until(lambda: site.app.state.directory.backends["b0"].limiter.queue.active, 0)
        assert (await scrape(site)).sum("gateway_requests_total", endpoint=PATH, status="502") == 1


async def test_realtime_message_that_is_too_large_ends_the_session(monkeypatch):
    monkeypatch.setattr(passed_socket, "_MAX_MESSAGE", 1000)
    async with speaking(lambda socket: socket.send("x" * 1001)) as site, session(site) as socket:
        code, _, (error,) = await closed(socket)
    assert (code, json.loads(error)["error"]["code"]) == (1011, "upstream_error")


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"idle": 0.1}, "No message was sent in the session for 0.1 s (timeouts.idle)."),
        ({"total": 0.1}, "The session was not closed after 0.1 s (timeouts.total)."),
    ],
)
async def test_realtime_session_ends_with_its_timeout(times, text):
    async with speaking(echo, backend={"timeouts": times}) as site, session(site) as socket:
        code, reason, (error,) = await closed(socket)
    assert (code, reason, json.loads(error)["error"]["message"]) == (1001, text, text)


async def test_realtime_session_is_closed_when_the_gateway_stops():
    async with speaking(echo) as site:
        async with session(site) as socket:
            await socket.send("Hello")
            await socket.recv()
            await site.app.state.sockets.close()
            await site.app.state.sockets.close()  # as it may come twice
            assert (await closed(socket))[:2] == (1012, "The gateway is stopping.")
            await until(lambda: site.speakers[0].sockets[0].close_code, 1012)
        assert (await refusal(site))[0] == 503


# What is observed


async def test_realtime_session_is_counted_with_the_tokens_of_its_responses():
    done = {"type": "response.done", "response": {"usage": {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}}}
    async with speaking(echo) as site:
        async with session(site) as socket:
            for message in (json.dumps(done), '{"usage": 5}', json.dumps(done)):
                await socket.send(message)
                await socket.recv()
        await until(lambda: site.app.state.directory.backends["b0"].limiter.queue.active, 0)
        metrics = await scrape(site)
    assert metrics.sum("gateway_requests_total", endpoint=PATH, status="101", model="m", backend="b0") == 1
    assert metrics.sum("gateway_tokens_total", model="m", kind="output") == 8


async def test_realtime_session_is_refused_once_its_tokens_are_used():
    used = json.dumps({"type": "response.done", "response": {"usage": {"input_tokens": 8, "output_tokens": 2}}})
    async with speaking(echo, model={"limits": {"tokens_per_day": 10}}) as site:
        async with session(site) as socket:
            await socket.send(used)
            await socket.recv()
        await until(lambda: site.app.state.directory.backends["b0"].limiter.queue.active, 0)
        assert (await refusal(site))[0] == 429


USED = json.dumps({"type": "response.done", "response": {"usage": {"input_tokens": 8, "output_tokens": 2}}})


async def refused_amid(socket, text="next"):
    """Return the code of the error that ends a session at its next message, and the code of the close."""
    await socket.send(text)
    code, _, (message,) = await closed(socket)
    return json.loads(message)["error"]["code"], code


async def test_realtime_session_ends_once_its_tokens_are_used():
    """A session may last for ever, so each response in it is a request for the limits."""
    limits = {"tokens_per_day": 25, "concurrent": 1}
    auth = {"keys": [{"name": "a", "key": "key-of-a", "limits": limits}]}
    async with speaking(echo, auth=auth) as site, session(site, additional_headers=bearer("key-of-a")) as socket:
        for _ in range(3):
            await socket.send(USED)
            assert await socket.recv() == USED
        assert await refused_amid(socket) == ("rate_limit_exceeded", 1008)
        await until(lambda: site.app.state.directory.backends["b0"].limiter.queue.active, 0)
        assert (await refusal(site, additional_headers=bearer("key-of-a")))[0] == 429
        assert len(site.speakers[0].sockets) == 1


async def test_realtime_session_counts_responses_that_end_before_the_next_message():
    async def speak(socket):
        async for _ in socket:
            await socket.send(USED)
            await socket.send(USED)

    async with speaking(speak, model={"limits": {"tokens_per_day": 20}}) as site, session(site) as socket:
        await socket.send("a")
        assert [await socket.recv(), await socket.recv()] == [USED, USED]
        assert await refused_amid(socket) == ("rate_limit_exceeded", 1008)


async def test_realtime_session_ends_once_its_key_is_revoked():
    root = bearer("key-of-the-root")
    auth = {"stored_keys": True, "keys": [{"name": "root", "key": "key-of-the-root", "scopes": ["admin"]}]}
    async with speaking(echo, auth=auth) as site:
        key = (await site.client.post("/admin/keys", json={"name": "ann"}, headers=root)).json()["key"]
        async with session(site, additional_headers=bearer(key)) as socket:
            await socket.send(USED)
            await socket.recv()
            assert (await site.client.delete("/admin/keys/ann", headers=root)).status_code == 200
            assert await refused_amid(socket) == ("invalid_api_key", 1008)


async def test_realtime_session_is_traced_and_recorded_by_lengths(tmp_path):
    with collecting() as collector:
        sections = {"tracing": {"enabled": True, "url": collector.url}, **recorded(tmp_path)}
        async with speaking(echo, model={"upstream_model": "large"}, **sections) as site:
            async with session(site) as socket:
                await socket.send("Hello")
                await socket.recv()
            assert "traceparent" in site.speakers[0].sockets[0].request.headers
        (request,), (attempt,) = collector.of("server"), collector.of("client")
    assert (request.name, attempt.name) == (f"GET {PATH}", "realtime large")
    (recording,) = recordings(tmp_path)
    sent = [entry.data for entry in recording.entries if type(entry).__name__ == "ResponseDataEntry"]
    assert sent == [b"[5 bytes]"]
