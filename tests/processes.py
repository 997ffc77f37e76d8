"""The command `gateway serve` as a process, on a store that it shares with others or that outlives it."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

import gateway

_DYING = Path(__file__).with_name("dying_gateway.py")


@asynccontextmanager
async def process(url, store, folder, *, dies_at=None):
    """The process and a client of it; dies_at: a point that `dying_gateway.py` knows."""
    file = folder / "gateway.yaml"
    said = {
        "backends": {"up": {"url": url}},
        "models": {"m": {"backends": ["up"]}},
        "store": {"url": store, "sealing_keys": ["s" * 32]},
        "stream": {"grace_seconds": 0.05},
    }
    file.write_text(json.dumps(said))
    program = [_DYING, dies_at] if dies_at else ["-m", "gateway"]
    where = {**os.environ, "PYTHONPATH": str(Path(gateway.__file__).parents[1])}
    command = [sys.executable, *program, "serve", "--config", file, "--port", "0"]
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=null, stderr=pipe, stdin=null, env=where)
    try:
        greeting = (await child.stderr.readline()).decode()  # ends with the port
        root = f"http://127.0.0.1:{greeting.rsplit(maxsplit=1)[-1]}"
        async with httpx.AsyncClient(base_url=root, timeout=20, verify=False) as client:
            yield child, client
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
        rest = (await child.stderr.read()).decode()
        child._transport.close()
    assert "Traceback" not in rest, rest
