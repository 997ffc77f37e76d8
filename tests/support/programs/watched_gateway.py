"""The command `gateway`, in a process that measures the stalls of its event loop.

python watched_gateway.py serve --config gateway.yaml

For each line on its standard input it writes one line of JSON: the longest stall in seconds and the peak of memory in
bytes since the line before.
"""

import asyncio
import json
import re
import sys
import threading
from pathlib import Path

import uvicorn

from gateway.cli import main

_PAUSE = 0.001  # seconds between two readings of the clock
_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Watch:
    """Read the clock in the loop, and keep the longest time between two readings."""

    def __init__(self):
        self.longest = self.last = 0.0

    def begin(self):
        """Start watching."""
        self.loop = asyncio.get_running_loop()
        self.last = self.loop.time()
        self.loop.call_later(_PAUSE, self.look)
        threading.Thread(target=self.answer, daemon=True).start()

    def look(self):
        """Read the clock."""
        now = self.loop.time()
        self.longest = max(self.longest, now - self.last - _PAUSE)
        self.last = now
        self.loop.call_later(_PAUSE, self.look)

    def answer(self):
        """Write a report for each line of standard input."""
        for _ in sys.stdin:
            [peak] = _PEAK.findall(_STATUS.read_text())
            _RESET.write_text("5")
            longest, self.longest = self.longest, 0.0
            sys.stdout.write(json.dumps({"stall": longest, "peak": int(peak) << 10}) + "\n")
            sys.stdout.flush()


_startup = uvicorn.Server.startup


async def watched_startup(server, sockets=None):
    """Start watching as soon as there is a loop."""
    Watch().begin()
    await _startup(server, sockets)


uvicorn.Server.startup = watched_startup
main.main()
