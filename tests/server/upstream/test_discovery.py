"""Test the discovery of model servers on this machine by their responses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.backends.kinds import ROWS
from gateway.config import build_config
from gateway.server.upstream.discovery import PORTS, SECONDS, DiscoveredServer, discover, discovered_config, identify
from support.wait import until

ERROR = '{"type": "error", "error": {"type": "invalid_request_error", "message": "anthropic-version: required"}}'
MESSAGES_LIST = '{"data": [{"type": "model", "id": "m1"}, {"type": "model", "id": "m2"}], "has_more": false}'
VERSIONED = " anthropic-version"  # after a path: the response to a request with this header
LIST = '{"object": "list", "data": [{"id": "m1", "owned_by": "%s"}, {"id": "m2"}]}'
KEYED = '{"error": "Unauthorized"}'
LOADING = '{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}'
FORBIDDEN = "<html>Forbidden</html>"
STATUSES = {
    ERROR: "400 Bad Request",
    KEYED: "401 Unauthorized",
    FORBIDDEN: "403 Forbidden",
    LOADING: "503 Service Unavailable",
}


def response(text: str | None, header: str) -> bytes:
    """Return a response with this body and its status, or a 404."""
    status, body = (
        ("404 Not Found", '{"detail": "Not Found"}') if text is None else (STATUSES.get(text, "200 OK"), text)
    )
    return f"HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode()


@asynccontextmanager
async def server(
    answers: dict[str, str], header: str = "x-a: b", go: asyncio.Event | None = None
) -> AsyncIterator[tuple[int, list[str]]]:
    """Serve these paths, and 404 for others; yield the port and the requested paths.  go: answers wait for it."""
    paths: list[str] = []
    gone, answering = asyncio.Event(), set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.current_task())
        asyncio.current_task().add_done_callback(answering.discard)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        path = head.split()[1]
        paths.append(path)
        versioned = answers.get(path + VERSIONED) if VERSIONED.strip() in head else None
        if go:
            await until(lambda: go.is_set() or gone.is_set())
        writer.write(response(versioned or answers.get(path), header))
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1], paths
        gone.set()
        await until(lambda: not answering)


@pytest.mark.parametrize(
    ("answers", "header", "expected", "kind"),
    [
        ({"/v1/models": LIST % "library", "/api/version": '{"version": "0.30.1"}'}, "x-a: b", "ollama", "ollama"),
        ({"/v1/models": LIST % "vllm"}, "server: uvicorn", "vllm", "vllm"),
        ({"/v1/models": LIST % "me", "/version": '{"version": "0.33.0"}'}, "server: uvicorn", "vllm", "vllm"),
        ({"/v1/models": LIST % "llamacpp"}, "x-a: b", "llamacpp", "llamacpp"),
        ({"/v1/models": LIST % "me"}, "Server: llama.cpp", "llamacpp", "llamacpp"),
        ({"/v1/models": LIST % "me", "/props": "{}"}, "x-a: b", "llamacpp", "llamacpp"),
        ({"/v1/models": LIST % "organization_owner"}, "x-a: b", "lmstudio", "lmstudio"),
        ({"/v1/models": LIST % "me", "/api/v0/models": '{"data": []}'}, "x-a: b", "lmstudio", "lmstudio"),
        ({"/v1/models": LIST % "sglang"}, "x-a: b", "sglang", "sglang"),
        ({"/v1/models": LIST % "me", "/get_server_info": "{}"}, "x-a: b", "sglang", "sglang"),
        (
            {"/v1/models": LIST % "me", "/openapi.json": '{"paths": {"/load_model": {}}}'},
            "server: uvicorn",
            "vllm",
            "transformers",
        ),
        ({"/v1/models": LIST % "me", "/openapi.json": '{"paths": {"/load": {}}}'}, "x-a: b", "vllm", "openai"),
        # On another's port it is what it says it is, and without a tell-tale just a server.
        ({"/v1/models": LIST % "llamacpp", "/version": "{}"}, "x-a: b", "vllm", "llamacpp"),
        ({"/v1/models": LIST % "me", "/version": "1.0"}, "x-a: b", "vllm", "openai"),
        ({"/v1/models": LIST % "me", "/version": "{}"}, "x-a: b", "ollama", "openai"),
        # The Messages API: by the form of the list, of an error, or by the only endpoint of two.
        ({"/v1/models": MESSAGES_LIST}, "x-a: b", "vllm", "anthropic"),
        ({"/v1/models": ERROR, f"/v1/models{VERSIONED}": MESSAGES_LIST}, "x-a: b", "llamacpp", "anthropic"),
        ({"/v1/models": LIST % "me", "/v1/messages": ERROR}, "x-a: b", "vllm", "anthropic"),
        ({"/v1/models": MESSAGES_LIST.replace('"id"', '"object": "model", "id"')}, "x-a: b", "vllm", "openai"),
        ({"/v1/models": LIST % "me", "/v1/messages": ERROR, "/v1/chat/completions": ERROR}, "x-a: b", "vllm", "openai"),
    ],
)
async def test_discovery_knows_a_backend_by_its_signature(answers, header, expected, kind):
    async with server(answers, header) as (port, _):
        assert await discover({port: expected}, seconds=60) == [
            DiscoveredServer(kind, f"http://127.0.0.1:{port}", ("m1", "m2"))
        ]


async def test_discovery_identifies_a_url_without_a_model_list():
    async with server({"/openapi.json": '{"paths": {"/v1/models": {}, "/load_model": {}}}'}) as (port, _):
        assert await identify(f"http://127.0.0.1:{port}") == "transformers"
    async with server({"/openapi.json": '["/load_model"]'}) as (port, _):
        assert await identify(f"http://127.0.0.1:{port}") == "openai"


async def test_discovery_identifies_a_silent_url_as_openai():
    async with server({}, go=asyncio.Event()) as (port, _):
        assert await identify(f"http://127.0.0.1:{port}", seconds=0.01) == "openai"


@pytest.mark.parametrize("answers", [{"/v1/models": MESSAGES_LIST}, {"/v1/models": ERROR}, {"/v1/messages": ERROR}])
async def test_discovery_identifies_a_messages_server(answers):
    async with server(answers) as (port, _):
        assert await identify(f"http://127.0.0.1:{port}") == "anthropic"


async def test_discovery_ignores_a_messages_server_that_wants_an_api_key():
    async with server({"/v1/models": ERROR}) as (port, paths):
        assert await discover({port: "vllm"}, seconds=60) == []
        assert paths == ["/v1/models"] * 2


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/v1/models": "<html>it works</html>"},
        {"/v1/models": '{"models": []}'},
        {"/v1/models": '{"data": {"id": "m"}}'},
        {"/v1/models": "[]"},
        {"/v1/models": FORBIDDEN},
    ],
)
async def test_discovery_ignores_other_http_servers(answers):
    async with server(answers) as (port, paths):
        assert await discover({port: "vllm"}, seconds=60) == []
        assert paths == ["/v1/models"]


@pytest.mark.parametrize(
    ("answer", "header", "kind", "problem"),
    [
        (KEYED, "x-a: b", "vllm", "the server needs an API key (HTTP 401); set backends.vllm.api_key"),
        (LOADING, "server: llama.cpp", "llamacpp", "the server is loading or overloaded (HTTP 503)"),
    ],
)
async def test_discovery_finds_a_backend_that_does_not_list_its_models_yet(answer, header, kind, problem):
    async with server({"/v1/models": answer}, header) as (port, paths):
        assert await discover({port: "vllm"}, seconds=60) == [
            DiscoveredServer(kind, f"http://127.0.0.1:{port}", (), problem)
        ]
        assert paths == ["/v1/models"]


@pytest.mark.parametrize("data", ["[]", "null"])
async def test_discovery_finds_a_backend_without_models(data):
    async with server({"/v1/models": f'{{"data": {data}}}', "/api/version": "{}"}) as (port, _):
        assert await discover({port: "ollama"}, seconds=60) == [
            DiscoveredServer("ollama", f"http://127.0.0.1:{port}", ())
        ]


async def test_discovery_ignores_other_protocols():
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with listening:
        assert await discover({listening.sockets[0].getsockname()[1]: "vllm"}, seconds=60) == []


async def test_discovery_asks_all_at_once():
    """The servers answer when all were asked."""
    go, models = asyncio.Event(), {"/v1/models": LIST % "vllm"}
    async with server(models, go=go) as (first, first_paths), server(models, go=go) as (second, second_paths):
        finding = asyncio.create_task(discover({first: "vllm", second: "vllm"}, seconds=60))
        await until(lambda: bool(first_paths and second_paths))
        go.set()
        assert [found.url for found in await finding] == [f"http://127.0.0.1:{port}" for port in (first, second)]
    assert SECONDS < 1


async def test_discovery_reports_a_backend_that_is_silent():
    async with server({"/v1/models": LIST % "vllm"}, go=asyncio.Event()) as (port, _):
        (found,) = await discover({port: "vllm"}, seconds=0.3)
        assert found.problem == "no response within 0.2 s; is the server busy, or does a firewall block the port?"


async def test_discovery_skips_the_port_of_the_gateway():
    async with server({"/v1/models": LIST % "vllm"}) as (port, paths):
        assert await discover({port: "vllm"}, skip=[port]) == []
        assert paths == []


@pytest.mark.parametrize("sign", ["port", "server", "owner"])
def test_discovery_has_no_sign_of_two_kinds(sign):
    found = [value for row in ROWS.values() if (value := getattr(row.signs, sign)) is not None]
    assert len(found) == len({*found})


def test_discovery_tries_ollama_first():
    assert next(iter(PORTS.items())) == (11434, "ollama")


def test_discovery_gives_each_backend_a_name_of_its_own():
    found = [
        DiscoveredServer("vllm", "http://127.0.0.1:8000", ("a",)),
        DiscoveredServer("openai", "http://127.0.0.1:1234", ("a",)),
        DiscoveredServer("openai", "http://127.0.0.1:8080", ("b",)),
    ]
    backends = build_config(discovered_config(found), {"auto"}).backends
    assert {name: (one.kind, one.url) for name, one in backends.items()} == {
        "vllm": ("vllm", "http://127.0.0.1:8000"),
        "openai": ("openai", "http://127.0.0.1:1234"),
        "openai-8080": ("openai", "http://127.0.0.1:8080"),
    }
