"""Who waits for a backend, for how long, and who goes first."""

import asyncio

import pytest
from msgspec.structs import replace

from gateway.config import Queue
from gateway.server.admission import Asker, Gate, Place
from support.app import problem
from support.backends import fleet
from support.sse import comments, text_of
from support.upstream import HELLO, chunk, head, said, whole
from support.wait import until

FULL = (503, "server_error", "server_is_overloaded", None)


def slow(go):
    return [go, *HELLO]


async def asking(site, count, **said):
    """So many requests, each begun when the one before has got to its place."""
    tasks = []
    for _ in range(count):
        turns, before = site.backend("b0").gate.turns, site.backend("b0").gate.turns.running
        tasks.append(asyncio.create_task(site.chat(stream=True, **said)))
        await until(lambda turns=turns, before=before: turns.running > before)
    return tasks


async def test_a_backend_gets_so_many_at_a_time_and_the_others_wait():
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 2}]) as site:
        tasks = await asking(site, 5)
        await until(lambda: site.posts() == [2])
        go.set()
        assert [text_of((await one).text) for one in tasks] == ["Hi"] * 5
        assert site.backend("b0").gate.turns.running == 0


async def test_who_waits_is_kept_alive_after_the_grace():
    go = asyncio.Event()
    times = {"grace_seconds": 0.05, "keepalive_seconds": 0.05}
    async with fleet([slow(go)], backends=[{"concurrent": 1}], stream=times) as site:
        first, second = await asking(site, 2)
        await asyncio.sleep(0.2)
        go.set()
        assert text_of((await first).text) == text_of((await second).text) == "Hi"
        assert comments((await second).text)


async def test_where_too_many_wait_one_more_is_refused(caplog):
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 1, "queue": {"length": 1}}]) as site:
        tasks = await asking(site, 2)
        refused = await site.chat()
        assert problem(refused) == FULL and refused.headers["retry-after"] == "1"
        assert not caplog.records  # of a crowd, not each one is worth a line
        go.set()
        assert [(await one).status_code for one in tasks] == [200, 200]
        assert (await site.chat(stream=True)).status_code == 200


async def test_who_waits_for_too_long_is_refused():
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 1, "queue": {"seconds": 0.1}}]) as site:
        (first,) = await asking(site, 1)
        refused = await site.chat()
        assert problem(refused) == FULL and "too long" in refused.json()["error"]["message"]
        go.set()
        assert (await first).status_code == 200 and site.posts() == [1]


async def test_the_time_in_the_queue_is_not_the_backends():
    """Its first byte may take so long from the moment when it is asked."""
    go = asyncio.Event()
    of_it = {"concurrent": 1, "timeouts": {"first_byte": 0.5, "total": 0.5}}
    async with fleet([[head(), chunk("H"), go, *HELLO[1:]], HELLO], backends=[of_it | {"timeouts": {}}]) as site:
        site.backend("b0").timeouts = replace(site.backend("b0").timeouts, first_byte=0.3)
        tasks = await asking(site, 2)
        await asyncio.sleep(0.5)
        go.set()
        assert [(await one).status_code for one in tasks] == [200, 200]


async def test_others_are_asked_before_anybody_waits():
    go = asyncio.Event()
    async with fleet([slow(go)], [whole(said())], backends=[{"concurrent": 1}, {}]) as site:
        (first,) = await asking(site, 1)
        assert (await site.chat()).status_code == 200 and site.posts() == [1, 1]
        go.set()
        assert (await first).status_code == 200


async def test_who_leaves_the_queue_is_out_of_it():
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 1}]) as site:
        first, second = await asking(site, 2)
        second.cancel()
        await until(lambda: site.backend("b0").gate.turns.waiting == 0)
        go.set()
        assert (await first).status_code == 200 and site.posts() == [1]


async def test_a_turn_that_comes_while_nobody_sleeps_for_it_is_taken():
    now, gate = asyncio.get_running_loop().time(), Gate("b", 1, Queue())
    first, second = Place(gate, Asker(), now), Place(gate, Asker(), now)
    assert (first.taken, second.taken, await second.wait(0.01)) == (True, False, False)
    first.leave()
    assert not second.taken and await second.wait(0) and second.taken
    second.leave()
    assert gate.turns.running == 0


async def failed_meanwhile(site, go):
    """The answer to a request that waited when the circuit of its backend opened."""
    first, second = await asking(site, 2, user="a")
    gate = site.backend("b0").gate
    for _ in range(5):
        gate.probed(well=False)
    first.cancel()
    go.set()
    return await second


async def test_who_waits_is_not_sent_to_a_server_that_has_failed_meanwhile():
    go, busy = asyncio.Event(), {"concurrent": 1}
    async with fleet([slow(go)], [HELLO], backends=[busy, busy]) as site:
        site.backend("b1").gate.turns.limit = 0
        gate = site.backend("b1").gate
        for _ in range(5):
            gate.probed(well=False)
        answer = asyncio.create_task(failed_meanwhile(site, go))
        await until(lambda: site.backend("b0").gate.turns.running == 2)
        gate.probed(well=True)
        assert text_of((await answer).text) == "Hi" and site.posts() == [1, 1]


async def test_one_that_is_alone_is_waited_for_whatever_it_does():
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 1}]) as site:
        assert text_of((await failed_meanwhile(site, go)).text) == "Hi" and site.posts() == [2]


async def test_tenants_take_turns_and_priorities_have_more_of_them():
    go = asyncio.Event()
    names = {"many": "normal", "few": "normal", "high": "high"}
    keys = [{"name": name, "key": name * 3, "priority": priority} for name, priority in names.items()]
    async with fleet([slow(go)], backends=[{"concurrent": 1}], auth={"keys": keys}) as site:
        tasks = []
        for name, count in {"many": 6, "few": 2, "high": 4}.items():
            header = {"authorization": f"Bearer {name * 3}"}
            tasks += await asking(site, count, headers=header, user=name)
        go.set()
        await asyncio.gather(*tasks)
        order = [post.json["user"] for post in site.upstream.posts][1:]
        assert (order[:8].count("high"), order[:8].count("few"), order[-1]) == (4, 2, "many")


@pytest.mark.parametrize(("workers", "each"), [(1, 3), (2, 1), (8, 1)])
async def test_workers_share_what_a_backend_can_take(workers, each):
    async with fleet([HELLO], backends=[{"concurrent": 3}], server={"workers": workers}) as site:
        assert site.backend("b0").gate.turns.limit == each


async def test_an_embedding_waits_for_its_turn_as_well():
    go, vector = asyncio.Event(), {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}]}
    async with fleet([slow(go), whole({**vector, "model": "m"})], backends=[{"concurrent": 1}]) as site:
        (first,) = await asking(site, 1)
        embedding = asyncio.create_task(site.client.post("/v1/embeddings", json={"model": "m", "input": "a"}))
        await until(lambda: site.backend("b0").gate.turns.waiting == 1)
        assert site.posts() == [1]
        go.set()
        assert ((await first).status_code, (await embedding).status_code) == (200, 200)
