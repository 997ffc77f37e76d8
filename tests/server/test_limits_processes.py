"""Limits under load, right across processes: two workers of a gateway, and two gateways that share what counts."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.gateway_process import process
from support.limits import KEYS, check_all
from support.upstream import Upstream, said, whole


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
