"""Workers that die, that cannot be told anything, or that nobody keeps any more."""

import asyncio
import os
import signal

import psutil

from support.serve_process import PATIENCE, asked, config_of, first, living, refused, rest, streaming
from support.sse import text_of
from support.upstream import HELLO, Upstream, paused


async def test_a_worker_that_dies_takes_only_its_own_with_it(tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as other,
        Upstream([paused(go)], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", "2") as gateway,
        streaming(gateway) as one,
        streaming(gateway) as two,
    ):
        streams = [await first(one, "Hel"), await first(two, "Hel")]
        await gateway.renew(config_of(other.url, tmp_path))
        before = gateway.workers()
        os.kill(min(before), signal.SIGKILL)
        await gateway.says("another takes its place")
        go.set()
        ends = await asyncio.gather(*(rest(*stream) for stream in streams), return_exceptions=True)
        # one of the workers may have taken both, and then it is all or nothing
        whole = [end for end in ends if isinstance(end, str)]
        assert all(text_of(end) == "Hello" for end in whole)
        async with asyncio.timeout(PATIENCE):
            while len(gateway.workers()) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        os.kill(max(before), signal.SIGKILL)
        await gateway.says("another takes its place")
        assert text_of((await asked(gateway, stream=True)).text) == "Hi", "they begin with the newest config"


async def test_without_the_one_that_keeps_them_workers_end_when_they_are_done(tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([paused(go)], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", "2") as gateway,
        streaming(gateway) as answer,
    ):
        pieces, said = await first(answer, "Hel")
        workers = [psutil.Process(id) for id in gateway.workers()]
        gateway.child.kill()
        await refused(gateway)
        go.set()
        assert text_of(await rest(pieces, said)) == "Hello"
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, PATIENCE)
        assert not alive


async def test_a_worker_that_cannot_be_told_is_killed_the_third_time(tmp_path):
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", "2") as gateway,
    ):
        await asked(gateway)
        stuck = psutil.Process(min(gateway.workers()))
        stuck.suspend()
        for _ in range(3):
            gateway.child.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)  # or they are one
        await gateway.ended()
        assert not stuck.is_running()
