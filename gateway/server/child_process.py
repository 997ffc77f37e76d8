"""Run other programs for a limited time."""

import asyncio
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def run_child(*command: str, **options: Any) -> AsyncIterator[Process]:  # noqa: ANN401 - those of asyncio
    """Run a process within the block, and kill it at the end.  Raises OSError if it cannot start."""
    process = await asyncio.create_subprocess_exec(*command, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
