"""The replicas, the proxy in front of them, and clients of it.

async with fleet(store_url, tmp_path) as site:
    await site.proxy.only("gateway_1")
    await site.replicas["gateway_1"].kill()
"""

import asyncio
import os
import shutil
import signal
import socket
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from openai import AsyncOpenAI

from support.gateway_process import process
from support.paths import TESTS
from support.ports import free_port
from support.wait import until

_MODEL = [sys.executable, "-m", "soak.mock", "0"]
CONFIG = (TESTS.parent / "deploy" / "haproxy" / "haproxy.cfg").read_text(encoding="utf-8")
_PATH = f"{os.environ['PATH']}:/usr/sbin"  # where Debian has it, and users do not look
_SETTINGS = {
    "server": {"drain_delay_seconds": 5, "forwarded_allow_ips": ["127.0.0.1"]},
    "responses": {"resume_seconds": 60},
}
NAMES = ("gateway_1", "gateway_2")


class Replica:
    """One after the other at the same address; child: the process of the last one."""

    def __init__(self, begin):
        self._begin, self.lives = begin, AsyncExitStack()
        self.port = free_port()

    async def start(self, **options):
        self.child, self.client = await self.lives.enter_async_context(self._begin(port=self.port, **options))

    async def kill(self):
        self.child.kill()
        await self.child.wait()

    async def stop(self):
        self.child.terminate()
        assert await self.child.wait() == -signal.SIGTERM


class Proxy:
    """url: what clients ask; it is told by its own administrative socket whom to use."""

    def __init__(self, url, file):
        self.url, self._file = url, file

    async def only(self, name):
        """From now on this one gets all requests."""
        await self._tell(f"set server ready/{name} state ready")
        await self.sees(name, "UP")
        for other in {*NAMES} - {name}:
            await self._tell(f"set server ready/{other} state maint")

    async def all(self):
        for name in NAMES:
            await self._tell(f"set server ready/{name} state ready")
            await self.sees(name, "UP")

    async def sees(self, name, state):
        """Until it is in this state, and says so itself."""

        async def status():
            return (await self._row(name))["status"]

        await until(status, state)

    async def passed(self, name):
        """How many requests it has got."""
        return int((await self._row(name))["stot"])

    async def _row(self, name):
        header, *rows = (await self._tell("show stat")).removeprefix("# ").strip().splitlines()
        found = (dict(zip(header.split(","), row.split(","), strict=True)) for row in rows)
        return next(row for row in found if (row["pxname"], row["svname"]) == ("ready", name))

    async def _tell(self, command):
        reader, writer = await asyncio.open_unix_connection(self._file)
        writer.write(command.encode() + b"\n")
        response = (await reader.read()).decode()
        writer.close()
        return response


class Fleet:
    """ai: the SDK, which does not try anything again; client: plain HTTP; both of the proxy."""

    def __init__(self, replicas, proxy, ai, client):
        self.replicas, self.proxy, self.ai, self.client = replicas, proxy, ai, client


@asynccontextmanager
async def fleet(store, folder, proxied=CONFIG, **sections):
    """Two replicas that the proxy has found; proxied: its configuration; sections: of theirs."""
    async with AsyncExitStack() as running:
        model = await running.enter_async_context(_model())
        begin = partial(process, model, store, folder, **_SETTINGS, **sections)
        replicas = {name: Replica(begin) for name in NAMES}
        for replica in replicas.values():
            await running.enter_async_context(replica.lives)
            await replica.start()
        proxy = await running.enter_async_context(_proxy(replicas, proxied))
        await proxy.all()
        ai = AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="any", max_retries=0)
        client = httpx.AsyncClient(base_url=proxy.url, timeout=60, verify=False)
        yield Fleet(replicas, proxy, await running.enter_async_context(ai), await running.enter_async_context(client))


@asynccontextmanager
async def _model():
    """The URL of a model server that answers as it is asked to."""
    where, pipe = {**os.environ, "PYTHONPATH": str(TESTS)}, asyncio.subprocess.PIPE
    async with _ended(await asyncio.create_subprocess_exec(*_MODEL, env=where, stdout=pipe)) as child:
        yield f"http://127.0.0.1:{int(await child.stdout.readline())}"


@asynccontextmanager
async def _proxy(replicas, config):
    program = shutil.which("haproxy", path=_PATH)
    assert program, "these tests need HAProxy: apt-get install haproxy"
    with (
        TemporaryDirectory(prefix="haproxy-") as folder,
        socket.socket() as listening,
    ):  # a socket's path has to be short
        listening.bind(("127.0.0.1", 0))
        config_file, file = Path(folder) / "haproxy.cfg", Path(folder) / "admin"
        config_file.write_text(f"{config}\nglobal\n    stats socket {file} level admin\n", encoding="utf-8")
        addresses = {name.upper(): f"127.0.0.1:{replica.port}" for name, replica in replicas.items()}
        where = {**os.environ, **addresses, "LISTEN": f"fd@{listening.fileno()}"}
        command = [program, "-db", "-f", config_file]
        started = await asyncio.create_subprocess_exec(*command, env=where, pass_fds=[listening.fileno()])
        async with _ended(started) as child:
            await _until_there(file, child)
            yield Proxy(f"http://127.0.0.1:{listening.getsockname()[1]}", file)


@asynccontextmanager
async def _ended(child):
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        child._transport.close()


async def _until_there(file, child):
    def there():
        assert child.returncode is None
        return file.exists()

    await until(there)
