"""Walk through the afternoon, and print what each step measured: `make afternoon`."""

import asyncio
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from afternoon.site import site
from afternoon.steps import STEPS
from support.postgres import Postgres
from support.terminal import say

_SECONDS = 600  # for all


async def walk(folder):
    """Do all steps; raise AssertionError at the first one that fails."""
    with Postgres.temporary() as postgres:
        async with asyncio.timeout(_SECONDS), site(postgres, folder) as found:
            for step in STEPS:
                say(f"{step.__name__.replace('_', ' '):<15} {await step(found)}")


def main():
    begun = perf_counter()
    with tempfile.TemporaryDirectory(prefix="afternoon-") as folder:
        asyncio.run(walk(Path(folder)))
    say(f"{'all':<15} {perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
