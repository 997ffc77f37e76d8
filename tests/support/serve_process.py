"""The command `gateway serve` as a process whose file is rewritten, that is stopped, or killed.

async with living(tmp_path, config_of(upstream.url)) as gateway:
    gateway.write(config_of(other.url))
    gateway.child.send_signal(signal.SIGHUP)
    await gateway.wait_for("the changes apply")
"""

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import psutil

import gateway
from support.app import HELLO_MESSAGES, bearer
from support.gateway_process import takes_connections
from support.wait import DEADLINE, until


def config_of(url, folder, *, keys=(), **sections):
    """Return the sections of a file, with the backend `up` and the model `m` on it; stated ones override them."""
    return {
        "backends": {"up": {"url": url}},
        "models": {"m": {}},
        "store": {"url": f"sqlite:///{folder}/gateway.db", "usage": False, "sealing_keys": ["s" * 32]},
        "auth": {"keys": [{"name": f"k{i}", "key": key} for i, key in enumerate(keys)]},
        **sections,
    }


class Living:
    """A running gateway.

    child: the process.
    client: an HTTP client.
    greeting: the first line of its output.
    output: its unread output.
    """

    def __init__(self, child, file):
        self.child, self.file, self.output = child, file, ""
        self._more = asyncio.Event()

    async def listen(self):
        """Read the output until it ends."""
        while data := await self.child.stderr.read(65536):
            self.output += data.decode()
            self._more.set()

    async def wait_for(self, text):
        """Wait until this text is in the output since the last wait."""
        async with asyncio.timeout(DEADLINE):
            while text not in self.output:
                self._more.clear()
                await self._more.wait()
        self.output = self.output.partition(text)[2]

    def write(self, content):
        """Replace the file at once, as an editor does."""
        new = self.file.with_suffix(".new")
        new.write_text(content if isinstance(content, str) else json.dumps(content))
        new.replace(self.file)

    async def renew(self, content):
        """Replace the file, and wait until all workers serve it."""
        self.write(content)
        self.child.send_signal(signal.SIGHUP)
        await self.wait_for("the changes apply")

    def workers(self):
        """Return the process ids of the workers."""
        return workers_of(self.child.pid)

    async def end(self):
        """Stop the process if it runs, and kill it if it does not stop."""
        with suppress(TimeoutError, ProcessLookupError):
            self.child.terminate()
            await self.ended()
        if self.child.returncode is None:
            self.child.kill()
            await self.child.wait()

    async def ended(self):
        """Wait for the end of the process."""
        async with asyncio.timeout(DEADLINE):
            return await self.child.wait()


def workers_of(pid):
    """Return the process ids of the workers of a gateway."""
    children = psutil.Process(pid).children()
    return {child.pid for child in children if "resource_tracker" not in " ".join(child.cmdline())}


@asynccontextmanager
async def living(folder, configuration, *flags):
    """Run a gateway within the block; check that it logs no traceback."""
    file = folder / "gateway.yaml"
    file.write_text(json.dumps(configuration))
    where = {**os.environ, "PYTHONPATH": str(Path(gateway.__file__).parents[1])}
    command = [sys.executable, "-m", "gateway", "serve", "--config", file, "--port", "0", *flags]
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=null, stderr=pipe, stdin=null, env=where)
    greeting = (await child.stderr.readline()).decode()
    one = Living(child, file)
    ear = asyncio.create_task(one.listen())
    one.greeting, url = greeting, f"http://127.0.0.1:{re.search(r'port ([0-9]+)', greeting)[1]}"
    try:
        async with httpx.AsyncClient(base_url=url, timeout=DEADLINE, verify=False) as one.client:
            yield one
    finally:
        await one.end()
        await ear
        child._transport.close()
    assert "Traceback" not in one.output, one.output


def streaming(one, key=None, **fields):
    """Stream a chat completion, as a context manager."""
    headers = {"authorization": f"Bearer {key}"} if key else None
    body = {"model": "m", "messages": HELLO_MESSAGES, "stream": True, **fields}
    return one.client.stream("POST", "/v1/chat/completions", json=body, headers=headers)


async def post_chat(one, key=None, **fields):
    """POST a chat completion."""
    headers = {"authorization": f"Bearer {key}"} if key else None
    return await one.client.post(
        "/v1/chat/completions", json={"model": "m", "messages": HELLO_MESSAGES, **fields}, headers=headers
    )


async def until_refused(one, key):
    """Wait until the key is refused: the workers reload one after another."""
    async with asyncio.timeout(DEADLINE):
        while True:
            async with httpx.AsyncClient(base_url=one.client.base_url, headers=bearer(key), verify=False) as new:
                if (await new.get("/v1/models")).status_code == 401:
                    return


async def first(answer, text):
    """Return the pieces of a stream, and its text up to the piece with this text."""
    pieces, body = answer.aiter_text(), ""
    while text not in body:
        body += await anext(pieces)
    return pieces, body


async def rest(pieces, body=""):
    """Return the rest of a stream's text."""
    async for piece in pieces:
        body += piece
    return body


async def refused(one):
    """Wait until no new connection is accepted."""
    await until(lambda: takes_connections(one.client.base_url.port), False)
