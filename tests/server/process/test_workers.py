"""Test worker processes that die, that do not react, or whose supervisor is dead."""

import asyncio
import os
import signal

import psutil

from support.serve_process import config_of, first, living, post_chat, refused, rest, streaming
from support.sse import text_of
from support.upstream import HELLO, Upstream, paused
from support.wait import DEADLINE, until


async def test_worker_death_ends_only_its_own_streams(tmp_path):
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
        await gateway.wait_for("a replacement starts")
        go.set()
        ends = await asyncio.gather(*(rest(*stream) for stream in streams), return_exceptions=True)
        # If one worker has both streams, both end as a whole or neither does.
        whole = [end for end in ends if isinstance(end, str)]
        assert all(text_of(end) == "Hello" for end in whole)
        await until(lambda: len(gateway.workers()), 2)
        os.kill(max(before), signal.SIGKILL)
        await gateway.wait_for("a replacement starts")
        assert text_of((await post_chat(gateway, stream=True)).text) == "Hi", "new workers begin with the newest config"


async def test_worker_ends_after_its_streams_if_the_supervisor_is_dead(tmp_path):
    go = asyncio.Event()
    async with (
        asyncio.timeout(60),
        Upstream([paused(go)], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", "2") as gateway,
        streaming(gateway) as answer,
    ):
        pieces, body = await first(answer, "Hel")
        workers = [psutil.Process(id) for id in gateway.workers()]
        gateway.child.kill()
        await refused(gateway)
        go.set()
        assert text_of(await rest(pieces, body)) == "Hello"
        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, DEADLINE)
        assert not alive


async def test_worker_that_does_not_stop_is_killed_at_the_third_sigterm(tmp_path):
    async with (
        asyncio.timeout(60),
        Upstream([HELLO], ()).serving() as upstream,
        living(tmp_path, config_of(upstream.url, tmp_path), "--workers", "2") as gateway,
    ):
        await post_chat(gateway)
        stuck = psutil.Process(min(gateway.workers()))
        stuck.suspend()
        for _ in range(2):
            await terminate(psutil.Process(gateway.child.pid))
            assert stuck.status() == psutil.STATUS_STOPPED
        gateway.child.send_signal(signal.SIGTERM)
        await gateway.ended()
        assert not stuck.is_running()


async def terminate(process):
    """Send SIGTERM, and wait until the process has handled it: two signals at once would be one.

    Its handler has run when the process has waited twice since.
    """
    before = process.num_ctx_switches().voluntary
    process.terminate()
    await until(lambda: process.num_ctx_switches().voluntary > before + 1)
