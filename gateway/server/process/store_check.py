"""Say why the gateway cannot use its store, without creating or migrating it."""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.installation import install_command
from gateway.server.upstream.failure_text import cause_text

if TYPE_CHECKING:
    import asyncpg

_SECONDS = 5  # to connect, and for the statement
_KEY = "store.url"
# By the SQLSTATE of PostgreSQL's error: its text, and what to do.
_REFUSALS = {
    "28P01": "{error}; check the user and the password in store.url",
    "28000": "{error}; check the user in store.url, and pg_hba.conf of the server",
    "3D000": "{error}; create it, for example with `createdb`, or check store.url",
    "42501": "{error}; grant the user of store.url this right",
    "53300": "{error}; raise max_connections of the server",
    "57P03": "{error}; the gateway tries again",
}
_RIGHTS = """
SELECT pg_is_in_recovery(), to_regclass('alembic_version') IS NOT NULL, current_schema(), current_user,
    coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)
"""


def store_problem(url: str, may_write: Callable[[Path], bool] = lambda path: os.access(path, os.W_OK)) -> str:
    """Return why the gateway cannot use the store at this URL, "" if it can.  It blocks.

    may_write: whether this process may write to a file or directory.
    """
    scheme, _, rest = url.partition("://")
    if scheme.startswith("sqlite"):
        return _sqlite_problem(rest.removeprefix("/").partition("?")[0], may_write)
    return asyncio.run(_postgresql_problem(rest))


def _sqlite_problem(name: str, may_write: Callable[[Path], bool]) -> str:
    if name in ("", ":memory:"):
        return ""
    file = Path(name).absolute()
    if problem := _path_problem(file, may_write):
        return f"{problem}, or check {_KEY}"
    if not file.exists():
        return ""
    try:
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True)) as db:
            db.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.Error as error:
        return f"the file cannot be used: {error}; move it away, or check {_KEY}"
    return ""


def _path_problem(file: Path, may_write: Callable[[Path], bool]) -> str:
    folder = file.parent
    if not folder.is_dir():
        return f"the directory {folder} does not exist; create it"
    if not may_write(folder):  # SQLite writes further files beside it
        return f"the directory {folder} is read-only for the gateway; make it writable"
    if file.exists() and not may_write(file):
        return "the file is read-only for the gateway; make it writable"
    return ""


async def _postgresql_problem(rest: str) -> str:
    try:
        import asyncpg  # noqa: PLC0415 - most gateways have no PostgreSQL
    except ImportError:
        return f"the package asyncpg is not installed; run: {install_command('asyncpg')}"
    try:
        connection = await asyncpg.connect(f"postgresql://{rest}", timeout=_SECONDS, command_timeout=_SECONDS)
        try:
            return await rights_problem(connection)
        finally:
            connection.terminate()
    except asyncpg.PostgresError as error:
        words = _REFUSALS.get(str(error.sqlstate), "PostgreSQL reports: {error}")
        return words.format(error=error)
    except (asyncpg.InterfaceError, ValueError) as error:
        return f"{_KEY} is invalid: {error}"
    except OSError as error:
        if isinstance(error, ConnectionError) and not isinstance(error, ConnectionRefusedError):
            return f"the server closed the connection; is it PostgreSQL, and does it accept the sslmode of {_KEY}?"
        return cause_text(error, program="PostgreSQL", url=_KEY, within=f" within {_SECONDS} s")


async def rights_problem(connection: "asyncpg.Connection") -> str:
    """Return which right a migration of the schema lacks."""
    standby, migrated, schema, user, may_create = await connection.fetchrow(_RIGHTS)
    if standby:
        return f"the server is a read-only standby; name the primary in {_KEY}"
    if schema is None:
        return f"the search path names no schema that exists; create one, or check search_path in {_KEY}"
    if not migrated and not may_create:
        return f"user {user!r} may not create tables; run: GRANT CREATE ON SCHEMA {schema} TO {user}"
    return ""
