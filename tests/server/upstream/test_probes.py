"""Test probes: the gateway asks a backend for its health if that matters."""

from support.backends import circuit_state, extend_pauses, fleet
from support.faults import fail_once
from support.sse import text_of
from support.upstream import CLOSE, HELLO, whole
from support.wait import idle, until

OFTEN = {"probe_seconds": 0.05}


async def test_probe_runs_always_for_a_backend_of_several():
    async with fleet([HELLO], [HELLO], backends=[OFTEN, OFTEN]) as site:
        await until(lambda: min(len(one.gets) for one in site.upstreams.values()) >= 2)
        extend_pauses(site)
        site.upstreams["b0"].answer_lists_with([CLOSE])
        await until(lambda: circuit_state(site, "b0") == "open")
        assert text_of((await site.chat(stream=True)).text) == "Hi" and site.posts() == [0, 1]


async def test_probe_runs_after_a_programming_error(monkeypatch, caplog):
    fail_once(monkeypatch, "gateway.server.upstream.backend.Backend.alive")
    async with fleet([HELLO], [HELLO], backends=[OFTEN, OFTEN]) as site:
        await until(lambda: min(len(one.gets) for one in site.upstreams.values()) >= 2)
    assert "the probe of a backend failed, the gateway tries again" in caplog.messages


async def test_probe_that_is_answered_with_503_opens_the_circuit():
    async with fleet([HELLO], [HELLO], backends=[OFTEN, OFTEN]) as site:
        extend_pauses(site)
        site.upstreams["b0"].answer_lists_with(whole({"error": "loading model"}, 503))
        await until(lambda: circuit_state(site, "b0") == "open")


async def test_probe_of_an_only_backend_runs_while_its_circuit_is_open():
    async with fleet([*[[CLOSE]] * 5, HELLO], backends=[OFTEN], model={"retries": 0}) as site:
        extend_pauses(site)
        await idle(0.2)
        assert not site.upstream.gets
        for _ in range(5):
            assert (await site.chat()).status_code == 502
        await until(lambda: circuit_state(site, "b0") == "half_open")
        assert site.upstream.gets
        assert text_of((await site.chat(stream=True)).text) == "Hi" and circuit_state(site, "b0") == "closed"


async def test_probe_does_not_run_if_disabled():
    async with fleet([HELLO], [HELLO]) as site:
        await idle(0.2)
        assert [one.gets for one in site.upstreams.values()] == [[], []]
