"""Test a store that fails while the gateway serves: unstored responses carry a warning, lookups answer 503, and the store recovers."""

import asyncio
import resource
from contextlib import AsyncExitStack

import pytest

from support.app import gateway, problem
from support.gateway_process import process
from support.sqlite_file import locked, run_statement
from support.sse import comments, events
from support.upstream import COUNTS, DONE, END, Upstream, chunk, completion_body, frame, head, whole

UNAVAILABLE = (503, "server_error", "store_unavailable", None)


@pytest.fixture(scope="module")
def postgres(own_postgres):
    """Return a PostgreSQL that the tests of this module stop."""
    return own_postgres


class Client:
    """A client of a gateway that checks how requests with and without a lookup in the store are answered."""

    def __init__(self, http):
        self.http = http

    async def begin(self):
        """Store a conversation and a response."""
        self.conversation = (await self.post("conversations")).json()["id"]
        self.first = (await self.respond(input="a")).json()

    async def post(self, path, **body):
        return await self.http.post(f"/v1/{path}", json=body)

    async def get(self, path):
        return await self.http.get(f"/v1/{path}")

    async def respond(self, **fields):
        return await self.post("responses", model="m", **fields)

    async def responds_with_a_warning(self, **fields):
        answer = await self.respond(input="b", **fields)
        assert (answer.status_code, answer.headers["x-gateway-warnings"]) == (200, "dropped:store"), answer.text
        response = answer.json()
        assert (response["status"], response["store"], response["output"][0]["content"][0]["text"]) == (
            "completed",
            False,
            "Hi",
        )

    async def completes_with_a_warning(self):
        messages = [{"role": "user", "content": "b"}]
        answer = await self.post("chat/completions", model="m", messages=messages, store=True)
        assert (answer.status_code, answer.headers["x-gateway-warnings"]) == (200, "dropped:store")
        assert answer.json()["choices"][0]["message"]["content"] == "Hi"

    async def cannot_write(self):
        """Check that requests that write to the store answer 503."""
        for answer in await asyncio.gather(
            self.respond(input="b", conversation=self.conversation),
            self.post("conversations"),
            self.http.delete(f"/v1/responses/{self.first['id']}"),
        ):
            assert problem(answer) == UNAVAILABLE

    async def cannot_read(self):
        for answer in await asyncio.gather(
            self.respond(input="b", previous_response_id=self.first["id"]),
            self.get(f"responses/{self.first['id']}"),
            self.get(f"conversations/{self.conversation}/items"),
            self.get("chat/completions"),
        ):
            assert problem(answer) == UNAVAILABLE

    async def reads(self):
        assert (await self.get(f"responses/{self.first['id']}")).json() == self.first

    async def is_well(self):
        await self.reads()
        for fields in ({"previous_response_id": self.first["id"]}, {"conversation": self.conversation}):
            answer = await self.respond(input="c", **fields)
            assert (answer.status_code, answer.json()["store"]) == (200, True), answer.text
            assert "x-gateway-warnings" not in answer.headers
            assert (await self.get(f"responses/{answer.json()['id']}")).json() == answer.json()
        listed = (await self.get(f"conversations/{self.conversation}/items")).json()["data"]
        assert [item["content"][0]["text"] for item in listed] == ["Hi", "c"]


ANSWER = whole(completion_body("Hi"))


async def test_store_recovers_from_a_full_disk(tmp_path):
    """A file size limit of 0 bytes stands for the full disk."""
    async with (
        Upstream([ANSWER], ()).serving() as upstream,
        process(upstream.url, f"sqlite:///{tmp_path}/gateway.db", tmp_path) as (child, http),
    ):
        client = Client(http)
        await client.begin()
        before = resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        await client.responds_with_a_warning()
        await client.responds_with_a_warning(previous_response_id=client.first["id"])
        await client.completes_with_a_warning()
        await client.cannot_write()
        await client.reads()
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, before)
        await client.is_well()


@pytest.mark.parametrize("replaced", [False, True], ids=["deleted", "replaced"])
async def test_store_notices_that_its_file_is_gone(tmp_path, replaced, caplog):
    file, aside = tmp_path / "gateway.db", tmp_path / "aside.db"
    async with gateway(ANSWER, store={"url": f"sqlite:///{file}"}) as site:
        assert (await site.client.get("/ready")).status_code == 200
        client = Client(site.client)
        await client.begin()
        file.rename(aside)
        if replaced:
            file.write_bytes(b"")
        await client.responds_with_a_warning()
        await client.cannot_write()
        await client.cannot_read()
        ready = await site.client.get("/ready")
        assert (ready.status_code, ready.json()) == (503, {"backends": {"up": "ok"}, "store": "lost"})
        assert str(file) in caplog.text and "restart" in (await client.get("chat/completions")).text
        aside.rename(file)
        await client.is_well()
        assert (await site.client.get("/ready")).status_code == 200


async def test_store_recovers_after_a_lock_by_another_process(tmp_path, monkeypatch):
    """Each request has its own gateway, so that no request also waits for the connection of another one."""
    monkeypatch.setattr("gateway.store.engines._LOCKED", 1)
    file = tmp_path / "gateway.db"
    async with AsyncExitStack() as stack:
        sites = [await stack.enter_async_context(gateway(ANSWER, store={"url": f"sqlite:///{file}"})) for _ in range(4)]
        one, two, three, four = clients = [Client(site.client) for site in sites]
        for client in clients:
            await client.begin()
        async with locked(file):
            await asyncio.gather(
                one.responds_with_a_warning(),
                two.responds_with_a_warning(previous_response_id=two.first["id"]),
                three.completes_with_a_warning(),
                four.cannot_write(),
                one.reads(),
            )
        for client in clients:
            await client.is_well()


async def test_store_recovers_from_a_file_that_is_not_a_database(tmp_path):
    file = tmp_path / "gateway.db"
    async with gateway(ANSWER, store={"url": f"sqlite:///{file}"}) as site:
        client = Client(site.client)
        await client.begin()
    good = file.read_bytes()
    file.write_bytes(b"garbage " * 1000)
    async with gateway(ANSWER, store={"url": f"sqlite:///{file}"}) as site:
        client.http = site.client
        await client.responds_with_a_warning()
        await client.cannot_write()
        await client.cannot_read()
        file.write_bytes(good)
        await client.is_well()


async def test_store_recovers_from_a_file_corrupted_in_use(tmp_path):
    file = tmp_path / "gateway.db"
    async with gateway(ANSWER, store={"url": f"sqlite:///{file}"}) as site:
        client = Client(site.client)
        await client.begin()
        await run_statement(file, "PRAGMA wal_checkpoint(TRUNCATE)")
        good = file.read_bytes()
        file.write_bytes(b"garbage " * (len(good) // 8))
        await client.responds_with_a_warning()
        await client.cannot_write()
        await client.cannot_read()
        file.write_bytes(good)
        await client.is_well()


async def test_store_recovers_after_a_postgresql_restart(postgres):
    async with gateway(ANSWER, store={"url": postgres.create("stopped")}) as site:
        client = Client(site.client)
        await client.begin()
        postgres.stop()
        await client.responds_with_a_warning()
        await client.completes_with_a_warning()
        await client.cannot_write()
        await client.cannot_read()
        postgres.start()
        await client.is_well()


async def test_store_lost_during_a_response_leaves_its_conversation_locked(postgres):
    """The conversation has no item of the request or response, and is locked until its lease ends."""
    go_on = asyncio.Event()
    slow = [head(), chunk("H"), go_on, chunk("i"), chunk(finish="stop"), frame(choices=[], usage=COUNTS), DONE, END]
    async with gateway(ANSWER, slow, store={"url": postgres.create("midst")}) as site:
        client = Client(site.client)
        await client.begin()
        site.upstream.arrived.clear()
        answering = asyncio.create_task(client.respond(input="b", stream=True, conversation=client.conversation))
        await site.upstream.arrived.wait()
        postgres.stop()
        go_on.set()
        answer = await answering
        postgres.start()
        ended = events(answer.text)[-1]["response"]
        assert (ended["status"], ended["store"]) == ("completed", False)
        assert comments(answer.text) == [": gateway-warnings dropped:store"]
        assert (await client.get(f"responses/{ended['id']}")).status_code == 404
        assert (await client.get(f"conversations/{client.conversation}/items")).json()["data"] == []
        answer = await client.respond(input="c", conversation=client.conversation)
        assert problem(answer)[2] == "conversation_locked"
