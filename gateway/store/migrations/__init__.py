"""The database's schema, step by step; `gateway.store.tables` is what they come to, and a test compares the two."""

from pathlib import Path

from sqlalchemy import Connection


def upgrade(connection: Connection) -> None:
    """Bring the database up to date, in the transaction of this connection.

    One that a newer release has been at stays as it is: it has all that this one needs, as migrations only add.
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
