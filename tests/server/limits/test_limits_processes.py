"""Test that limits hold under load across two workers of a gateway, and across two gateways."""

from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.gateway_process import process
from support.limits import KEYS, TEAM, check_all, check_group_budget
from support.serve_process import workers_of
from support.upstream import Upstream, completion_body, whole
from support.wait import until


@asynccontextmanager
async def serving(upstream, store, folder, *, workers=1, auth=KEYS, **sections):
    """Start a gateway as a process; yield the process and its URL."""
    all_sections = {"auth": auth, "server": {"workers": workers}, **sections}
    async with process(upstream.url, store, folder, **all_sections) as (child, client):
        try:
            yield child, client.base_url
        finally:
            child.terminate()  # its workers with it
            await child.wait()


def has_opened(pid, file):
    """Return whether a process shares memory with others for this SQLite database."""
    return str(file) in Path(f"/proc/{pid}/maps").read_text()


@pytest.fixture
async def upstream():
    async with Upstream([whole(completion_body("Hi"))], ()).serving() as one:
        yield one


async def test_limit_holds_across_two_workers(upstream, tmp_path):
    file = tmp_path / "gateway.db"
    async with serving(upstream, f"sqlite:///{file}", tmp_path, workers=2) as (child, root):
        await until(lambda: len(workers_of(child.pid)), 2)
        workers = workers_of(child.pid)
        await check_all(root)
        assert all(has_opened(pid, file) for pid in workers)


@pytest.mark.parametrize("counted", ["postgresql", "redis"], indirect=True)
async def test_limit_holds_across_two_gateways(upstream, tmp_path, counted):
    store, more = counted["store"]["url"], {"limits": counted.get("limits", {})}
    async with (
        serving(upstream, store, tmp_path, **more) as (_, one),
        serving(upstream, store, tmp_path, **more) as (_, other),
    ):
        await check_all(one, other)


async def test_budget_of_a_group_holds_across_two_workers(upstream, tmp_path):
    store = f"sqlite:///{tmp_path}/gateway.db"
    async with serving(upstream, store, tmp_path, workers=2, auth=TEAM) as (child, root):
        await until(lambda: len(workers_of(child.pid)), 2)
        await check_group_budget(root)


@pytest.mark.parametrize("counted", ["postgresql", "redis"], indirect=True)
async def test_budget_of_a_group_holds_across_two_gateways(upstream, tmp_path, counted):
    store, more = counted["store"]["url"], {"limits": counted.get("limits", {}), "auth": TEAM}
    async with (
        serving(upstream, store, tmp_path, **more) as (_, one),
        serving(upstream, store, tmp_path, **more) as (_, other),
    ):
        await check_group_budget(one, other)
