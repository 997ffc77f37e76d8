"""Test that paths mean what they look like, that HEAD works wherever GET does, and what a 404 names."""

import httpx
import pytest

from gateway.server.http.paths import nearest
from support.app import HELLO_MESSAGES, gateway, listening
from support.sse import events
from support.upstream import HELLO, completion_body, list_of, whole

CHAT = {"model": "m", "messages": HELLO_MESSAGES}
RESPONSE = {"model": "m", "input": "Hello"}
PLACES = ["{}", "/v1{}/", "/v1/{}", "//v1{}", "/v1{}//", "{}/"]  # of a path without its version


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("path", "body"), [("/chat/completions", CHAT), ("/responses", RESPONSE)])
async def test_path_of_a_model_means_what_it_looks_like(place, path, body):
    async with listening(whole(completion_body()), HELLO, metrics={"open": True}) as site:
        url = site.client.base_url.copy_with(path=place.format(path))
        answer = await site.client.post(url, json=body)
        assert (answer.status_code, answer.json()["model"]) == (200, "m")
        streamed = await site.client.post(url, json={**body, "stream": True})
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert 'endpoint="/v1' + path + '"' in (await site.client.get("/metrics")).text
        assert 'endpoint="other"' not in (await site.client.get("/metrics")).text


@pytest.mark.parametrize("place", PLACES)
async def test_path_of_a_resource_means_what_it_looks_like(place):
    async with gateway(whole(completion_body())) as site:
        made = (await site.respond()).json()
        for path, id in (("/models", None), ("/models/m", "m"), (f"/responses/{made['id']}", made["id"])):
            answer = await site.client.get(httpx.URL("http://gateway").copy_with(path=place.format(path)))
            assert answer.status_code == 200 and answer.json().get("id") == id
        for path in ("/embeddings", "/rerank", "/tokenize", "/conversations", "/responses/input_tokens"):
            url = httpx.URL("http://gateway").copy_with(path=place.format(path))
            assert (await site.client.post(url, content=b"{")).status_code == 400
            assert (await site.client.delete(url)).status_code == 405 or "input_tokens" in path


@pytest.mark.parametrize("path", ["/health/", "//health", "/ready//", "//"])
async def test_path_of_the_gateway_itself_may_have_more_slashes(path):
    async with gateway(HELLO, models=list_of("m")) as site:
        answer = await site.client.get(httpx.URL("http://gateway").copy_with(path=path))
        assert answer.status_code == 200


@pytest.mark.parametrize("path", ["/responses", "/v1/responses/", "/v1//responses"])
async def test_path_of_a_websocket_means_what_it_looks_like(path):
    import websockets

    async with listening(HELLO) as site:
        url = f"ws://127.0.0.1:{site.client.base_url.port}{path}"
        async with websockets.connect(url, proxy=None) as socket:
            await socket.send('{"type": "response.create", "model": "m", "input": "Hello"}')
            assert '"response.created"' in await socket.recv()


@pytest.mark.parametrize("path", ["/v2/responses", "/api/v1/models", "/v1/v1/models", "/v1", "/v1/", "/chatting"])
async def test_path_that_looks_like_none_is_refused(path):
    async with gateway(HELLO) as site:
        assert (await site.client.get(path)).status_code == 404


async def test_head_works_wherever_get_does():
    async with listening(whole(completion_body()), metrics={"open": True}) as site:
        made = (await site.respond()).json()["id"]
        for path in (
            "/health",
            "/metrics",
            "/v1/models",
            "/models/m/",
            f"/v1/responses/{made}",
            "/v1/responses/resp_0",
        ):
            got, head = await site.client.get(path), await site.client.head(path)
            assert (head.status_code, head.content) == (got.status_code, b"")
            assert head.headers["content-type"] == got.headers["content-type"]


async def test_head_of_a_stream_has_no_body():
    async with listening(HELLO) as site:
        made = events((await site.respond(stream=True, background=True)).text)[0]["response"]["id"]
        head = await site.client.head(f"/v1/responses/{made}", params={"stream": "true"})
        assert (head.status_code, head.content) == (200, b"")
        assert (await site.client.get("/health")).status_code == 200


async def test_head_is_not_documented_apart():
    async with gateway(HELLO) as site:
        paths = (await site.client.get("/openapi.json")).json()["paths"]
    assert "get" in paths["/v1/models"] and not any("head" in methods for methods in paths.values())


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/v1/response", "/v1/responses"),
        ("/v1/embedding", "/v1/embeddings"),
        ("/v1/model", "/v1/models"),
        ("/api/chat/completions", "/v1/chat/completions"),
        ("/v1/chat", "/v1/chat/completions"),
        ("/chat", "/v1/chat/completions"),
        ("/v1", None),
        ("/api/chat", "/v1/chat/completions"),
        ("/api/generate/", "/v1/chat/completions"),
        ("/api/tags", "/v1/models"),
        ("/api/pull", None),
        ("/v1/" + "x" * 10_000, None),
    ],
)
async def test_404_names_the_nearest_path(path, near):
    async with gateway(HELLO) as site:
        answer = await site.client.post(path, json=CHAT)
        message = answer.json()["error"]["message"]
        advice = f"The nearest path is {near}." if near else "/docs lists the paths of the gateway."
        assert answer.status_code == 404 and message.startswith("Invalid URL (POST /") and message.endswith(advice)


def test_nearest_path_is_one_that_is_like_it():
    assert nearest("/abc", ["/b", "/abx"]) == "/abx" and nearest("/a", ["/b"]) is None
