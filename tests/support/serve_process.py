"""The command `gateway serve` as a process whose file is rewritten, that is told to stop, or is killed.

async with living(tmp_path, config_of(upstream.url)) as gateway:
    gateway.write(config_of(other.url))
    gateway.child.send_signal(signal.SIGHUP)
    await gateway.says("what is new holds")
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import psutil

import gateway
from support.app import HELLO_MESSAGES
from support.gateway_process import takes_connections
from support.wait import until

PATIENCE = 30  # seconds; what does not come at all fails by this


def config_of(url, folder, *, keys=(), **sections):
    """The sections of a file, with the backend `up` and the model `m` on it; stated ones win."""
    return {
        "backends": {"up": {"url": url}},
        "models": {"m": {}},
        "store": {"url": f"sqlite:///{folder}/gateway.db", "sealing_keys": ["s" * 32]},
        "auth": {"keys": [{"name": f"k{i}", "key": key} for i, key in enumerate(keys)]},
        **sections,
    }


class Living:
    """child: the process; client: of it; heard: all that it has said by now."""

    def __init__(self, child, file):
        self.child, self.file, self.heard = child, file, ""
        self._more = asyncio.Event()

    async def listen(self):
        while said := await self.child.stderr.read(65536):
            self.heard += said.decode()
            self._more.set()

    async def says(self, text):
        """Until it has said so since the last time that something was awaited."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.heard:
                self._more.clear()
                await self._more.wait()
        self.heard = self.heard.partition(text)[2]

    def write(self, said):
        """Replace the file at once, as an editor does."""
        new = self.file.with_suffix(".new")
        new.write_text(said if isinstance(said, str) else json.dumps(said))
        new.replace(self.file)

    async def renew(self, said):
        """Return when what is written is what is served, by all workers."""
        self.write(said)
        self.child.send_signal(signal.SIGHUP)
        await self.says("what is new holds")

    def workers(self):
        """Return their process ids."""
        return workers_of(self.child.pid)

    async def end(self):
        """It is told to stop, unless it has, and killed if it does not."""
        with suppress(TimeoutError, ProcessLookupError):
            self.child.terminate()
            await self.ended()
        if self.child.returncode is None:
            self.child.kill()
            await self.child.wait()

    async def ended(self):
        async with asyncio.timeout(PATIENCE):
            return await self.child.wait()


def workers_of(pid):
    """Return the process ids of the workers of a gateway."""
    children = psutil.Process(pid).children()
    return {child.pid for child in children if "resource_tracker" not in " ".join(child.cmdline())}


@asynccontextmanager
async def living(folder, said, *flags):
    """It is told to stop in the end, and killed if need be; whatever it was told, it never fails in words."""
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(said))
    where = {**os.environ, "PYTHONPATH": str(Path(gateway.__file__).parents[1])}
    command = [sys.executable, "-m", "gateway", "serve", "--config", file, "--port", "0", *flags]
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=null, stderr=pipe, stdin=null, env=where)
    greeting = (await child.stderr.readline()).decode()
    one = Living(child, file)
    ear = asyncio.create_task(one.listen())
    url = f"http://127.0.0.1:{greeting.rsplit(maxsplit=1)[-1]}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE, verify=False) as one.client:
            yield one
    finally:
        await one.end()
        await ear
        child._transport.close()
    assert "Traceback" not in one.heard, one.heard


def streaming(one, key=None, **fields):
    """A chat completion that is streamed, as a context manager."""
    headers = {"authorization": f"Bearer {key}"} if key else None
    body = {"model": "m", "messages": HELLO_MESSAGES, "stream": True, **fields}
    return one.client.stream("POST", "/v1/chat/completions", json=body, headers=headers)


async def asked(one, key=None, **fields):
    headers = {"authorization": f"Bearer {key}"} if key else None
    return await one.client.post(
        "/v1/chat/completions", json={"model": "m", "messages": HELLO_MESSAGES, **fields}, headers=headers
    )


async def first(answer, text):
    """The pieces of a stream, and what they have said up to the one with this text."""
    pieces, said = answer.aiter_text(), ""
    while text not in said:
        said += await anext(pieces)
    return pieces, said


async def rest(pieces, said=""):
    async for piece in pieces:
        said += piece
    return said


async def refused(one):
    """Return when nobody takes a new connection any more."""
    await until(lambda: takes_connections(one.client.base_url.port), False)
