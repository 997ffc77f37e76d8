"""A program that is a client: it runs in a folder and an environment of its own, and ends in time, with all it has started."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

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
