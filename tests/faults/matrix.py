"""Runs a row: asks in each way, and sees what the client has, when the backend was let go of, and what is left behind."""

import asyncio
import gc
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
from msgspec import Struct

from faults.upstream import Backend
from faults.ways import PASSED, WAYS, Outcome, Responses
from gateway.server.app import create_app
from support.app import STORES, Site, running, settings
from support.memory import census, watched
from support.upstream import HELLO, SOON, chunk, stream
from support.wait import DEADLINE, idle, until

AT_ONCE = 0.25  # seconds within which a backend is let go of; tests wait longer, as they share the machine


class Cell(Struct):
    """What came of a row in one way of asking.

    verdict: what the client has; line: what became of the connection to the backend; seconds: until that was closed.
    wrong: what should not be, in words.
    """

    verdict: str
    line: str = ""
    seconds: float | None = None
    wrong: tuple = ()

    def __str__(self):
        line = self.line if self.seconds is None else f"closed {self.seconds * 1000:.0f} ms"
        late = ["LATE"] if self.seconds is not None and self.seconds > AT_ONCE else []
        return ", ".join(filter(None, [self.verdict, line, *late, *(f"**{wrong}**" for wrong in self.wrong)]))


@asynccontextmanager
async def site_of(sections, model=None):
    """A gateway on a real socket whose one backend is never asked twice, with a first answer behind it; model: its settings."""
    with watched():
        async with Backend().serving() as backend:
            app = create_app(
                settings(backend.url, model={"format": "native", "retries": 0, **(model or {})}, **sections)
            )
            async with running(app) as url, httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=False) as client:
                site = Site(backend, client, app)
                await begins(site)
                yield site


async def begins(site):
    """A first answer, of which something stays that is made once: the cipher that seals thoughts."""
    await site.upstream.set_scripts(stream(chunk(reasoning_content="Hm"), chunk("Hi"), chunk(finish="stop")))
    await Responses(streamed=False).ask(site)


async def cells(row, ways=WAYS):
    """A Cell for each way, by its name."""
    async with site_of(row.settings) as site:
        return {way.name: await cell(row, way, site) for way in ways}


async def cell(row, way, site):
    """Before and after it the gateway answers, and it leaves nothing behind."""
    await site.upstream.set_scripts(HELLO)
    wrong = [*await sound(way, site)]
    before = await level()
    await site.upstream.set_scripts(row.script, *row.next_scripts)
    got, seconds, line = await fault(row, way, site)
    if got != (wanted := row.then.outcome(way)):
        wrong.append(f"wanted {wanted} {wanted.text!r}, got {got.text!r}")
    wrong += [*unbounded(row), *strayed(site), *misused(line, seconds)]
    for _ in row.next_scripts:
        wrong += await sound(way, site)
    await site.upstream.set_scripts(HELLO)
    wrong += await sound(way, site)
    wrong += await left(before)
    return Cell(str(got), line, seconds, tuple(wrong))


async def fault(row, way, site):
    """The Outcome, and how long after it the connection to the backend was closed."""
    for step in row.script:
        if hasattr(step, "sent"):
            step.sent = 0
    count = len(site.upstream.posts)
    got = await way.ask(site, row.text)
    over = now()
    if row.lasts is None or len(site.upstream.posts) == count:
        return got, None, ""
    if row.lasts:
        await idle(0.01)
        return got, None, "lost" if site.upstream.posts[-1].peer in site.upstream.over else "kept"
    return got, await closed(site, over), ""


async def closed(site, since):
    """Seconds until the connection that the last request came on was closed."""
    peer, over = site.upstream.posts[-1].peer, site.upstream.over
    try:
        async with asyncio.timeout(SOON):
            await until(lambda: peer in over)
    except TimeoutError:
        return SOON
    return max(over[peer] - since, 0)


async def sound(way, site):
    """What is wrong with an ordinary answer."""
    got = await way.ask(site)
    return () if got == Outcome(200, None, "Hi") else (f"the next answer is {got}",)


def misused(line, seconds):
    """What is wrong with what became of the connection."""
    if line == "lost":
        return ("a good connection to the backend is lost",)
    return ("the connection to the backend is kept",) if seconds == SOON else ()


def unbounded(row):
    taken = sum(getattr(step, "sent", 0) for step in row.script)
    return (f"{taken} bytes were taken",) if row.most and taken > row.most else ()


def strayed(site):
    paths = {"/v1/chat/completions", *(way.path for way in PASSED)}
    return [f"asked {post.path}" for post in site.upstream.posts if post.path not in paths]


async def level():
    """How much there is of what a request may leave behind, when it has come to rest."""
    last = None
    while last != (last := here()):
        await idle(0.005)
    return last


def here():
    return Counter({"tasks": len(asyncio.all_tasks()), "descriptors": sum(map(is_ours, opened()))}) + census()


def is_ours(link):
    """The store's pool has as many connections as there were transactions at a time."""
    return not link.startswith(STORES.name)


def opened():
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield str(link.readlink())


async def left(before):
    """What is there now that was not before, and does not go."""
    with suppress(TimeoutError):
        async with asyncio.timeout(SOON):
            await until(lambda: not here() - before)
    more = here() - before
    return [*named(more, before)] if more else []


def named(more, before):
    gc.collect()
    kept = here() - before
    for name, count in more.items():
        waits = "" if name in kept else ", until they are collected"
        yield f"{before[name]} {name} became {before[name] + count}{waits}"


def now():
    return asyncio.get_running_loop().time()
