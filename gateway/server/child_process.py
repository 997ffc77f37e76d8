"""Other programs that run for a while."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def run_child(*command: str, **options: Any) -> AsyncIterator[Process]:  # noqa: ANN401 - those of asyncio
    """Run a process, which stops with its waiting task.  Raise OSError if it cannot begin."""
    process = await asyncio.create_subprocess_exec(*command, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
