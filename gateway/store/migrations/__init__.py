"""Migrate the schema of the database step by step; a test compares the result with `gateway.store.tables`."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, String, column, inspect, select, table

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory

_HERE = Path(__file__).parent
_TABLE = "alembic_version"


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Bring the database to a revision, the newest by default, in the transaction of this connection.

    A database of a newer release stays as it is: migrations only add, so it has everything that this release needs.
    """
    if _revision_of(connection) in (None, *steps()[:-1]):
        _migrate(connection, revision)


def _revision_of(connection: Connection) -> str | None:
    """Return the revision of the database; None if it is new."""
    if not inspect(connection).has_table(_TABLE):
        return None
    return connection.scalar(select(column("version_num", String)).select_from(table(_TABLE)))


def steps() -> list[str]:
    """Return all revisions in their order.  The name of a file begins with its revision."""
    return sorted(file.stem.partition("_")[0] for file in (_HERE / "versions").glob("*.py"))


def _migrate(connection: Connection, revision: str) -> None:
    from alembic.operations import Operations  # noqa: PLC0415 - 8 MB, for a new database or an old one only
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415

    scripts = revisions()
    context = MigrationContext.configure(
        connection, opts={"script": scripts, "fn": lambda current, _: scripts._upgrade_revs(revision, current)}
    )
    with Operations.context(context):
        context.run_migrations()


@cache
def revisions() -> "ScriptDirectory":
    """Return the migrations, which alembic's own commands compile anew for each database."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    return ScriptDirectory(str(_HERE))
