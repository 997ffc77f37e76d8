"""What happens to the gateway itself amid its answers: it is told to stop, it is killed, its clock jumps."""

import asyncio
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec import Struct

from faults.matrix import Cell, left, level, now, site_of, sound
from faults.rows import HEL, REST
from faults.upstream import Backend
from faults.ways import HTTP, Answers, Background, Fails, Outcome, Socket, post
from support.app import Site
from support.gateway_process import process, takes_connections
from support.upstream import END, HANG, HELLO, SOON
from support.wait import until

DAY = 86_400


class Row(Struct, frozen=True):
    """run: gives a Cell for each way of asking; then: what comes of it."""

    name: str
    run: object
    then: object


class BreaksOff(Struct, frozen=True):
    text: str

    def outcome(self, way):
        return Outcome(0, text=self.text if way.streamed else "", ended=False)


async def cells(row):
    return await row.run(row.then)


# Processes


async def stopped(then, *, drain, rest):
    """SIGTERM while an answer is on its way in each way; `rest`: of the backend's answer, after that."""
    async with _process(server={"drain_seconds": drain}) as (site, child):
        go = asyncio.Event()
        tasks = await _begun(site, [*HEL, go, *rest])
        child.terminate()
        await until(lambda: takes_connections(site.client.base_url.port), False)
        go.set()
        found = await _ended(tasks, then)
        code = await asyncio.wait_for(child.wait(), drain + SOON + 3)
        await _let_go(site, found)
    for cell in found.values():
        cell.wrong += (f"exit code {code}",) * (code not in (0, -15))
    return found


async def killed(then):
    """kill -9, and then another gateway with the same store."""
    with TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/gateway.db"
        async with _process(store) as (site, child):
            kept = (await site.client.post("/v1/responses", json={"model": "m", "input": "Hello"})).json()
            tasks = await _begun(site, [*HEL, HANG])
            child.kill()
            found = await _ended(tasks, then)
            await _let_go(site, found)
        async with _process(store) as (site, _):
            there = (await site.client.get(f"/v1/responses/{kept['id']}")).json()
            for way in HTTP:
                found[way.name].wrong += (*await sound(way, site), *("what was stored is lost",) * (there != kept))
    return found


@asynccontextmanager
async def _process(store=None, **sections):
    """A Site before a gateway that is a process of its own, which is the other value."""
    with TemporaryDirectory() as folder:
        async with Backend().serving() as backend:
            await backend.set_scripts(HELLO)
            store = store or f"sqlite:///{folder}/gateway.db"
            sections["models"] = {"m": {"backends": ["up"], "format": "native", "retries": 0}}
            async with process(backend.url, store, Path(folder), clean=False, **sections) as (child, client):
                yield Site(backend, client), child


async def _begun(site, script):
    """An answer in each way, as a task; the clients of streams have the first content."""
    await site.upstream.set_scripts(script)
    wanted, pieces = len(site.upstream.posts) + len(HTTP), []

    def hears(piece):
        if "Hel" in piece:
            pieces.append(piece)

    tasks = {way: asyncio.create_task(post(way, site.client, way.body(), hears)) for way in HTTP}
    streams = sum(way.streamed for way in HTTP)
    await until(lambda: len(site.upstream.posts) >= wanted and len(pieces) >= streams)
    return tasks


async def _ended(tasks, then):
    found = {}
    for way, task in tasks.items():
        got = await task
        right = got == then.outcome(way)
        found[way.name] = Cell(str(got), wrong=() if right else (f"wanted {then.outcome(way)}, got {got.text!r}",))
    return found


async def _let_go(site, found):
    """All connections to the backend are closed, and soon."""
    since = now()
    with suppress(TimeoutError):
        async with asyncio.timeout(SOON):
            await until(lambda: not site.upstream.lines)
    for cell in found.values():
        cell.seconds = now() - since
        cell.wrong += ("a connection to the backend is kept",) * bool(site.upstream.lines)


# Clocks


async def jumps(then, *, seconds):
    """The wall clock is another one amid the answer; what lasts is measured by a clock that never jumps."""
    found = {}
    async with site_of({}) as site:
        for way in (*HTTP, Background(), Socket()):
            await site.upstream.set_scripts(HELLO)
            wrong = [*await sound(way, site)]
            before = await level()
            go = asyncio.Event()
            await site.upstream.set_scripts([*HEL, go, *REST, END])
            count = len(site.upstream.posts)
            task = asyncio.create_task(way.ask(site))
            await until(lambda count=count: len(site.upstream.posts) > count)
            with _clock(seconds):
                go.set()
                got = await task
                await site.upstream.set_scripts(HELLO)
                wrong += await sound(way, site)
            wrong += await left(before)
            wrong += [f"wanted {then.outcome(way)}"] * (got != then.outcome(way))
            found[way.name] = Cell(str(got), wrong=tuple(wrong))
    return found


@contextmanager
def _clock(ahead):
    real = time.time
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: real() + ahead)
        yield


ROWS = [
    Row("SIGTERM, and the answers end in time", partial(stopped, drain=10, rest=(*REST, END)), Answers("Hello")),
    Row(
        "SIGTERM, and they do not",
        partial(stopped, drain=1, rest=(HANG,)),
        Fails(503, "server_is_overloaded", "Hel"),
    ),
    Row("kill -9, and a new start", killed, BreaksOff("Hel")),
    Row("the clock jumps a day ahead", partial(jumps, seconds=DAY), Answers("Hello")),
    Row("the clock jumps a day back", partial(jumps, seconds=-DAY), Answers("Hello")),
]
