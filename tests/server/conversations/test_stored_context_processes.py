"""Test two gateways on one store, and the separation of tenants in it."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from gateway.backends.pass_through import PASS_THROUGH
from gateway.server.app import create_app
from support.app import gateway, overheard, problem, settings
from support.batches import begin, ended
from support.gateway_process import process
from support.stored import ANN, BOB, TENANTS, get_json, item_texts
from support.upstream import HELLO, Upstream, completion_body, whole
from support.wait import until

ANSWER = whole(completion_body("Hi"))
REQUESTS = 6
LOCKED = "conversation_locked"


@asynccontextmanager
async def two(store_url):
    """Clients of two gateways on one store."""
    store = {"url": store_url}
    async with gateway(ANSWER, store=store) as one, gateway(ANSWER, store=store) as other:
        yield one.client, other.client


async def create(client, path, **body):
    """Return the body of a POST below /v1 that succeeds."""
    answer = await client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def respond(client, **fields):
    return await create(client, "responses", model="m", **fields)


# Several gateways


async def test_response_chains_continue_across_two_gateways(store_url):
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
                assert await item_texts(client, f"responses/{end}/input_items") == ["start", "Hi", *own]


async def test_store_is_shared_by_two_gateways(store_url):
    async with two(store_url) as (one, other):
        response = await respond(one, input="a")
        request = {"model": "m", "messages": [{"role": "user", "content": "a"}], "store": True}
        completion = await create(one, "chat/completions", **request)
        conversation = (await create(one, "conversations", items=[{"role": "user", "content": "a"}]))["id"]
        await respond(other, input="b", conversation=conversation)

        assert await get_json(other, f"responses/{response['id']}") == response
        assert await item_texts(other, f"responses/{response['id']}/input_items") == ["a"]
        assert [one["id"] for one in (await get_json(other, "chat/completions"))["data"]] == [completion["id"]]
        assert await item_texts(one, f"conversations/{conversation}/items") == ["a", "b", "Hi"]
        await create(other, f"conversations/{conversation}", metadata={"a": "b"})
        assert (await get_json(one, f"conversations/{conversation}"))["metadata"] == {"a": "b"}

        paths = f"responses/{response['id']}", f"chat/completions/{completion['id']}", f"conversations/{conversation}"
        for path in paths:
            assert (await other.delete(f"/v1/{path}")).json()["deleted"] is True
            assert (await one.get(f"/v1/{path}")).status_code == 404


async def test_idempotency_key_gives_one_response_across_two_gateways(store_url):
    async with two(store_url) as clients:
        body, key = {"model": "m", "input": "a"}, {"idempotency-key": "k"}

        async def ask(client):
            answers = []

            async def in_use():
                answers.append(await client.post("/v1/responses", json=body, headers=key))
                return answers[-1].status_code == 409

            await until(in_use, False)
            return answers[-1].json()["id"]

        assert len({*await asyncio.gather(*map(ask, clients * 2))}) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_conversation_can_be_continued_elsewhere_at_the_last_event(stream, store_url):
    """The gateway of the first response still has work to do then."""
    store, answers, end = {"url": store_url}, [], b"response.completed" if stream else b'"Hi"'
    async with gateway(HELLO if stream else ANSWER, store=store) as site, gateway(ANSWER, store=store) as other:
        conversation = (await create(site.client, "conversations"))["id"]

        async def continue_at_end(message):
            if end in message.get("body", b""):
                answers.append(await other.respond(input="b", conversation=conversation))

        body = json.dumps({"model": "m", "input": "a", "conversation": conversation, "stream": stream})
        assert (await overheard(site, continue_at_end, body, path="/v1/responses")).status_code == 200
        assert [answer.status_code for answer in answers] == [200]
        assert await item_texts(other.client, f"conversations/{conversation}/items") == ["a", "Hi", "b", "Hi"]


async def test_conversation_serializes_requests_of_two_gateways(store_url, tmp_path):
    """The gateways are processes; a client sends a refused request again.

    The first response lasts until both gateways have refused a request, each further one but the last until one has.
    """
    busy, refused = asyncio.Lock(), []

    async def last_until_refusals(_):
        assert not busy.locked()
        async with busy:
            begin, done = len(refused), len(upstream.posts)
            wanted = 2 if done == 1 else min(1, REQUESTS - done)
            await until(lambda: len({number % 2 for number in refused[begin:]}) >= wanted)

    async with (
        asyncio.timeout(60),
        Upstream([[last_until_refusals, *ANSWER]], ()).serving() as upstream,
        process(upstream.url, store_url, tmp_path) as (_, one),
        process(upstream.url, store_url, tmp_path) as (_, other),
    ):
        conversation = (await create(one, "conversations"))["id"]

        async def ask(number):
            body = {"model": "m", "input": str(number), "conversation": conversation}

            async def succeeded():
                answer = await (one, other)[number % 2].post("/v1/responses", json=body)
                if answer.status_code == 200:
                    return True
                assert problem(answer)[::2] == (400, LOCKED)
                refused.append(number)
                return False

            await until(succeeded)

        await asyncio.gather(*map(ask, range(REQUESTS)))
        listed = await item_texts(other, f"conversations/{conversation}/items")
    assert sorted(listed[::2]) == [str(number) for number in range(REQUESTS)] and set(listed[1::2]) == {"Hi"}
    assert {number % 2 for number in refused} == {0, 1}
    contents = [[message["content"] for message in post.json["messages"]] for post in upstream.posts]
    assert contents == [listed[:length] for length in range(1, 2 * REQUESTS, 2)]  # each has all earlier items


# Several tenants

UNOWNED = {
    *((method, "/openapi.json") for method in ("GET", "HEAD")),
    *(
        ("GET", path)
        for path in ("/", "/docs", "/inspector", "/playground", "/usage", "/docs/warnings", "/assets/{digest}/{name}")
    ),
    *(
        ("GET", path)
        for path in (
            "/health",
            "/ready",
            "/metrics",
            "/v1/models",
            "/v1/models/{id:path}",
            "/v1/responses",
            "/admin/keys/log",
            "/admin/first-run",
            "/admin/overview",
            "/admin/usage",
        )
    ),
    ("POST", "/v1/conversations"),
    ("POST", "/v1/batches"),
}  # routes without the id of a stored object
LISTS = {
    ("GET", "/v1/chat/completions"),
    ("GET", "/v1/files"),
    ("GET", "/v1/batches"),
}  # lists of all objects of a tenant
RESPONSE, COMPLETION, CONVERSATION = "/v1/responses/{id}", "/v1/chat/completions/{id}", "/v1/conversations/{id}"
FILE, UPLOAD, BATCH = "/v1/files/{id}", "/v1/uploads/{id}", "/v1/batches/{id}"
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
    ("GET", FILE): None,
    ("GET", f"{FILE}/content"): None,
    ("DELETE", FILE): None,
    ("POST", f"{UPLOAD}/parts"): None,
    ("POST", f"{UPLOAD}/complete"): {"part_ids": ["part_1"]},
    ("POST", f"{UPLOAD}/cancel"): None,
    ("GET", BATCH): None,
    ("POST", f"{BATCH}/cancel"): None,
}  # the body for each route with an id
QUESTIONS = {("POST", f"/v1/{path}") for path in ("responses", "responses/compact", "responses/input_tokens")}
SERVICES = ("chat/completions", "completions", "embeddings", "rerank", "tokenize", "detokenize")
STATELESS = {
    *(("POST", f"/v1/{path}") for path in (*SERVICES, "messages", "messages/count_tokens", "files", "uploads")),
    *((row.method, row.path) for row in PASS_THROUGH),
}  # routes that cannot refer to a stored object
SOCKETS = {("CONNECT", "/v1/responses"), ("CONNECT", "/v1/realtime")}  # see test_websocket_state.py


def test_tenant_route_tables_cover_every_route():
    app = create_app(settings("http://127.0.0.1:9"))
    routes = {(method, route.path) for route in app.routes for method in getattr(route, "methods", ["CONNECT"])}
    heads = {path for method, path in routes if method == "HEAD"}
    assert heads <= {path for method, path in routes if method == "GET"}  # with what GET gives, but for the body
    known = UNOWNED | LISTS | {*FOREIGN} | QUESTIONS | STATELESS | SOCKETS
    assert all(route in known or route[0] == "HEAD" for route in routes) and known <= routes


class AnnsObjects:
    """One stored object of each sort, owned by the tenant ann."""

    def __init__(self, client):
        self._client = client

    async def make(self):
        self.response = await self._made("responses", model="m", input="a")
        messages = [{"role": "user", "content": "a"}]
        self.completion = await self._made("chat/completions", model="m", messages=messages, store=True)
        self.conversation = await self._made("conversations", items=[{"role": "user", "content": "a"}])
        form = {"files": {"file": ("a.json", b'{"a": 1}')}, "data": {"purpose": "user_data"}}
        self.file = (await self._client.post("/v1/files", **form, headers=ANN)).json()
        described = {"bytes": 1, "filename": "a", "mime_type": "text/plain", "purpose": "user_data"}
        self.upload = await self._made("uploads", **described)
        self.batch = await ended(self._client, await begin(self._client, [b"{}"], ANN), ANN)
        self.item = (await self._get(f"/v1/conversations/{self.conversation['id']}/items"))["data"][0]

    def path(self, path):
        kinds = {RESPONSE: self.response, COMPLETION: self.completion, CONVERSATION: self.conversation}
        kinds |= {FILE: self.file, UPLOAD: self.upload, BATCH: self.batch}
        one = next(one for start, one in kinds.items() if path.startswith(start))
        return path.format(id=one["id"], item_id=self.item["id"])

    def unnamed(self, text):
        objects = self.response, self.completion, self.conversation, self.item, self.file, self.upload, self.batch
        for one in objects:
            text = text.replace(one["id"], "nothing")
        return text

    async def seen(self):
        """Return everything that ann can read."""
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
        here = AnnsObjects(site.client)
        await here.make()
        yield here, site.client


async def test_tenant_gets_404_for_everything_of_another_tenant(anns):
    """The 404 for an object of another tenant is that for an unknown id, apart from the id."""
    here, client = anns
    before = await here.seen()
    for (method, path), body in FOREIGN.items():
        answer = await client.request(method, here.path(path), json=body, headers=BOB)
        unknown = await client.request(method, path.format(id="nothing", item_id="nothing"), json=body, headers=BOB)
        assert (answer.status_code, unknown.status_code) == (404, 404), (method, path)
        assert here.unnamed(answer.text) == unknown.text
    for _, path in LISTS:
        assert (await client.get(path, headers=BOB)).json()["data"] == []
    assert await here.seen() == before


async def test_tenant_cannot_refer_to_objects_of_another_tenant(anns):
    here, client = anns
    before = await here.seen()
    named = {
        "previous_response_not_found": {"previous_response_id": here.response["id"]},
        None: {"conversation": here.conversation["id"]},
    }
    for method, path in sorted(QUESTIONS):
        for code, fields in named.items():
            answer = await client.request(method, path, json={"model": "m", "input": "b", **fields}, headers=BOB)
            assert problem(answer)[2] == code and answer.status_code in (400, 404), path
            assert "not found" in answer.json()["error"]["message"]
        reference = {"type": "item_reference", "id": here.item["id"]}
        for items in ([reference], [{"id": here.response["output"][0]["id"]}]):
            answer = await client.request(method, path, json={"model": "m", "input": items}, headers=BOB)
            assert answer.status_code == 404
    reference = {"items": [{"type": "item_reference", "id": here.item["id"]}]}
    assert (await client.post("/v1/conversations", json=reference, headers=BOB)).status_code == 404
    assert await here.seen() == before


async def test_tenant_cannot_page_after_an_object_of_another_tenant(anns):
    here, client = anns
    for path, one in (("chat/completions", here.completion), ("files", here.file)):
        answer = await client.get(f"/v1/{path}", params={"after": one["id"]}, headers=BOB)
        assert problem(answer)[::3] == (400, "after")


async def test_idempotency_key_is_separate_per_tenant(anns):
    _, client = anns
    responses = [
        await client.post("/v1/responses", json={"model": "m", "input": "a"}, headers={**who, "idempotency-key": "k"})
        for who in (ANN, BOB, ANN)
    ]
    ann, bob, again = (answer.json()["id"] for answer in responses)
    assert ann == again != bob
