"""Test the queue in front of a backend: limit, order, timeouts and fairness."""

import asyncio

import pytest

from gateway.config import QueueSettings
from gateway.server.upstream.slots import BackendLimiter, QueueIdentity, Slot
from support.app import HELLO_MESSAGES, bearer, problem
from support.backends import extend_pauses, fleet
from support.sse import comments, text_of
from support.upstream import HELLO, chunk, completion_body, head, whole
from support.wait import idle, until

STREAMED = {"model": "m", "messages": HELLO_MESSAGES, "stream": True}
FULL = (503, "server_error", "server_is_overloaded", None)


def slow(go):
    return [go, *HELLO]


async def start_requests(site, count, **fields):
    """Start so many requests, each when the one before has its slot or waits for it."""
    tasks = []
    for _ in range(count):
        turns, before = site.backend("b0").limiter.queue, site.backend("b0").limiter.queue.total
        tasks.append(asyncio.create_task(site.chat(stream=True, **fields)))
        await until(lambda turns=turns, before=before: turns.total > before)
    return tasks


async def test_queue_holds_requests_beyond_the_backend_limit():
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 2}]) as site:
        tasks = await start_requests(site, 5)
        await until(lambda: site.posts() == [2])
        go.set()
        assert [text_of((await one).text) for one in tasks] == ["Hi"] * 5
        assert site.backend("b0").limiter.queue.total == 0


async def test_queue_sends_keepalives_to_a_waiting_request_after_the_grace():
    go = asyncio.Event()
    times = {"grace_seconds": 0.05, "keepalive_seconds": 0.05}
    async with fleet([slow(go)], backends=[{"concurrent": 1}], stream=times) as site:
        (first,) = await start_requests(site, 1)
        async with site.client.stream("POST", "/v1/chat/completions", json=STREAMED) as second:
            text = ""
            async for piece in second.aiter_text():
                text += piece
                if comments(text):
                    go.set()
        assert text_of((await first).text) == text_of(text) == "Hi" and comments(text)


async def test_queue_that_is_full_refuses_the_next_request(caplog):
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 1, "queue": {"length": 1}}]) as site:
        tasks = await start_requests(site, 2)
        refused = await site.chat()
        assert problem(refused) == FULL and refused.headers["retry-after"] == "1"
        assert not caplog.records  # of a crowd, not each one is worth a line
        go.set()
        assert [(await one).status_code for one in tasks] == [200, 200]
        assert (await site.chat(stream=True)).status_code == 200


async def test_queue_refuses_a_request_that_waits_too_long():
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 1, "queue": {"seconds": 0.1}}]) as site:
        (first,) = await start_requests(site, 1)
        refused = await site.chat()
        assert problem(refused) == FULL and "waited for" in refused.json()["error"]["message"]
        go.set()
        assert (await first).status_code == 200 and site.posts() == [1]


async def test_queue_time_does_not_count_for_the_first_byte_timeout():
    """The timeout of the first byte begins when the gateway asks the backend."""
    go = asyncio.Event()
    backend = {"concurrent": 1, "timeouts": {"first_byte": 1}}
    async with fleet([[head(), chunk("H"), go, *HELLO[1:]], HELLO], backends=[backend]) as site:
        tasks = await start_requests(site, 2)
        await idle(1.1)
        go.set()
        assert [(await one).status_code for one in tasks] == [200, 200]


async def test_queue_is_not_used_while_another_backend_is_free():
    go = asyncio.Event()
    async with fleet([slow(go)], [whole(completion_body())], backends=[{"concurrent": 1}, {}]) as site:
        (first,) = await start_requests(site, 1)
        assert (await site.chat()).status_code == 200 and site.posts() == [1, 1]
        go.set()
        assert (await first).status_code == 200


async def test_queue_forgets_a_request_whose_client_disconnects():
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 1}]) as site:
        first, second = await start_requests(site, 2)
        second.cancel()
        await until(lambda: site.backend("b0").limiter.queue.waiting == 0)
        go.set()
        assert (await first).status_code == 200 and site.posts() == [1]


async def test_queue_slot_that_is_granted_between_two_waits_is_taken():
    limiter = BackendLimiter("b", 1, QueueSettings())
    first, second = Slot(limiter, QueueIdentity()), Slot(limiter, QueueIdentity())
    assert (first.is_acquired, second.is_acquired, await second.wait(0.01)) == (True, False, False)
    first.release()
    assert not second.is_acquired and await second.wait(0) and second.is_acquired
    second.release()
    assert limiter.queue.total == 0


async def failed_meanwhile(site, go, before=lambda: None):
    """Return the response to a request that waited when the circuit of its backend opened; call `before` first."""
    first, second = await start_requests(site, 2, user="a")
    before()
    extend_pauses(site)
    limiter = site.backend("b0").limiter
    for _ in range(5):
        limiter.record_probe(succeeded=False)
    first.cancel()
    go.set()
    return await second


async def test_queue_moves_a_request_if_its_backend_fails_meanwhile():
    go, busy = asyncio.Event(), {"concurrent": 1}
    async with fleet([slow(go)], [HELLO], backends=[busy, busy]) as site:
        extend_pauses(site, "b1")
        site.backend("b1").limiter.queue.limit = 0
        limiter = site.backend("b1").limiter
        for _ in range(5):
            limiter.record_probe(succeeded=False)
        answer = await failed_meanwhile(site, go, before=lambda: limiter.record_probe(succeeded=True))
        assert text_of(answer.text) == "Hi" and site.posts() == [1, 1]


async def test_queue_of_an_only_backend_serves_while_its_circuit_is_open():
    go = asyncio.Event()
    async with fleet([slow(go)], backends=[{"concurrent": 1}]) as site:
        assert text_of((await failed_meanwhile(site, go)).text) == "Hi" and site.posts() == [2]


async def test_queue_is_fair_to_tenants_and_favors_a_high_priority():
    go = asyncio.Event()
    names = {"many": "normal", "few": "normal", "high": "high"}
    keys = [{"name": name, "key": name * 3, "priority": priority} for name, priority in names.items()]
    async with fleet([slow(go)], backends=[{"concurrent": 1}], auth={"keys": keys}) as site:
        tasks = []
        for name, count in {"many": 6, "few": 2, "high": 4}.items():
            header = bearer(name * 3)
            tasks += await start_requests(site, count, headers=header, user=name)
        go.set()
        await asyncio.gather(*tasks)
        order = [post.json["user"] for post in site.upstream.posts][1:]
        assert (order[:8].count("high"), order[:8].count("few"), order[-1]) == (4, 2, "many")


@pytest.mark.parametrize(("workers", "each"), [(1, 3), (2, 1), (8, 1)])
async def test_limit_of_a_backend_is_shared_by_the_workers(workers, each):
    async with fleet([HELLO], backends=[{"concurrent": 3}], server={"workers": workers}) as site:
        assert site.backend("b0").limiter.queue.limit == each


async def test_queue_holds_an_embeddings_request_too():
    go, vector = asyncio.Event(), {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}]}
    async with fleet([slow(go), whole({**vector, "model": "m"})], backends=[{"concurrent": 1}]) as site:
        (first,) = await start_requests(site, 1)
        embedding = asyncio.create_task(site.client.post("/v1/embeddings", json={"model": "m", "input": "a"}))
        await until(lambda: site.backend("b0").limiter.queue.waiting == 1)
        assert site.posts() == [1]
        go.set()
        assert ((await first).status_code, (await embedding).status_code) == (200, 200)


# What the log says


async def test_circuit_logs_a_failure_and_a_recovery_once_each(caplog):
    limiter = BackendLimiter("laptop", 0, QueueSettings())

    def log_lines():
        lines = [record.message.partition(":")[0] for record in caplog.records]
        caplog.clear()
        return lines

    def fail(times):
        for _ in range(times):
            limiter.record_probe(succeeded=False)

    fail(4)
    assert log_lines() == []
    fail(3)
    assert log_lines() == ["backend laptop failed repeatedly"]
    limiter.record_probe(succeeded=True)
    limiter.record_probe(succeeded=True)
    assert log_lines() == ["backend laptop is available again"]
    trial = Slot(limiter, QueueIdentity())
    trial.record_failure()
    assert log_lines() == [], "a probe is well, and requests still fail"
    limiter.record_probe(succeeded=True)
    trial = Slot(limiter, QueueIdentity())
    trial.record_success()
    assert log_lines() == [] and limiter.health.state(asyncio.get_running_loop().time()) == "closed"
    fail(5)
    assert log_lines() == ["backend laptop failed repeatedly"]
