"""One soak: start, warm up, load, come to rest; then what is wrong, if anything."""

import asyncio
import json
import os
import random
import resource
import sys
import time
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from msgspec import Struct

import gateway
from soak.load import WAYS, Load
from soak.mock import WELL
from soak.watch import MB, Sample, sample, slope
from support.gateway_process import taking_connections
from support.paths import TESTS
from support.ports import free_port
from support.wait import idle

STOPS = 10  # seconds that a process has to end
LISTING = 1  # connection for lists of models: the gateway closes its end at the next list
REST = 30  # seconds within which everything that was opened is closed
WARM = 40  # requests at a time that the warm-up makes
EVERY = 2.0  # seconds between two samples
HEAD = f"{'':>8}{'answers':>9}{'running':>9}{'MB':>8}{'descr.':>8}{'sockets':>9}{'threads':>9}{'unexpected':>12}"


class Soak(Struct, frozen=True):
    """pause: seconds between two pieces of an answer; ramp: seconds until all streams run."""

    seconds: float
    streams: int
    workers: int = 1
    pause: float = 1.0
    ramp: float = 20.0


class Found(Struct):
    """samples: while it was loaded; before, after: at rest, without a connection."""

    before: Sample
    after: Sample
    samples: list[Sample]
    load: Load

    @property
    def per_hour(self):
        return slope(self.samples, "seconds") * 3600

    @property
    def per_answers(self):
        """MB for each 10,000 answers."""
        return slope(self.samples, "answers") * 10_000

    def wrong(self):
        """What a soak of any length must not find."""
        if self.load.unexpected:
            yield f"{self.load.unexpected.total()} unexpected errors, like {self.load.unexpected.most_common(3)}"
        if self.after.sockets > self.before.sockets + LISTING:
            yield f"sockets {self.before.sockets} → {self.after.sockets}"
        if self.after.descriptors > self.before.descriptors + LISTING:
            yield f"descriptors {self.before.descriptors} → {self.after.descriptors}"


def rounds(wanted, number, say=lambda _: None):
    """What each of so many soaks of one gateway found; a line per minute is said."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with TemporaryDirectory() as folder:
        port, backend = free_port(), free_port()
        config, log = Path(folder, "gateway.yaml"), Path(folder, "gateway.log")
        config.write_text(json.dumps(settings(port, backend, folder, wanted)))
        with log.open("wb") as file:
            found = uvloop.run(_soaked(wanted, number, (port, backend), (config, file), say))
        text = log.read_text("utf-8")
    if "Traceback" in text:
        found[-1].load.unexpected[text[text.index("Traceback") :][:900]] += text.count("Traceback")
    return found


async def _soaked(wanted, number, ports, files, say):
    port, backend = ports
    config, log = files
    mock = partial(serving, backend, asyncio.subprocess.DEVNULL, "soak.mock", backend)
    found = []
    async with serving(port, log, "gateway", "serve", "--config", config) as pid:
        async with mock():
            await warmed_up(port, wanted.workers)
        before = await at_rest(pid)
        for _ in range(number):
            load = Load(port, wanted.pause)
            async with mock():
                samples = await loaded(load, wanted, pid, say)
            found.append(Found(before, await at_rest(pid, before), samples, load))
    return found


def settings(port, backend, folder, wanted):
    """A store that is bounded, and limits of time that are reached."""
    return {
        "server": {"port": port, "workers": wanted.workers, "drain_seconds": 1},
        "backends": {
            "up": {"url": f"http://127.0.0.1:{backend}", "timeouts": {"first_byte": 60, "idle": 2 + 8 * wanted.pause}}
        },
        "models": {"m": {"backends": ["up"], "format": "native", "retries": 0}},
        "store": {"url": f"sqlite:///{folder}/gateway.db", "sealing_keys": ["s" * 32], "max_bytes": 64 * MB},
        "stream": {"grace_seconds": 2, "client_seconds": 0},
    }


async def warmed_up(port, workers):
    """Everything has been asked for, in every way, by many at a time, so that what is kept is there."""
    well = Load(port, 0.0)
    for _ in range(workers * 2):
        async with asyncio.TaskGroup() as group:
            for number in range(WARM):
                dice = random.Random(number)
                group.create_task(well.ask(dice.choice(WAYS), dice.choice([*WELL]), "reads", dice))
    assert not well.unexpected, well.unexpected


async def loaded(load, wanted, pid, say):
    """The samples."""
    stop, samples, began, minute = asyncio.Event(), [], time.monotonic(), 0
    say(HEAD)
    asking = asyncio.create_task(load.run(wanted.streams, wanted.ramp, stop))
    while not asking.done():
        await asyncio.wait((asking,), timeout=EVERY)
        seconds = time.monotonic() - began
        if seconds > wanted.seconds:
            stop.set()
        elif seconds > wanted.ramp:
            samples.append(sample(pid, seconds, load.ended.total()))
        if seconds // 60 > minute:
            minute = seconds // 60
            say(line(f"{minute:.0f} min", sample(pid, seconds, load.ended.total()), load))
    await asking
    return samples


def line(name, seen, load):
    counts = (
        f"{seen.answers:>9}{load.running:>9}{seen.memory:>8.1f}{seen.descriptors:>8}{seen.sockets:>9}{seen.threads:>9}"
    )
    return f"{name:>8}{counts}{load.unexpected.total():>12}"


async def at_rest(pid, before=None):
    """When nothing is closed any more, or all is that was not there before."""
    until, found = time.monotonic() + REST, sample(pid)
    while time.monotonic() < until and (before is None or found.descriptors > before.descriptors):
        await idle(1)
        last, found = found, sample(pid)
        if before is None and last.descriptors == found.descriptors:
            break
    return found


@asynccontextmanager
async def serving(port, log, module, *args):
    """The process id of a program that takes connections at this port."""
    where = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{Path(gateway.__file__).parents[1]}"}
    command = [sys.executable, "-m", module, *map(str, args)]
    child = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, env=where)
    try:
        await taking_connections(port)
        yield child.pid
    finally:
        child.terminate()
        with suppress(TimeoutError):
            await asyncio.wait_for(child.wait(), STOPS)
        if child.returncode is None:
            child.kill()
            await child.wait()
