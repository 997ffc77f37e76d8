"""Use a database file beside the gateway of this process.

A statement runs in a thread: it may have to wait for a transaction, which needs the event loop to end.
"""

import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing


async def run_statement(path, statement):
    """Run one statement and commit it."""
    await asyncio.to_thread(_run, path, statement)


def _run(path, statement):
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(statement)


@asynccontextmanager
async def locked(path):
    """Lock the database in this block, so that no other connection can write."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        await asyncio.to_thread(db.execute, "BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")
