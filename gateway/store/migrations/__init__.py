"""Migrate the schema of the database step by step; a test compares the result with `gateway.store.tables`."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection

if TYPE_CHECKING:
    from alembic.script import ScriptDirectory


def upgrade(connection: Connection, revision: str = "head") -> None:
    """Bring the database to a revision, the newest by default, in the transaction of this connection.

    A database of a newer release stays as it is: migrations only add, so it has everything that this release needs.
    """
    from alembic.operations import Operations  # noqa: PLC0415 - 11 MB, for a gateway with a store only
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415

    scripts = revisions()
    context = MigrationContext.configure(
        connection, opts={"script": scripts, "fn": lambda current, _: scripts._upgrade_revs(revision, current)}
    )
    known = {one.revision for one in scripts.walk_revisions()}
    if known.issuperset(context.get_current_heads()):
        with Operations.context(context):
            context.run_migrations()


@cache
def revisions() -> "ScriptDirectory":
    """Return the migrations, which alembic's own commands compile anew for each database."""
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    return ScriptDirectory(str(Path(__file__).parent))
