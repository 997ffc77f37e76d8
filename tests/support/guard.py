"""Fail a unit test that opens a socket or a store file, starts a process, sleeps, or leaves a store open.

The guard replaces the functions that do so.  An audit hook would see more, but it makes threads fail in CPython 3.11:
sys.settrace collects garbage beside a hook, another thread runs meanwhile, and only one may install its tracer.
"""

import asyncio
import os
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from aiosqlite.core import _connection_worker_thread as _CONNECTION

from support.wait import DEADLINE

FORBIDDEN: dict[Any, list[str]] = {
    os: ["execv", "execve", "fork", "forkpty", "posix_spawn", "posix_spawnp", "system"],
    socket: ["getaddrinfo"],
    socket.socket: ["bind", "connect", "connect_ex"],
    sqlite3: ["connect"],
    sqlite3.dbapi2: ["connect"],
    subprocess.Popen: ["__init__"],
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


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if _GUARD.on:
            _GUARD.fail(function.__qualname__)
        return function(*args, **kwargs)

    return call


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
    """Install the guard in this process."""
    for owner, names in FORBIDDEN.items():
        for name in names:
            setattr(owner, name, _guarded(getattr(owner, name)))
    time.sleep, asyncio.sleep = _guarded_sleep, _guarded_asyncio_sleep
