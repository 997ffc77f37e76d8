"""Several workers: whoever is asked for the overview tells what all of them see."""

import asyncio

from gateway.server.telemetry.folder import end
from gateway.server.telemetry.shared import Shared
from gateway.server.telemetry.sight import Sight
from support.serve_process import asked, config_of, first, living, rest, streaming
from support.upstream import DONE, END, HELLO, Upstream, chunk, head
from support.worker_processes import gateway_with

PATH = "/admin/overview"


async def look(gateway):
    """By a connection of its own, which any worker may take; again where the other one took too long to tell."""
    while True:
        answer = await gateway.client.get(PATH, headers={"connection": "close"})
        assert answer.status_code == 200, answer.text
        seen = answer.json()
        if seen["workers"] == {"configured": 2, "heard": 2}:
            return seen


async def test_whoever_is_asked_tells_of_all(tmp_path):
    go = asyncio.Event()
    slow = [head(), chunk("Hel"), go, chunk("lo"), chunk(finish="stop"), DONE, END]
    async with (
        asyncio.timeout(90),
        Upstream([slow, slow, HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", "2") as gateway,
        streaming(gateway) as one,
        streaming(gateway) as two,
    ):
        streams = [await first(one, "Hel"), await first(two, "Hel")]
        ids = {one.headers["x-request-id"], two.headers["x-request-id"]}
        for _ in range(4):
            seen = await look(gateway)
            assert {request["id"] for request in seen["requests"] if request["live"]} == ids
            assert seen["pace"]["in_flight"] == seen["backends"][0]["pace"]["in_flight"] == 2
        go.set()
        for stream in streams:
            await rest(*stream)
        ids |= {answer.headers["x-request-id"] for answer in await asyncio.gather(*(asked(gateway) for _ in range(8)))}
        for _ in range(4):
            seen = await look(gateway)
            assert {request["id"] for request in seen["requests"]} == ids
            assert not any(request["live"] for request in seen["requests"])


# What is shared


def test_what_a_worker_sees_is_written_when_somebody_wants_to_know(tmp_path):
    mine, other = (Shared(tmp_path / f"{number}.tally") for number in range(2))
    assert not other.wished()
    wished = mine.wish()
    assert other.wished() and not other.wished(), "once"
    sight = Sight([], [], [], {})
    mine.show(sight)
    assert [*mine.shown(wished)] == [], "its own it knows"
    other.show(sight)
    assert [*mine.shown(wished)] == [sight]
    assert [*mine.shown(wished + 10**12)] == [], "what is old is not what it sees"
    end(tmp_path / "1.tally")
    assert [*mine.shown(wished)] == []


async def test_two_that_share_a_folder_tell_of_each_other(tmp_path):
    one, two = (Shared(tmp_path / f"{number}.tally") for number in range(2))
    async with gateway_with(one) as first_one, gateway_with(two) as other:
        ids = {(await site.chat()).headers["x-request-id"] for site in (first_one, other)}
        for site in (first_one, other):
            seen = (await site.client.get(PATH)).json()
            assert seen["workers"]["heard"] == 2 and {one["id"] for one in seen["requests"]} == ids
            assert seen["pace"]["requests_per_second"] == 0.2


async def test_a_folder_that_is_gone_is_no_failure(tmp_path):
    async with gateway_with(Shared(tmp_path / "none" / "0.tally")) as site:
        await site.chat()
        seen = (await site.client.get(PATH)).json()
    assert seen["workers"] == {"configured": 1, "heard": 1} and len(seen["requests"]) == 1
