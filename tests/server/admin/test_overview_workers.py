"""Test the overview of several workers: any worker reports what all of them see."""

import asyncio

from gateway.server.observability.metric_values import SharedFolder, mark_ended
from gateway.server.observability.minute_counts import BackendMinute, MinuteCounts
from gateway.server.observability.snapshot import WorkerSnapshot
from support.overview import PATH
from support.serve_process import config_of, first, living, post_chat, rest, streaming
from support.upstream import DONE, END, HELLO, Upstream, chunk, head
from support.wait import until
from support.worker_processes import gateway_with


async def overview_of_both(gateway):
    """Return an overview of any worker that has heard of both; repeat if the other one was too slow."""
    overviews = []

    async def workers():
        answer = await gateway.client.get(PATH, headers={"connection": "close"})  # the next worker may be the other one
        assert answer.status_code == 200, answer.text
        overviews.append(answer.json())
        return overviews[-1]["workers"]

    await until(workers, {"configured": 2, "heard": 2})
    return overviews[-1]


async def test_overview_of_any_worker_includes_all_workers(tmp_path):
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
            seen = await overview_of_both(gateway)
            assert {request["id"] for request in seen["requests"] if request["live"]} == ids
            assert seen["pace"]["in_flight"] == seen["backends"][0]["pace"]["in_flight"] == 2
        go.set()
        for stream in streams:
            await rest(*stream)
        ids |= {
            answer.headers["x-request-id"] for answer in await asyncio.gather(*(post_chat(gateway) for _ in range(8)))
        }
        for _ in range(4):
            seen = await overview_of_both(gateway)
            assert {request["id"] for request in seen["requests"]} == ids
            assert not any(request["live"] for request in seen["requests"])


# Shared files


def test_overview_snapshot_of_a_worker_is_written_on_demand(tmp_path):
    mine, other = (SharedFolder(tmp_path / f"{number}.tally") for number in range(2))
    assert not other.snapshot_requested()
    wished = mine.request_snapshots()
    assert other.snapshot_requested() and not other.snapshot_requested(), "once"
    counts = MinuteCounts(
        7, 1, 1, 0, {3: 1}, {"up": BackendMinute(1)}, {("dropped", "m"): 1}, {(502, "", "", "m", ""): (1, 2.0)}
    )
    sight = WorkerSnapshot([], [], [], {}, [counts])
    mine.write_snapshot(sight)
    assert [*mine.shown(wished)] == [], "a worker does not read its own snapshot"
    other.write_snapshot(sight)
    assert [*mine.shown(wished)] == [sight]
    assert [*mine.shown(wished + 10**12)] == [], "an old snapshot is not used"
    mark_ended(tmp_path / "1.tally")
    assert [*mine.shown(wished)] == []


async def test_overview_includes_gateways_that_share_a_folder(tmp_path):
    one, two = (SharedFolder(tmp_path / f"{number}.tally") for number in range(2))
    async with gateway_with(one) as first_one, gateway_with(two) as other:
        ids = {(await site.chat()).headers["x-request-id"] for site in (first_one, other)}
        for site in (first_one, other):
            seen = (await site.client.get(PATH)).json()
            assert seen["workers"]["heard"] == 2 and {one["id"] for one in seen["requests"]} == ids
            assert seen["pace"]["requests_per_second"] == 0.2
            assert seen["hour"]["requests"] == seen["backends"][0]["hour"]["requests"] == 2


async def test_overview_with_a_missing_folder_shows_its_own_worker(tmp_path):
    async with gateway_with(SharedFolder(tmp_path / "none" / "0.tally")) as site:
        await site.chat()
        seen = (await site.client.get(PATH)).json()
    assert seen["workers"] == {"configured": 1, "heard": 1} and len(seen["requests"]) == 1
