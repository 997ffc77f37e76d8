"""Test metrics of several workers: any worker reports all of them, and counts of dead workers stay."""

import asyncio
import os
import signal

from gateway import __version__
from gateway.server.observability.metric_values import (
    MetricValues,
    SharedFolder,
    SharedMetrics,
    mark_ended,
    metrics_file,
    metrics_folder,
    observe,
    remove_orphan,
    sum_series,
)
from gateway.server.observability.metrics import DURATION, HEALTHY, IN_FLIGHT, QUEUE, REQUESTS, STORED
from support.metrics import scrape
from support.overview import CHAT
from support.serve_process import config_of, first, living, post_chat, rest, streaming
from support.sse import text_of
from support.upstream import HELLO, Upstream, paused
from support.wait import until
from support.worker_processes import gateway_with

WELL = (CHAT, "m", "up", "200", "")
COUNTED = WELL[:4]
ROUTE = {"endpoint": CHAT, "model": "m", "backend": "up"}


async def scrape_all(gateway, times=8):
    """Scrape on connections of their own, so that any worker may answer."""
    return [await scrape(gateway, close=True) for _ in range(times)]


async def test_metrics_of_any_worker_include_all_workers_and_the_dead(tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(90),
        Upstream([paused(go), paused(go), HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", "2") as gateway,
        streaming(gateway) as one,
        streaming(gateway) as two,
    ):
        streams = [await first(one, "Hel"), await first(two, "Hel")]
        for got in await scrape_all(gateway):
            assert got.of("gateway_requests_in_flight", endpoint=CHAT) == 2
        go.set()
        assert [text_of(await rest(*stream)) for stream in streams] == ["Hello", "Hello"]
        answers = await asyncio.gather(*(post_chat(gateway) for _ in range(18)))
        assert {answer.status_code for answer in answers} == {200}
        for got in await scrape_all(gateway):
            assert got.requests() == {COUNTED: 20}
            assert got.of("gateway_request_duration_seconds_count", **ROUTE) == 20
            assert got.of("gateway_request_duration_seconds_bucket", le="+Inf", **ROUTE) == 20
            assert got.of("gateway_requests_in_flight", endpoint=CHAT) == 0
            assert got.of("gateway_backend_healthy", backend="up") == 1
            assert got.of("gateway_backend_circuit", backend="up", state="closed") == 2
            assert [*got.values("gateway_build_info", "version")] == [__version__]
            assert got.sum("gateway_build_info") == 1
            assert got.values("process_resident_memory_bytes", "worker") == {"0", "1"}
            assert got.sum("process_open_fds") > 0 < got.sum("process_cpu_seconds_total")
        os.kill(min(gateway.workers()), signal.SIGKILL)
        await gateway.wait_for("a replacement starts")
        await post_chat(gateway)
        for got in await scrape_all(gateway):
            assert got.requests() == {COUNTED: 21}


async def test_metrics_keep_counts_but_not_backends_after_a_reload(tmp_path):
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path)) as gateway,
    ):
        await post_chat(gateway)
        await gateway.renew(config_of(upstream.url, tmp_path, backends={"new": {"url": upstream.url}}))
        await until_served_by(gateway, "new")
        got = await scrape(gateway)
    assert got.of("gateway_requests_total", endpoint=CHAT, model="m", backend="up", status="200") >= 1
    assert got.values("gateway_backend_healthy", "backend") == {"new"}


async def until_served_by(gateway, backend):
    """Wait until the process serves its new config; a request starts with the newest one."""

    async def backends():
        await post_chat(gateway)
        return (await scrape(gateway)).values("gateway_backend_healthy", "backend")

    await until(backends, {backend})


# Folder


def test_metrics_folder_is_at_the_preferred_place_and_removed_at_the_end(tmp_path):
    with metrics_folder(str(tmp_path)) as made:
        assert made.parent == tmp_path and made.is_dir()
        (made / "0.tally").touch()
    assert not made.exists()


def test_metrics_folder_falls_back_to_a_writable_place(tmp_path):
    with metrics_folder(str(tmp_path / "none"), str(tmp_path)) as made:
        assert made.parent == tmp_path


def test_metrics_without_a_folder_cover_one_worker_at_a_time(tmp_path, caplog):
    none = str(tmp_path / "none")
    with metrics_folder(none, none) as made:
        assert made is None
        mark_ended(made)
        remove_orphan(made)
    assert "one worker at a time" in caplog.text


def test_metrics_folder_is_removed_by_an_orphaned_worker(tmp_path):
    with metrics_folder(str(tmp_path)) as made:
        remove_orphan(made / "0.tally")
        assert not made.exists()


# Shared files


def series_of(requests):
    tally = MetricValues()
    tally.count(REQUESTS, WELL, requests)
    observe(tally.series_values(DURATION, WELL[:3]), DURATION, 1.0)
    return tally.series


def test_metrics_of_workers_are_summed_and_health_is_the_minimum():
    one = {**series_of(2), HEALTHY.name: {("up",): [1.0], ("b",): [1.0]}, QUEUE.name: {("up",): [3.0]}}
    two = {**series_of(3), HEALTHY.name: {("up",): [0.0]}, QUEUE.name: {("up",): [4.0]}}
    both = sum_series((one, two))
    assert both[REQUESTS.name] == {WELL: [5]}
    assert both[HEALTHY.name] == {("up",): [0], ("b",): [1]} and both[QUEUE.name] == {("up",): [7]}
    (values,) = both[DURATION.name].values()
    assert sum(values[:-1]) == 2 and values[-1] == 2.0
    assert one[REQUESTS.name] == {WELL: [2]}, "and nothing of theirs is changed"


def test_metrics_snapshot_does_not_change_with_later_counts():
    tally = MetricValues()
    snapshot = sum_series((tally.series,))
    tally.count(STORED)
    assert snapshot[STORED.name] == {(): [0]}


def test_metrics_of_an_ended_worker_keep_only_its_counts(tmp_path):
    files = [tmp_path / f"{number}.tally" for number in range(3)]
    mine, *others = map(SharedFolder, files)
    for number, one in enumerate((mine, *others)):
        one.write(SharedMetrics(series_of(number), {IN_FLIGHT.name: {(CHAT,): [1.0]}}, 1))
    mark_ended(files[2])
    found = sum_series(mine.others())
    assert found[REQUESTS.name] == {WELL: [3]} and found[IN_FLIGHT.name] == {(CHAT,): [1]}


def test_metrics_folder_has_the_process_of_each_place(tmp_path):
    files = [metrics_file(tmp_path, place, number) for number, place in enumerate((0, 1, 1))]
    for file in files:
        SharedFolder(file).write(SharedMetrics({}, {}, int(file.stem[-1]) + 10))
    mark_ended(files[1])
    assert SharedFolder(files[0]).processes(7) == {"0": 7, "1": 12}
    assert metrics_file(None, 0, 1) is None


def test_metrics_file_is_written_only_if_counts_change(tmp_path):
    file = tmp_path / "0.tally"
    shared = SharedFolder(file)
    shared.write(SharedMetrics(series_of(1), {}, 1))
    file.unlink()
    shared.write(SharedMetrics(series_of(1), {}, 1))
    assert not file.exists()
    shared.write(SharedMetrics(series_of(2), {}, 1))
    assert [*tmp_path.iterdir()] == [file]


async def test_metrics_folder_that_is_missing_is_no_failure(tmp_path):
    async with gateway_with(SharedFolder(tmp_path / "none" / "0.tally")) as site:
        await site.chat()
        assert (await scrape(site)).requests() == {COUNTED: 1}


async def test_metrics_file_has_the_last_counts_of_an_ended_gateway(tmp_path):
    one, two = tmp_path / "0.tally", tmp_path / "1.tally"
    async with gateway_with(SharedFolder(one)) as site:
        await site.chat()
    assert sum_series(SharedFolder(two).others())[REQUESTS.name] == {WELL: [1]}
