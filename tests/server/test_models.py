"""What /v1/models tells of a model besides its name: its context, its abilities; and Codex's own list."""

import asyncio

import httpx
import pytest

from gateway import config
from gateway.backends.knowledge import Known
from gateway.server import learning, window
from gateway.server.backend import Backend
from gateway.server.learning import Learner
from support.app import gateway
from support.backends import fleet
from support.upstream import HANG, HELLO, SOON, Upstream, whole

PROPS = {
    "default_generation_settings": {"n_ctx": 4096},
    "modalities": {"vision": True, "audio": False, "video": True},
    "chat_template_caps": {"supports_tools": True},
}
LMSTUDIO = {
    "data": [
        {"id": "m", "type": "vlm", "max_context_length": 131072, "loaded_context_length": 8192, "capabilities": ["tool_use"]},
        {"id": "resting", "type": "llm", "state": "not-loaded", "max_context_length": 131072},
        {"id": "e", "type": "embeddings", "loaded_context_length": 512},
        {"no": "name"},
    ]
}  # fmt: skip
VLLM = {"data": [{"id": "m", "max_model_len": 32768, "root": "org/m"}, {"id": "other"}, {"id": 7}]}
RUNNING = {"models": [{"name": "m:latest", "context_length": 16384}, {"name": "q:8b"}]}
SHOW = {
    "parameters": 'stop "x"\nnum_ctx                        2048',
    "capabilities": ["completion", "tools", "thinking"],
    "model_info": {"llama.context_length": 131072},
}


async def listed(site, name="m", **params):
    return (await site.client.get(f"/v1/models/{name}", params=params)).json()


def extras(entry):
    return {name: value for name, value in entry.items() if name not in ("id", "object", "created", "owned_by")}


def length(tokens, *abilities):
    known = {"context_length": tokens, "max_model_len": tokens} if tokens else {}
    return known | ({"capabilities": sorted(abilities)} if abilities else {})


@pytest.mark.parametrize(
    ("kind", "shown", "told"),
    [
        ("llamacpp", {"/props": PROPS}, length(4096, "tools", "vision")),
        ("llamacpp", {"/props": {"default_generation_settings": None}}, {}),
        ("llamacpp", {"/props": {"modalities": {"vision": False}}}, {"capabilities": []}),
        ("llamacpp", {"/props": ["odd"]}, {}),
        ("llamacpp", {}, {}),
        ("ollama", {"/api/show": SHOW, "/api/ps": RUNNING}, length(16384, "reasoning", "tools")),
        ("ollama", {"/api/show": SHOW, "/api/ps": {"models": None}}, length(2048, "reasoning", "tools")),
        ("ollama", {"/api/show": {"model_info": {"llama.context_length": 131072}}, "/api/ps": {"models": []}}, {}),
        ("ollama", {"/api/ps": RUNNING}, length(16384)),
        ("lmstudio", {"/api/v0/models": LMSTUDIO}, length(8192, "tools", "vision")),
        ("lmstudio", {"/api/v0/models": {"data": "odd"}}, {}),
        ("transformers", {}, {}),
    ],
)
async def test_a_model_is_shown_with_what_its_server_tells(kind, shown, told):
    async with gateway(HELLO, backend={"kind": kind}) as site:
        site.upstream.shown = {path: whole(body) for path, body in shown.items()}
        assert extras(await listed(site)) == told
        (entry,) = (await site.client.get("/v1/models")).json()["data"]
        assert extras(entry) == told
        questions = [(asked.method, asked.path.partition("?")[0]) for asked in site.upstream.aside]
        assert len(questions) == len({*questions}), "an answer is remembered"


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_what_stands_in_the_list_is_asked_for_once_for_all_models(kind):
    more = {"n": {"backends": ["up"], "upstream_model": "other"}}
    async with gateway(HELLO, backend={"kind": kind}, more_models=more, models=whole(VLLM)) as site:
        first, second = (await site.client.get("/v1/models")).json()["data"]
        assert (extras(first), extras(second)) == (length(32768), {})
        assert len(site.upstream.gets) == 1


@pytest.mark.parametrize("field", ["max_model_len", "context_length", "context_window"])
async def test_what_a_list_says_that_had_to_be_read_is_shown(field):
    models = whole({"data": [{"id": "a", field: 1000}, {"id": "b", field: "odd"}, {"id": "c", field: -1}]})
    async with gateway(HELLO, model=False, models=models) as site:
        entries = (await site.client.get("/v1/models")).json()["data"]
    assert [extras(entry) for entry in entries] == [length(1000), {}, {}]


async def test_an_alias_is_known_as_its_model_is():
    async with gateway(
        HELLO, backend={"kind": "llamacpp"}, model={"aliases": ["nick"], "upstream_model": "up"}
    ) as site:
        site.upstream.shown["/props"] = whole(PROPS)
        assert extras(await listed(site, "nick")) == length(4096, "tools", "vision")
        assert site.upstream.aside[0].path == "/props?model=up"


async def test_of_several_backends_what_all_of_them_can_do_is_shown():
    small = {"default_generation_settings": {"n_ctx": 2048}, "modalities": {"audio": True}}
    capable = {"kind": "llamacpp"}
    async with fleet([HELLO], [HELLO], [HELLO], backends=[capable, capable, {}], together=True) as site:
        for upstream, props in zip(site.upstreams.values(), (PROPS, small), strict=False):
            upstream.shown["/props"] = whole(props)
        assert extras(await listed(site)) == {**length(2048), "capabilities": []}


async def test_the_window_of_a_route_is_known_to_who_sends():
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        route = (await site.app.state.directory.find("m")).any
        assert await window.of(route) is None
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = whole(PROPS)
        route = (await site.app.state.directory.find("m")).any
        assert await window.of(route) == 4096


async def test_a_server_that_says_nothing_delays_the_list_for_a_moment(monkeypatch):
    monkeypatch.setattr(learning, "_PATIENCE", 0.05)
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = [HANG]
        async with asyncio.timeout(5):
            assert extras(await listed(site)) == extras(await listed(site)) == {}
        assert len(site.upstream.aside) == 1, "nobody asks twice at once"
    await asyncio.wait_for(site.upstream.gone.wait(), SOON * 4)


async def test_codex_gets_a_list_of_its_own():
    async with gateway(HELLO, backend={"kind": "lmstudio"}, model=False, models=["m", "resting", "e"]) as site:
        site.upstream.shown["/api/v0/models"] = whole(LMSTUDIO)
        body = (await site.client.get("/v1/models?client_version=0.159.3")).json()
        plain = (await site.client.get("/v1/models")).json()
    assert plain.keys() == {"object", "data"} and body["data"] == plain["data"]
    first, second = body["models"]
    assert (first["slug"], first["priority"], first["context_window"]) == ("m", 0, 8192)
    assert (second["slug"], second["priority"], second["context_window"]) == ("resting", 1, None)
    assert first["input_modalities"] == ["text", "image"] and second["input_modalities"] == ["text"]
    assert first["visibility"] == "list" and first["base_instructions"]


async def test_codex_takes_a_model_of_which_nothing_is_known_for_one_that_sees():
    async with gateway(HELLO) as site:
        (entry,) = (await site.client.get("/v1/models?client_version=1")).json()["models"]
    assert entry["input_modalities"] == ["text", "image"]


# What is remembered


class Server:
    """A server of kind llamacpp, behind a client without a socket."""

    def __init__(self, kind="llamacpp"):
        self.now, self.asked, self.answer = 0.0, [], httpx.Response(200, json=PROPS)
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self._answered), base_url="http://x")
        self.learner = Learner(self._client, kind, lambda: self.now)

    async def _client(self):
        return self.http

    def _answered(self, request):
        self.asked.append(request.url.path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def settled(self):
        await asyncio.gather(*self.learner._asking.values())


async def test_an_old_answer_is_given_while_a_new_one_is_asked_for():
    server = Server()
    assert (await server.learner.known("m")).window == 4096
    server.now, server.answer = 299.0, httpx.Response(200, json={"default_generation_settings": {"n_ctx": 99}})
    assert (await server.learner.known("m")).window == 4096 and len(server.asked) == 1
    server.now = 300.0
    assert (await server.learner.known("m")).window == 4096
    await server.settled()
    assert (await server.learner.known("m")).window == 99 and len(server.asked) == 2


@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.ConnectError("gone"), httpx.Response(200, text="<html>")]
)
async def test_what_was_known_stays_when_a_server_is_away(answer):
    server = Server()
    await server.learner.known("m")
    server.now, server.answer = 300.0, answer
    await server.learner.known("m")
    await server.settled()
    server.answer = httpx.Response(200, json={"default_generation_settings": {"n_ctx": 99}})
    server.now = 329.0
    assert (await server.learner.known("m")).window == 4096 and len(server.asked) == 2
    server.now = 330.0
    await server.learner.known("m")
    await server.settled()
    assert (await server.learner.known("m")).window == 99


async def test_what_is_loaded_is_asked_for_again_soon():
    server = Server("ollama")
    server.answer = httpx.Response(200, json={"models": []})
    await server.learner.known("m")
    server.now = 10.0
    await server.learner.known("m")
    await server.settled()
    assert sorted(server.asked) == ["/api/ps", "/api/ps", "/api/show"]


async def test_no_more_is_remembered_than_fits(monkeypatch):
    monkeypatch.setattr(learning, "_MOST", 2)
    server = Server()
    for model in "abc":
        assert (await server.learner.known(model)).window == 4096
    assert len(server.learner._answers) == 1


def test_of_two_that_know_something_the_first_counts():
    assert Known(1) | Known(2, frozenset("a")) == Known(1, frozenset("a"))
    assert Known(None, frozenset("a")) | Known(2, frozenset("b")) == Known(2, frozenset("ab"))
    assert Known() | Known() == Known()


async def test_a_backend_that_is_closed_asks_no_more():
    async with Upstream([HELLO], ()).serving() as upstream:
        upstream.shown["/props"] = [HANG]
        backend = Backend("up", config.Backend(url=upstream.url, kind="llamacpp"))
        asking = asyncio.create_task(backend.learner.known("m"))
        while not upstream.aside:  # noqa: ASYNC110 (the server has no word for it)
            await asyncio.sleep(0.005)
        await backend.close()
        assert await asking == Known()
