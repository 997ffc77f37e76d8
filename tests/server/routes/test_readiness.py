"""Test what `/ready` requires."""

import asyncio
from datetime import UTC, datetime

import pytest

from gateway import installation
from gateway.errors import StoreFailed
from gateway.server.routes import readiness
from gateway.server.routes.readiness import SharedCheck
from support.app import gateway
from support.ports import free_port
from support.tls import issue
from support.upstream import CLOSE, HELLO

GONE = {"gone": {"url": "http://127.0.0.1:1"}}


class Check:
    """A check that counts its calls.

    fails: it raises StoreFailed; begun: it has been called; go: it waits for this event.
    """

    def __init__(self):
        self.times, self.fails, self.begun, self.go = 0, False, asyncio.Event(), asyncio.Event()
        self.go.set()

    async def __call__(self):
        self.times += 1
        self.begun.set()
        await self.go.wait()
        if self.fails:
            raise StoreFailed("The store is unavailable.")


async def test_shared_check_runs_once_for_all_callers_of_a_second():
    now, check = [0.0], Check()
    shared = SharedCheck(check, lambda: now[0])
    check.go.clear()
    callers = [asyncio.create_task(shared.state()) for _ in range(3)]
    await check.begun.wait()
    check.go.set()
    assert await asyncio.gather(*callers) == ["ok"] * 3
    check.fails = True
    assert (await shared.state(), check.times) == ("ok", 1)
    now[0] = 1.0
    assert (await shared.state(), check.times) == ("unreachable", 2)


async def test_shared_check_that_takes_long_goes_on(monkeypatch):
    monkeypatch.setattr(readiness, "_SECONDS", 0)
    check = Check()
    check.go.clear()
    shared = SharedCheck(check, lambda: 0.0)
    assert await shared.state() == await shared.state() == "unreachable"
    check.go.set()
    await shared._task
    assert (await shared.state(), check.times) == ("ok", 1)


@pytest.mark.parametrize(
    ("ready", "status", "found"),
    [
        ([], 200, {}),
        (["any_backend"], 200, {}),
        (["all_backends"], 503, {}),
        (["any_backend", "store"], 200, {"store": "ok"}),
        (["redis", "store"], 503, {"redis": "unreachable", "store": "ok"}),
        (["certificate", "extras"], 200, {"certificate": "ok", "extras": "ok"}),
    ],
)
async def test_ready_requires_what_the_configuration_says(ready, status, found):
    limits = {"url": f"redis://127.0.0.1:{free_port()}"}
    async with gateway(HELLO, server={"ready": ready}, limits=limits, more_backends=GONE) as site:
        answer = await site.client.get("/ready")
        assert (answer.status_code, answer.json()) == (
            status,
            {"backends": {"up": "ok", "gone": "unreachable"}, **found},
        )


async def test_ready_needs_no_backend_unless_it_is_required():
    async with gateway(HELLO, models=[CLOSE], server={"ready": ["store"]}) as site:
        answer = await site.client.get("/ready")
        assert (answer.status_code, answer.json()) == (200, {"backends": {"up": "unreachable"}, "store": "ok"})


@pytest.mark.parametrize("broken", [False, True], ids=["expired", "unreadable"])
async def test_ready_fails_with_an_invalid_certificate(tmp_path, broken):
    tls = issue(tmp_path, not_after=datetime(2001, 1, 1, tzinfo=UTC))
    tls |= {name: f"{tmp_path}/{tls[name]}" for name in ("certificate", "key")}
    if broken:
        (tmp_path / "cert.pem").write_text("")
    async with gateway(HELLO, server={"tls": tls, "ready": ["certificate"]}) as site:
        answer = await site.client.get("/ready")
        assert (answer.status_code, answer.json()["certificate"]) == (503, "invalid")


async def test_ready_fails_without_the_packages_of_an_extra(monkeypatch):
    monkeypatch.setattr(installation, "find_spec", lambda _: None)
    async with gateway(HELLO, server={"ready": ["extras"]}, tracing={"enabled": True}) as site:
        answer = await site.client.get("/ready")
        assert (answer.status_code, answer.json()["extras"]) == (503, "missing")


async def test_ready_asks_redis_and_the_store(redis_url, store_url):
    sections = {"limits": {"url": redis_url}, "store": {"url": store_url}, "server": {"ready": ["redis", "store"]}}
    async with gateway(HELLO, **sections) as site:
        answer = await site.client.get("/ready")
        assert (answer.status_code, answer.json()) == (
            200,
            {"backends": {"up": "ok"}, "redis": "ok", "store": "ok"},
        )


async def test_ready_fails_with_a_store_that_does_not_respond():
    store = {"url": f"postgresql://u@127.0.0.1:{free_port()}/db"}
    async with gateway(HELLO, store=store, server={"ready": ["store"]}) as site:
        answer = await site.client.get("/ready")
        assert (answer.status_code, answer.json()["store"]) == (503, "unreachable")
