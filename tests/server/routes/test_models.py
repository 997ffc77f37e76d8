"""Test /v1/models: context length and capabilities of a model, and the list for Codex."""

import asyncio

import httpx
import pytest

from gateway import config
from gateway.backends.model_metadata import ModelMetadata
from gateway.server.upstream import model_metadata, model_registry
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.model_metadata import MetadataCache
from support.app import bearer, gateway
from support.backends import fleet
from support.upstream import HANG, HELLO, Upstream, whole
from support.wait import until

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

LINE = {"message": {"role": "assistant", "content": "Hi"}, "done": True, "done_reason": "stop"}


async def listed_model(site, name="m", **params):
    return (await site.client.get(f"/v1/models/{name}", params=params)).json()


def extras(entry):
    return {name: value for name, value in entry.items() if name not in ("id", "object", "created", "owned_by")}


def length(tokens, *abilities):
    known = {"context_length": tokens, "max_model_len": tokens} if tokens else {}
    return known | ({"capabilities": sorted(abilities)} if abilities else {})


@pytest.mark.parametrize(
    ("kind", "shown", "expected"),
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
async def test_model_list_has_the_metadata_of_the_backend(kind, shown, expected):
    async with gateway(HELLO, backend={"kind": kind}) as site:
        site.upstream.shown = {path: whole(body) for path, body in shown.items()}
        assert extras(await listed_model(site)) == expected
        (entry,) = (await site.client.get("/v1/models")).json()["data"]
        assert extras(entry) == expected
        questions = [(post.method, post.path.partition("?")[0]) for post in site.upstream.aside]
        assert len(questions) == len({*questions}), "an answer is remembered"


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_model_list_requests_list_metadata_once_for_all_models(kind):
    more = {"n": {"backends": ["up"], "upstream_model": "other"}}
    async with gateway(HELLO, backend={"kind": kind}, more_models=more, models=whole(VLLM)) as site:
        first, second = (await site.client.get("/v1/models")).json()["data"]
        assert (extras(first), extras(second)) == (length(32768), {})
        assert len(site.upstream.gets) == 1


@pytest.mark.parametrize("field", ["max_model_len", "context_length", "context_window"])
async def test_model_list_has_the_context_length_of_listed_models(field):
    models = whole({"data": [{"id": "a", field: 1000}, {"id": "b", field: "odd"}, {"id": "c", field: -1}]})
    async with gateway(HELLO, model=False, models=models) as site:
        entries = (await site.client.get("/v1/models")).json()["data"]
    assert [extras(entry) for entry in entries] == [length(1000), {}, {}]


@pytest.mark.parametrize(
    "body",
    [
        [{"id": "a", "created": 5, "context_length": 1000}, {"id": None}, {"object": "model"}, "b", None],
        {"models": [{"name": "a", "created": 5, "context_length": 1000}]},
        {"data": [{"id": "a", "created": 5, "context_length": 1000}], "models": [{"name": "b"}]},
    ],
)
async def test_model_list_of_a_backend_has_one_of_several_forms(body):
    async with gateway(HELLO, model=False, models=whole(body)) as site:
        (entry,) = (await site.client.get("/v1/models")).json()["data"]
        assert (entry["id"], entry["created"], extras(entry)) == ("a", 5, length(1000))
        assert (await site.chat(model="a")).status_code == 200


@pytest.mark.parametrize("body", [{"data": None}, {}, "odd", {"data": "odd"}, {"models": {"a": 1}}])
async def test_model_list_without_entries_has_no_models(body):
    async with gateway(HELLO, model=False, models=whole(body)) as site:
        assert (await site.client.get("/v1/models")).json()["data"] == []


async def test_model_that_gemini_lists_needs_no_start():
    async with gateway(HELLO, model=False, models=["models/gemini", "models/b", "b"]) as site:
        names = {"gemini": "models/gemini", "models/gemini": "models/gemini", "b": "b"}
        for name, sent in names.items():
            assert await sent_model(site, name) == sent
            assert (await listed_model(site, name))["id"] == name
        assert (await site.chat(model="c")).status_code == 404


async def test_model_alias_that_ends_in_a_star_stands_for_all_names_with_its_beginning():
    models = {"haiku": {"backends": ["up"], "aliases": ["claude-haiku-*"]}}
    async with gateway(HELLO, model={"aliases": ["claude-*", "claude-x"]}, more_models=models) as site:
        names = ["claude-haiku-4-5", "claude-opus-5", "claude-x", "m"]
        sent = [await sent_model(site, name) for name in names]
        unknown = await site.chat(model="claud")
        listed = (await site.client.get("/v1/models")).json()["data"]
        shown = [await site.client.get(f"/v1/models/{name}") for name in [*names, "claud"]]
    assert sent == ["haiku", "m", "m", "m"] and unknown.status_code == 404
    assert {one["id"] for one in listed} == {"m", "haiku", "claude-x"}
    assert [one.json().get("id") for one in shown] == [*names, None] and shown[-1].status_code == 404


async def test_model_that_an_alias_stands_for_is_hidden_from_a_key_without_its_model():
    auth = {"keys": [{"name": "a", "key": (key := "sk-of-another-model-0123"), "models": ["n"]}]}
    other = {"n": {"backends": ["up"]}}
    async with gateway(HELLO, model={"aliases": ["claude-*"]}, more_models=other, auth=auth) as site:
        response = await site.client.get("/v1/models/claude-opus-5", headers=bearer(key))
    assert response.status_code == 404


async def test_model_that_ollama_lists_needs_no_default_tag():
    names = {"models": ["a:latest", "b:latest", "c:8b"], "model": False}
    async with Upstream([HELLO], ["b"]).serving() as second:
        more = {"second": {"url": second.url}}
        async with gateway(whole(LINE), backend={"kind": "ollama"}, more_backends=more, **names) as site:
            for name, sent, server in (
                ("a", "a:latest", site.upstream),
                ("a:latest", "a:latest", site.upstream),
                ("b", "b", second),
            ):
                assert (await site.chat(model=name)).json()["model"] == name
                assert server.posts[-1].json["model"] == sent
                assert (await listed_model(site, name))["id"] == name
            for name in ("c", "d"):
                assert (await site.chat(model=name)).status_code == 404
                assert (await site.client.get(f"/v1/models/{name}")).status_code == 404


async def test_model_without_its_default_tag_is_allowed_by_a_key_for_the_model():
    auth = {"keys": [{"name": "a", "key": (key := "sk-of-one-model-01234567"), "models": ["a:latest"]}]}
    names = {"models": ["a:latest", "b:latest"], "model": False, "auth": auth}
    async with gateway(whole(LINE), backend={"kind": "ollama"}, **names) as site:
        answers = [await site.chat(model=name, headers=bearer(key)) for name in "ab"]
        shown = [await site.client.get(f"/v1/models/{name}", headers=bearer(key)) for name in "ab"]
    assert [one.status_code for one in answers] == [200, 403] and [one.status_code for one in shown] == [200, 404]


async def test_model_of_another_kind_than_ollama_needs_its_whole_name():
    async with gateway(HELLO, model=False, models=["a:latest"]) as site:
        assert (await site.chat(model="a")).status_code == 404


async def sent_model(site, name):
    """Return the model that the backend is asked for."""
    assert (await site.chat(model=name)).json()["model"] == name
    return site.upstream_body["model"]


async def test_model_alias_has_the_metadata_of_its_model():
    async with gateway(
        HELLO, backend={"kind": "llamacpp"}, model={"aliases": ["nick"], "upstream_model": "up"}
    ) as site:
        site.upstream.shown["/props"] = whole(PROPS)
        assert extras(await listed_model(site, "nick")) == length(4096, "tools", "vision")
        assert site.upstream.aside[0].path == "/props?model=up"


async def test_model_list_has_only_what_all_backends_of_a_model_support():
    small = {"default_generation_settings": {"n_ctx": 2048}, "modalities": {"audio": True}}
    capable = {"kind": "llamacpp"}
    async with fleet([HELLO], [HELLO], [HELLO], backends=[capable, capable, {}], together=True) as site:
        for upstream, props in zip(site.upstreams.values(), (PROPS, small), strict=False):
            upstream.shown["/props"] = whole(props)
        assert extras(await listed_model(site)) == {**length(2048), "capabilities": []}


async def test_model_context_window_of_a_route_is_that_of_its_backend():
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        route = (await site.app.state.directory.get("m")).any
        assert await model_registry.context_length(route) is None
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = whole(PROPS)
        route = (await site.app.state.directory.get("m")).any
        assert await model_registry.context_length(route) == 4096


async def test_model_list_does_not_wait_for_a_silent_backend(monkeypatch):
    monkeypatch.setattr(model_metadata, "_WAIT", 0.05)
    async with gateway(HELLO, backend={"kind": "llamacpp"}) as site:
        site.upstream.shown["/props"] = [HANG]
        assert extras(await listed_model(site)) == extras(await listed_model(site)) == {}
        assert len(site.upstream.aside) == 1, "no second request runs at once"
    await until(site.upstream.gone.is_set)


async def test_model_list_for_codex_has_its_own_fields():
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


async def test_model_list_for_codex_assumes_image_input_if_unknown():
    async with gateway(HELLO) as site:
        (entry,) = (await site.client.get("/v1/models?client_version=1")).json()["models"]
    assert entry["input_modalities"] == ["text", "image"]


# Metadata cache


class Server:
    """A backend without a socket, of kind llamacpp unless stated."""

    def __init__(self, kind="llamacpp"):
        self.now, self.paths, self.answer = 0.0, [], httpx.Response(200, json=PROPS)
        self.http = httpx.AsyncClient(transport=httpx.MockTransport(self._answered), base_url="http://x")
        self.metadata_cache = MetadataCache(self._client, kind, lambda: self.now)

    async def _client(self):
        return self.http

    def _answered(self, request):
        self.paths.append(request.url.path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def settled(self):
        await asyncio.gather(*self.metadata_cache._running.values())


async def test_model_metadata_stays_while_it_is_refreshed():
    server = Server()
    assert (await server.metadata_cache.metadata_of("m")).window == 4096
    server.now, server.answer = 299.0, httpx.Response(200, json={"default_generation_settings": {"n_ctx": 99}})
    assert (await server.metadata_cache.metadata_of("m")).window == 4096 and len(server.paths) == 1
    server.now = 300.0
    assert (await server.metadata_cache.metadata_of("m")).window == 4096
    await server.settled()
    assert (await server.metadata_cache.metadata_of("m")).window == 99 and len(server.paths) == 2


@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.ConnectError("gone"), httpx.Response(200, text="<html>")]
)
async def test_model_metadata_stays_when_the_backend_fails(answer):
    server = Server()
    await server.metadata_cache.metadata_of("m")
    server.now, server.answer = 300.0, answer
    await server.metadata_cache.metadata_of("m")
    await server.settled()
    server.answer = httpx.Response(200, json={"default_generation_settings": {"n_ctx": 99}})
    server.now = 329.0
    assert (await server.metadata_cache.metadata_of("m")).window == 4096 and len(server.paths) == 2
    server.now = 330.0
    await server.metadata_cache.metadata_of("m")
    await server.settled()
    assert (await server.metadata_cache.metadata_of("m")).window == 99


async def test_model_metadata_of_loaded_models_is_refreshed_sooner():
    server = Server("ollama")
    server.answer = httpx.Response(200, json={"models": []})
    await server.metadata_cache.metadata_of("m")
    server.now = 10.0
    await server.metadata_cache.metadata_of("m")
    await server.settled()
    assert sorted(server.paths) == ["/api/ps", "/api/ps", "/api/show"]


async def test_model_metadata_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(model_metadata, "_MAX", 2)
    server = Server()
    for model in "abc":
        assert (await server.metadata_cache.metadata_of(model)).window == 4096
    assert len(server.metadata_cache._results) == 1


def test_model_metadata_union_prefers_the_first_source():
    assert ModelMetadata(1) | ModelMetadata(2, frozenset("a")) == ModelMetadata(1, frozenset("a"))
    assert ModelMetadata(None, frozenset("a")) | ModelMetadata(2, frozenset("b")) == ModelMetadata(2, frozenset("ab"))
    assert ModelMetadata() | ModelMetadata() == ModelMetadata()


async def test_model_metadata_request_ends_when_the_backend_closes():
    async with Upstream([HELLO], ()).serving() as upstream:
        upstream.shown["/props"] = [HANG]
        backend = Backend("up", config.BackendSettings(url=upstream.url, kind="llamacpp"))
        asking = asyncio.create_task(backend.metadata_cache.metadata_of("m"))
        await until(lambda: bool(upstream.aside))
        await backend.close()
        assert await asking == ModelMetadata()
