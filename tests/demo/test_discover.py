"""Test the discovery of model servers on this machine by their responses."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.config import build
from gateway.server.discover import PORTS, Found, as_document, discover, identify

LIST = '{"object": "list", "data": [{"id": "m1", "owned_by": "%s"}, {"id": "m2"}]}'


@asynccontextmanager
async def server(
    answers: dict[str, str], header: str = "x-a: b", delay: float = 0
) -> AsyncIterator[tuple[int, list[str]]]:
    """A server that answers these paths, and 404 else; gives its port and the paths that it was asked for."""
    asked: list[str] = []
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        asked.append(path)
        with suppress(TimeoutError):
            await asyncio.wait_for(gone.wait(), delay)
        status = "200 OK" if path in answers else "404 Not Found"
        body = answers.get(path, '{"detail": "Not Found"}').encode()
        writer.write(f"HTTP/1.1 {status}\r\n{header}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1], asked
        gone.set()
        await asyncio.sleep(0.01)


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
    ],
)
async def test_discovery_knows_a_backend_by_its_signature(answers, header, expected, kind):
    async with server(answers, header) as (port, _):
        assert await discover({port: expected}) == [Found(kind, f"http://127.0.0.1:{port}", ("m1", "m2"))]


async def test_discovery_identifies_a_url_without_a_model_list():
    async with server({"/openapi.json": '{"paths": {"/v1/models": {}, "/load_model": {}}}'}) as (port, _):
        assert await identify(f"http://127.0.0.1:{port}") == "transformers"
    async with server({"/openapi.json": '["/load_model"]'}) as (port, _):
        assert await identify(f"http://127.0.0.1:{port}") == "openai"


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/v1/models": "<html>it works</html>"},
        {"/v1/models": '{"models": []}'},
        {"/v1/models": '{"data": {"id": "m"}}'},
        {"/v1/models": "[]"},
    ],
)
async def test_discovery_ignores_other_http_servers(answers):
    async with server(answers) as (port, asked):
        assert await discover({port: "vllm"}) == []
        assert asked == ["/v1/models"]


@pytest.mark.parametrize("data", ["[]", "null"])
async def test_discovery_finds_a_backend_without_models(data):
    async with server({"/v1/models": f'{{"data": {data}}}', "/api/version": "{}"}) as (port, _):
        assert await discover({port: "ollama"}) == [Found("ollama", f"http://127.0.0.1:{port}", ())]


async def test_discovery_ignores_other_protocols():
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail ready\r\n")
        writer.close()
        await writer.wait_closed()

    listening = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with listening:
        assert await discover({listening.sockets[0].getsockname()[1]: "vllm"}) == []


async def test_discovery_asks_all_at_once_and_skips_a_slow_backend():
    async with (
        server({"/v1/models": LIST % "vllm"}, delay=0.2) as (first, _),
        server({"/v1/models": LIST % "vllm"}, delay=0.2) as (second, _),
        server({"/v1/models": LIST % "vllm"}, delay=3) as (third, _),
    ):
        began = time.monotonic()
        found = await discover({first: "vllm", third: "vllm", second: "vllm"})
        assert [one.url for one in found] == [f"http://127.0.0.1:{port}" for port in (first, second)]
        assert time.monotonic() - began < 1


async def test_discovery_skips_the_port_of_the_gateway():
    async with server({"/v1/models": LIST % "vllm"}) as (port, asked):
        assert await discover({port: "vllm"}, skip=[port]) == []
        assert asked == []


def test_discovery_ports_are_the_defaults_of_the_kinds():
    assert PORTS == {11434: "ollama", 8000: "vllm", 8080: "llamacpp", 1234: "lmstudio", 30000: "sglang"}


def test_discovery_gives_each_backend_a_name_of_its_own():
    found = [
        Found("vllm", "http://127.0.0.1:8000", ("a",)),
        Found("openai", "http://127.0.0.1:1234", ("a",)),
        Found("openai", "http://127.0.0.1:8080", ("b",)),
    ]
    backends = build(as_document(found), {"auto"}).backends
    assert {name: (one.kind, one.url) for name, one in backends.items()} == {
        "vllm": ("vllm", "http://127.0.0.1:8000"),
        "openai": ("openai", "http://127.0.0.1:1234"),
        "openai-8080": ("openai", "http://127.0.0.1:8080"),
    }
