"""Migrate the schema of the database step by step; a test compares the result with `gateway.store.tables`."""

from pathlib import Path

from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Bring the database up to date, in the transaction of this connection.

    A database of a newer release stays as it is: migrations only add, so it has everything that this release needs.
    """
    from alembic import command  # noqa: PLC0415 - 11 MB, once in the life of a process
    from alembic.config import Config  # noqa: PLC0415
    from alembic.runtime.migration import MigrationContext  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
    if known.issuperset(MigrationContext.configure(connection).get_current_heads()):
        command.upgrade(config, "head")
