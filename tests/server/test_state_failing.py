"""A store that fails while the gateway serves: answers reach clients and say so, the rest is 503; then all is well."""

import asyncio
import resource
import sqlite3
from contextlib import AsyncExitStack

from support.app import gateway, problem
from support.gateway_process import process
from support.sse import comments, events
from support.upstream import COUNTS, DONE, END, Upstream, chunk, frame, head, said, whole

UNAVAILABLE = (503, "server_error", "store_unavailable", None)


class Client:
    """Of a gateway; what it asks has nothing to be looked up, or needs the store."""

    def __init__(self, http):
        self.http = http

    async def begin(self):
        """Something is in the store already."""
        self.conversation = (await self.post("conversations")).json()["id"]
        self.first = (await self.respond(input="a")).json()

    async def post(self, path, **body):
        return await self.http.post(f"/v1/{path}", json=body)

    async def get(self, path):
        return await self.http.get(f"/v1/{path}")

    async def respond(self, **asked):
        return await self.post("responses", model="m", **asked)

    async def answers_and_says_that_it_is_not_stored(self, **asked):
        answer = await self.respond(input="b", **asked)
        assert (answer.status_code, answer.headers["x-gateway-warnings"]) == (200, "dropped:store"), answer.text
        told = answer.json()
        assert (told["status"], told["store"], told["output"][0]["content"][0]["text"]) == ("completed", False, "Hi")

    async def completes_and_says_that_it_is_not_stored(self):
        messages = [{"role": "user", "content": "b"}]
        answer = await self.post("chat/completions", model="m", messages=messages, store=True)
        assert (answer.status_code, answer.headers["x-gateway-warnings"]) == (200, "dropped:store")
        assert answer.json()["choices"][0]["message"]["content"] == "Hi"

    async def cannot_write(self):
        """Requests that have to."""
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
        for asked in ({"previous_response_id": self.first["id"]}, {"conversation": self.conversation}):
            answer = await self.respond(input="c", **asked)
            assert (answer.status_code, answer.json()["store"]) == (200, True), answer.text
            assert "x-gateway-warnings" not in answer.headers
            assert (await self.get(f"responses/{answer.json()['id']}")).json() == answer.json()
        listed = (await self.get(f"conversations/{self.conversation}/items")).json()["data"]
        assert [item["content"][0]["text"] for item in listed] == ["Hi", "c"]


ANSWER = whole(said("Hi"))


async def test_a_disk_that_is_full(tmp_path):
    """The process may make no file larger than it is."""
    async with (
        Upstream([ANSWER], ()).serving() as upstream,
        process(upstream.url, f"sqlite:///{tmp_path}/gateway.db", tmp_path) as (child, http),
    ):
        client = Client(http)
        await client.begin()
        before = resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        await client.answers_and_says_that_it_is_not_stored()
        await client.answers_and_says_that_it_is_not_stored(previous_response_id=client.first["id"])
        await client.completes_and_says_that_it_is_not_stored()
        await client.cannot_write()
        await client.reads()
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, before)
        await client.is_well()


async def test_a_database_that_another_process_has_locked_for_too_long(tmp_path):
    """Each request at a gateway of its own, so that none has to wait for another one's connection as well."""
    file = tmp_path / "gateway.db"
    async with AsyncExitStack() as stack:
        sites = [await stack.enter_async_context(gateway(ANSWER, store={"url": f"sqlite:///{file}"})) for _ in range(4)]
        one, two, three, four = clients = [Client(site.client) for site in sites]
        for client in clients:
            await client.begin()
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        await asyncio.gather(
            one.answers_and_says_that_it_is_not_stored(),
            two.answers_and_says_that_it_is_not_stored(previous_response_id=two.first["id"]),
            three.completes_and_says_that_it_is_not_stored(),
            four.cannot_write(),
            one.reads(),
        )
        other.execute("ROLLBACK")
        other.close()
        for client in clients:
            await client.is_well()


async def test_a_file_that_is_no_database(tmp_path):
    file = tmp_path / "gateway.db"
    async with gateway(ANSWER, store={"url": f"sqlite:///{file}"}) as site:
        client = Client(site.client)
        await client.begin()
    good = file.read_bytes()
    file.write_bytes(b"garbage " * 1000)
    async with gateway(ANSWER, store={"url": f"sqlite:///{file}"}) as site:
        client.http = site.client
        await client.answers_and_says_that_it_is_not_stored()
        await client.cannot_write()
        await client.cannot_read()
        file.write_bytes(good)
        await client.is_well()


async def test_a_file_that_becomes_garbage_while_it_is_used(tmp_path):
    file = tmp_path / "gateway.db"
    async with gateway(ANSWER, store={"url": f"sqlite:///{file}"}) as site:
        client = Client(site.client)
        await client.begin()
        with sqlite3.connect(file) as other:
            other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        other.close()
        good = file.read_bytes()
        file.write_bytes(b"garbage " * (len(good) // 8))
        await client.answers_and_says_that_it_is_not_stored()
        await client.cannot_write()
        await client.cannot_read()
        file.write_bytes(good)
        await client.is_well()


async def test_a_server_that_is_stopped_and_started_again(postgres):
    async with gateway(ANSWER, store={"url": postgres.create("stopped")}) as site:
        client = Client(site.client)
        await client.begin()
        postgres.stop()
        await client.answers_and_says_that_it_is_not_stored()
        await client.completes_and_says_that_it_is_not_stored()
        await client.cannot_write()
        await client.cannot_read()
        postgres.start()
        await client.is_well()


async def test_a_server_that_stops_in_the_midst_of_an_answer(postgres):
    """The conversation has neither the question nor the answer, and is locked until the lease ends."""
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
