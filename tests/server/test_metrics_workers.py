"""Several workers: whoever is asked tells of all, and what one has counted stays when it dies."""

import asyncio
import os
import signal

from gateway.server.telemetry.folder import abandon, end, folder
from gateway.server.telemetry.metrics import DURATION, HEALTHY, IN_FLIGHT, QUEUE, REQUESTS, STORED
from gateway.server.telemetry.shared import Shared, Snapshot
from gateway.server.telemetry.tally import Tally, together
from support.metrics import scrape
from support.serve_process import asked, config_of, first, living, rest, streaming
from support.sse import text_of
from support.upstream import HELLO, Upstream, paused
from support.worker_processes import gateway_with

CHAT = "/v1/chat/completions"
WELL = (CHAT, "m", "up", "200")


async def seen_by_all(gateway, times=8):
    """What is said to connections of their own, which any worker may take."""
    return [await scrape(gateway, close=True) for _ in range(times)]


async def test_every_worker_tells_of_all_and_of_those_that_have_died(tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(90),
        Upstream([paused(go), paused(go), HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", "2") as gateway,
        streaming(gateway) as one,
        streaming(gateway) as two,
    ):
        streams = [await first(one, "Hel"), await first(two, "Hel")]
        for got in await seen_by_all(gateway):
            assert got.of("gateway_requests_in_flight", endpoint=CHAT) == 2
        go.set()
        assert [text_of(await rest(*stream)) for stream in streams] == ["Hello", "Hello"]
        answers = await asyncio.gather(*(asked(gateway) for _ in range(18)))
        assert {answer.status_code for answer in answers} == {200}
        for got in await seen_by_all(gateway):
            assert got.requests() == {WELL: 20}
            assert got.of("gateway_request_duration_seconds_count") == 20
            assert got.of("gateway_request_duration_seconds_bucket", le="+Inf") == 20
            assert got.of("gateway_requests_in_flight", endpoint=CHAT) == 0
            assert got.of("gateway_backend_healthy", backend="up") == 1
            assert got.of("gateway_backend_circuit", backend="up", state="closed") == 2
        os.kill(min(gateway.workers()), signal.SIGKILL)
        await gateway.says("another takes its place")
        await asked(gateway)
        for got in await seen_by_all(gateway):
            assert got.requests() == {WELL: 21}


async def test_counts_outlive_a_new_configuration_and_backends_do_not(tmp_path):
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path)) as gateway,
    ):
        await asked(gateway)
        await gateway.renew(config_of(upstream.url, tmp_path, backends={"new": {"url": upstream.url}}))
        await until_served_by(gateway, "new")
        got = await scrape(gateway)
    assert got.of("gateway_requests_total", endpoint=CHAT, model="m", backend="up", status="200") >= 1
    assert got.values("gateway_backend_healthy", "backend") == {"new"}


async def until_served_by(gateway, backend):
    """The process takes a moment to begin with what it has read."""
    while (await scrape(gateway)).values("gateway_backend_healthy", "backend") != {backend}:
        await asked(gateway)


# Their folder


def test_the_folder_is_where_it_is_preferred_and_gone_afterwards(tmp_path):
    with folder(str(tmp_path)) as made:
        assert made.parent == tmp_path and made.is_dir()
        (made / "0.tally").touch()
    assert not made.exists()


def test_it_is_elsewhere_where_that_cannot_be_written_to(tmp_path):
    with folder(str(tmp_path / "none"), str(tmp_path)) as made:
        assert made.parent == tmp_path


def test_without_a_folder_each_worker_tells_of_itself(tmp_path, caplog):
    none = str(tmp_path / "none")
    with folder(none, none) as made:
        assert made is None
        end(made)
        abandon(made)
    assert "one worker at a time" in caplog.text


def test_a_worker_removes_it_where_the_one_that_keeps_them_is_gone(tmp_path):
    with folder(str(tmp_path)) as made:
        abandon(made / "0.tally")
        assert not made.exists()


# What is shared


def counted(requests):
    tally = Tally()
    tally.count(REQUESTS, WELL, requests)
    tally.measure(DURATION, 1.0)
    return tally.series


def test_counts_are_added_and_the_least_health_is_that_of_all():
    one = {**counted(2), HEALTHY.name: {("up",): [1.0], ("b",): [1.0]}, QUEUE.name: {("up",): [3.0]}}
    two = {**counted(3), HEALTHY.name: {("up",): [0.0]}, QUEUE.name: {("up",): [4.0]}}
    both = together((one, two))
    assert both[REQUESTS.name] == {WELL: [5]}
    assert both[HEALTHY.name] == {("up",): [0], ("b",): [1]} and both[QUEUE.name] == {("up",): [7]}
    (values,) = both[DURATION.name].values()
    assert sum(values[:-1]) == 2 and values[-1] == 2.0
    assert one[REQUESTS.name] == {WELL: [2]}, "and nothing of theirs is changed"


def test_what_is_told_does_not_change_while_it_is_being_told():
    tally = Tally()
    told = together((tally.series,))
    tally.count(STORED)
    assert told[STORED.name] == {(): [0]}


def test_of_one_that_has_ended_only_what_it_counted_is_left(tmp_path):
    files = [tmp_path / f"{number}.tally" for number in range(3)]
    mine, *others = map(Shared, files)
    for number, one in enumerate((mine, *others)):
        one.write(Snapshot(counted(number), {IN_FLIGHT.name: {(CHAT,): [1.0]}}))
    end(files[2])
    found = together(mine.others())
    assert found[REQUESTS.name] == {WELL: [3]} and found[IN_FLIGHT.name] == {(CHAT,): [1]}


def test_what_is_not_new_is_not_written(tmp_path):
    file = tmp_path / "0.tally"
    shared = Shared(file)
    shared.write(Snapshot(counted(1), {}))
    file.unlink()
    shared.write(Snapshot(counted(1), {}))
    assert not file.exists()
    shared.write(Snapshot(counted(2), {}))
    assert [*tmp_path.iterdir()] == [file]


async def test_a_folder_that_is_gone_is_no_failure(tmp_path):
    async with gateway_with(Shared(tmp_path / "none" / "0.tally")) as site:
        await site.chat()
        assert (await scrape(site)).requests() == {WELL: 1}


async def test_what_was_counted_last_is_there_when_it_has_ended(tmp_path):
    one, two = tmp_path / "0.tally", tmp_path / "1.tally"
    async with gateway_with(Shared(one)) as site:
        await site.chat()
    assert together(Shared(two).others())[REQUESTS.name] == {WELL: [1]}
