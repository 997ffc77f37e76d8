"""Several gateways on one store, and several tenants in it."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest

from gateway.server.app import create_app
from support.app import gateway, problem, settings
from support.gateway_process import process
from support.upstream import HELLO, Upstream, said, whole

ANSWER = whole(said("Hi"))
REQUESTS = 6
LOCKED = "conversation_locked"


@asynccontextmanager
async def two(store_url):
    """Clients of two gateways."""
    store = {"url": store_url}
    async with gateway(ANSWER, store=store) as one, gateway(ANSWER, store=store) as other:
        yield one.client, other.client


async def made(client, path, **body):
    answer = await client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def respond(client, **asked):
    return await made(client, "responses", model="m", **asked)


async def get(client, path, **params):
    answer = await client.get(f"/v1/{path}", params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def texts(client, path):
    return [item["content"][0]["text"] for item in (await get(client, path, order="asc", limit=100))["data"]]


# Several gateways


async def test_chains_that_begin_at_one_response_go_on_through_both(store_url):
    async with two(store_url) as clients:
        start = (await respond(clients[0], input="start"))["id"]

        async def chain(name):
            previous = start
            for turn in range(3):
                client = clients[(name + turn) % 2]
                previous = (await respond(client, input=f"{name}.{turn}", previous_response_id=previous))["id"]
            return previous

        ends = await asyncio.gather(*map(chain, range(REQUESTS)))
        for name, end in enumerate(ends):
            own = [f"{name}.0", "Hi", f"{name}.1", "Hi", f"{name}.2"]
            for client in clients:
                assert await texts(client, f"responses/{end}/input_items") == ["start", "Hi", *own]


async def test_what_one_stores_the_other_reads_lists_changes_and_deletes(store_url):
    async with two(store_url) as (one, other):
        response = await respond(one, input="a")
        said = {"model": "m", "messages": [{"role": "user", "content": "a"}], "store": True}
        completion = await made(one, "chat/completions", **said)
        conversation = (await made(one, "conversations", items=[{"role": "user", "content": "a"}]))["id"]
        await respond(other, input="b", conversation=conversation)

        assert await get(other, f"responses/{response['id']}") == response
        assert await texts(other, f"responses/{response['id']}/input_items") == ["a"]
        assert [one["id"] for one in (await get(other, "chat/completions"))["data"]] == [completion["id"]]
        assert await texts(one, f"conversations/{conversation}/items") == ["a", "b", "Hi"]
        await made(other, f"conversations/{conversation}", metadata={"a": "b"})
        assert (await get(one, f"conversations/{conversation}"))["metadata"] == {"a": "b"}

        paths = f"responses/{response['id']}", f"chat/completions/{completion['id']}", f"conversations/{conversation}"
        for path in paths:
            assert (await other.delete(f"/v1/{path}")).json()["deleted"] is True
            assert (await one.get(f"/v1/{path}")).status_code == 404


async def test_a_request_with_a_key_is_answered_once(store_url):
    async with two(store_url) as clients:
        body, key = {"model": "m", "input": "a"}, {"idempotency-key": "k"}

        async def ask(client):
            while (answer := await client.post("/v1/responses", json=body, headers=key)).status_code == 409:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return answer.json()["id"]

        assert len({*await asyncio.gather(*map(ask, clients * 2))}) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_who_hears_the_end_can_go_on_at_the_other_gateway(stream, store_url):
    """Though the one that answers still has to tidy up."""
    store, answers, end = {"url": store_url}, [], b"response.completed" if stream else b'"Hi"'
    async with gateway(HELLO if stream else ANSWER, store=store) as site, gateway(ANSWER, store=store) as other:
        conversation = (await made(site.client, "conversations"))["id"]
        app = site.client._transport.app

        async def heard(scope, receive, send):
            async def tell(message):
                if end in message.get("body", b""):
                    answers.append(await other.respond(input="b", conversation=conversation))
                await send(message)

            await app(scope, receive, tell)

        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(heard), base_url="http://gateway", verify=False
        ) as one:
            body = {"model": "m", "input": "a", "conversation": conversation, "stream": stream}
            assert (await one.post("/v1/responses", json=body)).status_code == 200
        assert [answer.status_code for answer in answers] == [200]
        assert await texts(other.client, f"conversations/{conversation}/items") == ["a", "Hi", "b", "Hi"]


async def test_one_request_at_a_time_gets_through_to_a_conversation(store_url, tmp_path):
    """The gateways are processes; a request that is turned away is sent again, and none is lost."""
    busy, turned_away = asyncio.Lock(), []

    async def alone(_):
        assert not busy.locked()
        async with busy:
            await asyncio.sleep(0.03)

    async with (
        asyncio.timeout(30),
        Upstream([[alone, *ANSWER]], ()).serving() as upstream,
        process(upstream.url, store_url, tmp_path) as (_, one),
        process(upstream.url, store_url, tmp_path) as (_, other),
    ):
        conversation = (await made(one, "conversations"))["id"]

        async def ask(number):
            body = {"model": "m", "input": str(number), "conversation": conversation}
            while True:
                answer = await (one, other)[number % 2].post("/v1/responses", json=body)
                if answer.status_code == 200:
                    return
                assert problem(answer)[::2] == (400, LOCKED)
                turned_away.append(number)
                await asyncio.sleep(0.01)

        await asyncio.gather(*map(ask, range(REQUESTS)))
        listed = await texts(other, f"conversations/{conversation}/items")
    assert sorted(listed[::2]) == [str(number) for number in range(REQUESTS)] and set(listed[1::2]) == {"Hi"}
    assert {number % 2 for number in turned_away} == {0, 1}
    asked = [[message["content"] for message in post.json["messages"]] for post in upstream.posts]
    assert asked == [listed[:length] for length in range(1, 2 * REQUESTS, 2)]  # each knew all that had been said


# Several tenants

ANN, BOB = ({"authorization": f"Bearer {name}-{'k' * 20}"} for name in ("ann", "bob"))
TENANTS = {"keys": [{"name": name, "key": f"{name}-{'k' * 20}"} for name in ("ann", "bob")]}
NOBODYS = {
    *((method, path) for path in ("/openapi.json", "/docs", "/docs/oauth2-redirect") for method in ("GET", "HEAD")),
    *(
        ("GET", path)
        for path in (
            "/health",
            "/ready",
            "/metrics",
            "/v1/models",
            "/v1/models/{id:path}",
            "/v1/responses",
            "/admin/overview",
        )
    ),
    ("POST", "/v1/conversations"),
}  # routes that name nothing that is stored; of those that make something, what they may be given is below
LISTS = {("GET", "/v1/chat/completions")}  # of all that a tenant has
RESPONSE, COMPLETION, CONVERSATION = "/v1/responses/{id}", "/v1/chat/completions/{id}", "/v1/conversations/{id}"
ITEM = {"role": "user", "content": "mine now"}
FOREIGN = {
    ("GET", RESPONSE): None,
    ("DELETE", RESPONSE): None,
    ("POST", f"{RESPONSE}/cancel"): None,
    ("GET", f"{RESPONSE}/input_items"): None,
    ("GET", CONVERSATION): None,
    ("POST", CONVERSATION): {"metadata": {"by": "bob"}},
    ("DELETE", CONVERSATION): None,
    ("GET", f"{CONVERSATION}/items"): None,
    ("POST", f"{CONVERSATION}/items"): {"items": [ITEM]},
    ("GET", f"{CONVERSATION}/items/{{item_id}}"): None,
    ("DELETE", f"{CONVERSATION}/items/{{item_id}}"): None,
    ("GET", COMPLETION): None,
    ("GET", f"{COMPLETION}/messages"): None,
    ("POST", COMPLETION): {"metadata": {"by": "bob"}},
    ("DELETE", COMPLETION): None,
}  # what is sent to a path with an id
QUESTIONS = {("POST", f"/v1/{path}") for path in ("responses", "responses/compact", "responses/input_tokens")}
SERVICES = ("chat/completions", "completions", "embeddings", "rerank", "tokenize", "detokenize")
STATELESS = {("POST", f"/v1/{path}") for path in SERVICES}  # can name nothing that is stored
SOCKETS = {("CONNECT", "/v1/responses")}  # see test_websocket_state.py


def test_the_tables_have_every_route():
    app = create_app(settings("http://127.0.0.1:9"))
    routes = {(method, route.path) for route in app.routes for method in getattr(route, "methods", ["CONNECT"])}
    assert routes == NOBODYS | LISTS | {*FOREIGN} | QUESTIONS | STATELESS | SOCKETS


class Anns:
    """One of each, in the store."""

    def __init__(self, client):
        self._client = client

    async def make(self):
        self.response = await self._made("responses", model="m", input="a")
        messages = [{"role": "user", "content": "a"}]
        self.completion = await self._made("chat/completions", model="m", messages=messages, store=True)
        self.conversation = await self._made("conversations", items=[{"role": "user", "content": "a"}])
        self.item = (await self._get(f"/v1/conversations/{self.conversation['id']}/items"))["data"][0]

    def path(self, path):
        kinds = {RESPONSE: self.response, COMPLETION: self.completion, CONVERSATION: self.conversation}
        one = next(one for start, one in kinds.items() if path.startswith(start))
        return path.format(id=one["id"], item_id=self.item["id"])

    def unnamed(self, text):
        for one in (self.response, self.completion, self.conversation, self.item):
            text = text.replace(one["id"], "nothing")
        return text

    async def seen(self):
        """All that Ann can read."""
        return {path: await self._get(self.path(path)) for method, path in FOREIGN if method == "GET"}

    async def _made(self, path, **body):
        answer = await self._client.post(f"/v1/{path}", json=body, headers=ANN)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def _get(self, path):
        answer = await self._client.get(path, headers=ANN)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
async def anns(store_url):
    async with gateway(ANSWER, auth=TENANTS, store={"url": store_url}) as site:
        here = Anns(site.client)
        await here.make()
        yield here, site.client


async def test_a_foreign_tenant_sees_and_changes_nothing(anns):
    """What is another's does not exist: its answer is that for what there never was, but for the id."""
    here, client = anns
    before = await here.seen()
    for (method, path), body in FOREIGN.items():
        answer = await client.request(method, here.path(path), json=body, headers=BOB)
        nobodys = await client.request(method, path.format(id="nothing", item_id="nothing"), json=body, headers=BOB)
        assert (answer.status_code, nobodys.status_code) == (404, 404), (method, path)
        assert here.unnamed(answer.text) == nobodys.text
    assert (await client.get("/v1/chat/completions", headers=BOB)).json()["data"] == []
    assert await here.seen() == before


async def test_a_foreign_tenant_cannot_go_on_from_or_name_what_is_anothers(anns):
    here, client = anns
    before = await here.seen()
    named = {
        "previous_response_not_found": {"previous_response_id": here.response["id"]},
        None: {"conversation": here.conversation["id"]},
    }
    for method, path in QUESTIONS:
        for code, asked in named.items():
            answer = await client.request(method, path, json={"model": "m", "input": "b", **asked}, headers=BOB)
            assert problem(answer)[2] == code and answer.status_code in (400, 404), path
            assert "not found" in answer.json()["error"]["message"]
        reference = {"type": "item_reference", "id": here.item["id"]}
        for items in ([reference], [{"id": here.response["output"][0]["id"]}]):
            answer = await client.request(method, path, json={"model": "m", "input": items}, headers=BOB)
            assert answer.status_code == 404
    reference = {"items": [{"type": "item_reference", "id": here.item["id"]}]}
    assert (await client.post("/v1/conversations", json=reference, headers=BOB)).status_code == 404
    assert await here.seen() == before


async def test_a_foreign_tenant_can_page_behind_nothing_of_anothers(anns):
    here, client = anns
    params = {"after": here.completion["id"]}
    assert problem(await client.get("/v1/chat/completions", params=params, headers=BOB))[::3] == (400, "after")


async def test_a_key_of_one_tenant_is_not_that_of_another(anns):
    _, client = anns
    asked = [
        await client.post("/v1/responses", json={"model": "m", "input": "a"}, headers={**who, "idempotency-key": "k"})
        for who in (ANN, BOB, ANN)
    ]
    ann, bob, again = (answer.json()["id"] for answer in asked)
    assert ann == again != bob
