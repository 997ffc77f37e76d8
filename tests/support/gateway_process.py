"""Run the command `gateway serve` as a process, on a store that it shares with others or that outlives it."""

import asyncio
import itertools
import json
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

import gateway
from support.paths import PROGRAMS
from support.wait import DEADLINE, until

_CODE = Path(gateway.__file__).parents[1]
_NUMBERS = itertools.count()


@asynccontextmanager
async def process(
    url, store, folder, *, dies_at=None, eager=None, clean=True, port=0, code=_CODE, usage=False, **sections
):
    """Yield the process and a client; sections: of its config.

    dies_at: a point that `dying_gateway.py` knows.
    eager: options of `eager_gateway.py`.
    clean: the process logs no traceback.
    code: the folder that its package is in.
    usage: the store keeps usage.
    """
    file = folder / f"gateway{next(_NUMBERS)}.yaml"
    defaults = {
        "backends": {"up": {"url": url}},
        "models": {"m": {"backends": ["up"]}},
        "store": {"url": store, "usage": usage, "sealing_keys": ["s" * 32]},
        "stream": {"grace_seconds": 0.05},
    }
    file.write_text(json.dumps({**defaults, **sections}))
    where = {**os.environ, "PYTHONPATH": str(code)}
    where.pop("COVERAGE_PROCESS_CONFIG", None)  # without coverage it starts in half the time
    command = [sys.executable, *_program(dies_at, eager), "serve", "--config", file, "--port", str(port)]
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=null, stderr=pipe, stdin=null, env=where)
    try:
        greeting = (await child.stderr.readline()).decode()  # ends with the port, if the process chose a free one
        root = f"http://127.0.0.1:{port or greeting.rsplit(maxsplit=1)[-1]}"
        async with httpx.AsyncClient(base_url=root, timeout=DEADLINE, verify=False) as client:
            yield child, client
    except BaseException as error:
        error.add_note(await _end(child))
        raise
    rest = await _end(child)
    assert not clean or "Traceback" not in rest, rest


async def _end(child):
    """End a process; return the rest of its log."""
    if child.returncode is None:
        child.kill()
        await child.wait()
    rest = (await child.stderr.read()).decode()
    child._transport.close()
    return rest


def _program(dies_at, eager):
    if dies_at:
        return [PROGRAMS / "dying_gateway.py", dies_at]
    return ["-P", "-m", "gateway"] if eager is None else [PROGRAMS / "eager_gateway.py", json.dumps(eager)]


async def taking_connections(port):
    """Wait until a server listens on a port of this machine."""
    await until(lambda: takes_connections(port))


async def takes_connections(port):
    """Return True if a server listens on a port of this machine."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionError:
        return False
    writer.close()
    return True
