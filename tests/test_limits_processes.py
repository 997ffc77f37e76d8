"""Limits under load, right across processes: two workers of a gateway, and two gateways that share what counts."""

import asyncio
import time
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from processes import process
from scripted import HELLO_MESSAGES, Upstream, said, whole

pytest_plugins = ["counted"]
REQUESTS, TOKENS = 100, 1350  # a minute
USED = 9  # tokens of a request, which may take up to 20
CONNECTIONS = 8  # of each key
PATIENCE = 30  # refusals until a client gives up: 3 s; what one worker gives back another hears of within a second
ANN, BOB = ({"authorization": f"Bearer {name}-{'k' * 20}"} for name in ("ann", "bob"))
LIMITS = {"ann": {"requests_per_minute": REQUESTS}, "bob": {"tokens_per_minute": TOKENS}}
KEYS = {"keys": [{"name": name, "key": f"{name}-{'k' * 20}", "limits": limits} for name, limits in LIMITS.items()]}
BODY = {"model": "m", "messages": HELLO_MESSAGES, "max_tokens": 17}


@asynccontextmanager
async def serving(upstream, store, folder, *, workers=1, **sections):
    """A gateway's process, and where it is."""
    said = {"auth": KEYS, "server": {"workers": workers}, **sections}
    async with process(upstream.url, store, folder, **said) as (child, client):
        try:
            yield child, client.base_url
        finally:
            child.terminate()  # its workers with it
            await child.wait()


async def born(pid, number):
    """The processes of the workers."""
    async with asyncio.timeout(60):
        while len(found := children(pid)) < number + 1:  # and one of multiprocessing's  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return found[-number:]


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def opened(pid, file):
    """SQLite has a part of each database in memory that processes share."""
    return str(file) in Path(f"/proc/{pid}/maps").read_text()


async def ask_on(root, headers, admitted):
    """Until it has been refused so often that nothing can be left; on new connections, so that all workers get some."""
    refused = 0
    anew = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=root, headers=headers, timeout=20, verify=False, limits=anew) as client:
        while refused < PATIENCE:
            answer = await client.post("/v1/chat/completions", json=BODY)
            if answer.status_code == 200:
                admitted.append(answer)
            else:
                assert answer.status_code == 429 and int(answer.headers["retry-after"]) <= 120
                refused += 1
                await asyncio.sleep(0.1)


async def check(roots, who, cost, limit):
    """All that may come in does, and nothing beyond; where a minute begins meanwhile, a part of it is free again."""
    admitted, begun = [], time.time()
    await asyncio.gather(*(ask_on(root, who, admitted) for root in roots for _ in range(CONNECTIONS // len(roots))))
    ended, used = time.time(), len(admitted) * cost
    minute = ended // 60 * 60
    more = limit * (ended - minute) / 60 if begun < minute else 0
    assert 0.98 * limit <= used <= 1.02 * limit + more, f"{len(admitted)} came in within {ended - begun:.1f} s"


async def check_all(*roots):
    async with asyncio.timeout(80):
        await asyncio.gather(check(roots, ANN, 1, REQUESTS), check(roots, BOB, USED, TOKENS))


@pytest.fixture
async def upstream():
    async with Upstream([whole(said("Hi"))], ()).serving() as one:
        yield one


async def test_two_workers(upstream, tmp_path):
    file = tmp_path / "gateway.db"
    async with serving(upstream, f"sqlite:///{file}", tmp_path, workers=2) as (child, root):
        workers = await born(child.pid, 2)
        await check_all(root)
        assert all(opened(pid, file) for pid in workers)


@pytest.mark.parametrize("counted", ["postgresql", "redis"], indirect=True)
async def test_two_gateways(upstream, tmp_path, counted):
    store, more = counted["store"]["url"], {"limits": counted.get("limits", {})}
    async with (
        serving(upstream, store, tmp_path, **more) as (_, one),
        serving(upstream, store, tmp_path, **more) as (_, other),
    ):
        await check_all(one, other)
