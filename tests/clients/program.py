"""A program that is a client: it runs in a folder and an environment of its own, and ends in time, with all it has started."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEY = {"GATEWAY_KEY": "none"}
SECONDS = 90  # a turn takes a few at most, some of them to begin


async def ran(*command: str, folder: Path, environment: Mapping[str, str]) -> tuple[int | None, str, str]:
    """Its status, what it told, and what it complained of; TimeoutError if it does not end."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env=environment, start_new_session=True,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            out, errors = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out.decode(), errors.decode()


async def launched(client: str, url: str, file: Path) -> str:
    """Write the settings of a client to its file by `gateway launch`, and return the changes that it shows.

    They name the variable of the API key.
    """
    command = sys.executable, "-m", "gateway", "launch", client, "--url", url, "--file", str(file), "--write"
    status, out, errors = await ran(*command, folder=ROOT, environment=os.environ | KEY)
    assert (status, errors) == (0, ""), (status, out, errors)
    return out
