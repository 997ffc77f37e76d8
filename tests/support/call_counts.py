"""Count function calls and writes, and the memory peak of a function."""

import asyncio
import gc
import sys
import threading
import tracemalloc
from functools import cache
from pathlib import Path

import aiosqlite
import fastapi
import sqlalchemy
import starlette
import uvicorn

import gateway

OWN = tuple(str(Path(package.__file__).parent) for package in (gateway, fastapi, starlette, uvicorn))
DATABASE = tuple(str(Path(package.__file__).parent) for package in (sqlalchemy, aiosqlite))
EVENT_LOOP = str(Path(asyncio.__file__).parent)


@cache
def is_own(code):
    """Return True for code of the gateway or of its frameworks."""
    return code.co_filename.startswith(OWN)


@cache
def is_of_store(code):
    """Return True for the code of the gateway, its frameworks, and its way to the database."""
    return is_own(code) or code.co_filename.startswith(DATABASE)


class Calls:
    """Count calls while the block runs.  counts: tells by the code of a call whether it counts."""

    def __init__(self, counts=is_own):
        self.counts, self.count = counts, 0

    def __enter__(self):
        self.count = 0
        gc.disable()  # a profiler that watches it would be counted
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        gc.enable()

    def _see(self, frame, event, _):
        if event in ("call", "c_call") and self.counts(frame.f_code):
            self.count += 1


class CallsInThreads(Calls):
    """Count calls of this thread, and of those that start later; the object has to exist before they start."""

    def __init__(self, counts):
        super().__init__(counts)
        threading.setprofile(self._see)

    def close(self):
        """Count nothing of later threads."""
        threading.setprofile(None)


class Writes(Calls):
    """Count what the counted code gives to transports of asyncio: mostly a system call each."""

    def _see(self, frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_name == "write" and code.co_filename.startswith(EVENT_LOOP):
            self.count += self.counts(frame.f_back.f_code)


def held(feed, data):
    """Return the memory peak while `feed` runs."""
    tracemalloc.start()
    try:
        feed(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
