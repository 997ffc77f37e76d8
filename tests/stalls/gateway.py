"""A gateway that watches its own event loop, in a process of its own."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
from msgspec import Struct

import gateway
from support.paths import PROGRAMS


class Cost(Struct, frozen=True):
    """What one exchange did to the process.

    stall: the longest time in seconds for which its event loop stood still.
    growth: of its memory at the peak, in bytes.
    status, code: of the answer; size: of its body, in bytes.
    """

    stall: float
    growth: int
    status: int
    code: str
    size: int


class Watched:
    """client: of the gateway; `cost` posts a body, and says what that did."""

    def __init__(self, child, client):
        self._child, self.client = child, client

    async def cost(self, path, body):
        before = (await self._measured())["peak"]
        answer = await self.client.post(path, content=body, headers={"content-type": "application/json"})
        found = await self._measured()
        return Cost(found["stall"], found["peak"] - before, answer.status_code, _code(answer), len(answer.content))

    async def _measured(self):
        """Return what was measured since the last time, of which the peak is at least the present state."""
        self._child.stdin.write(b"\n")
        return json.loads(await self._child.stdout.readline())


def _code(answer):
    try:
        return (answer.json().get("error") or {}).get("code") or ""
    except ValueError:
        return ""


@asynccontextmanager
async def watched(url, folder, **sections):
    """The gateway in front of a backend; sections: of its configuration."""
    file = Path(folder) / "gateway.yaml"
    store = {"url": f"sqlite:///{folder}/gateway.db", "usage": False, "sealing_keys": ["s" * 32]}
    file.write_text(json.dumps({"backends": {"up": {"url": url}}, "models": {"m": {}}, "store": store, **sections}))
    command = [sys.executable, "-P", PROGRAMS / "watched_gateway.py", "serve", "--config", file, "--port", "0"]
    pipe, where = asyncio.subprocess.PIPE, {**os.environ, "PYTHONPATH": str(Path(gateway.__file__).parents[1])}
    child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=where)
    greeting = (await child.stderr.readline()).decode()
    ear = asyncio.create_task(child.stderr.read())
    try:
        root = f"http://127.0.0.1:{greeting.rsplit(maxsplit=1)[-1]}"
        async with httpx.AsyncClient(base_url=root, timeout=300, trust_env=False) as client:
            yield Watched(child, client)
    finally:
        child.kill()
        await child.wait()
        await ear
        child._transport.close()
