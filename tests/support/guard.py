"""Fail a unit test that opens a socket or a store file, starts a process, sleeps, or leaves a store open.

CPython reports each of these to audit hooks, also for the code under test:
https://docs.python.org/3/library/audit_events.html
"""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from aiosqlite.core import _connection_worker_thread as _CONNECTION

from support.wait import DEADLINE

FORBIDDEN = {
    "os.exec",
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.system",
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
    "sqlite3.connect",
    "subprocess.Popen",
}


class NotPure(RuntimeError):
    """A unit test did something that is forbidden for unit tests."""


class _Guard:
    """Record forbidden actions, since code under test may catch the error."""

    def __init__(self) -> None:
        self.on = False
        self.done: list[str] = []

    def fail(self, what: str) -> None:
        self.done.append(what)
        raise NotPure(what)


_GUARD = _Guard()


class _ForbiddenEvent(str):
    """An event that tells the guard as soon as it is compared with one that happens.

    A dict with such keys is an audit hook that runs no Python code for all other events. Python code may let another
    thread run. In CPython 3.11, a thread then fails to start if both install a tracer, as with coverage.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, event: object) -> bool:
        if _GUARD.on:
            _GUARD.fail(f"{event}")
        return False


_sleep, _asyncio_sleep = time.sleep, asyncio.sleep


def _guarded_sleep(seconds):
    if seconds and _GUARD.on:
        _GUARD.fail(f"time.sleep({seconds})")
    _sleep(seconds)


async def _guarded_asyncio_sleep(delay, result=None):
    if delay and _GUARD.on:
        _GUARD.fail(f"asyncio.sleep({delay})")
    return await _asyncio_sleep(delay, result)


@contextmanager
def pure(test: str) -> Iterator[None]:
    """Raise NotPure if the block does something forbidden, even if code under test catches the first error."""
    _GUARD.on = True
    _GUARD.done.clear()
    try:
        yield
    finally:
        _GUARD.on = False
    if _GUARD.done:
        raise NotPure(
            f"{test} is a unit test by what it imports, but did {_GUARD.done[0]}: test at the seam below that, or add what "
            "it uses to USES in tests/support/tiers.py"
        )


def assert_no_open_store(module: str) -> None:
    """Fail in the module that left a connection to SQLite open, instead of where it is collected as garbage."""
    for thread in threading.enumerate():
        if getattr(thread, "_target", None) is _CONNECTION:
            thread.join(DEADLINE)  # it ends soon after the connection is closed
            assert not thread.is_alive(), f"a test of {module} left a store open"


def install() -> None:
    """Install the guard in this process.  Sleeping is no event in all versions of Python, so it is replaced."""
    sys.addaudithook(dict.fromkeys(map(_ForbiddenEvent, FORBIDDEN)).get)
    time.sleep, asyncio.sleep = _guarded_sleep, _guarded_asyncio_sleep
