"""Create the tables of new SQLite databases by the statements of a first one, as the migrations take six times as long."""

from functools import cache

from sqlalchemy import create_engine

from gateway.store import engines, migrations


def install():
    """Let all databases of this process be created so."""
    engines.upgrade = _upgrade


def _upgrade(connection):
    is_new = connection.dialect.name == "sqlite" and not connection.exec_driver_sql(_TABLES).first()
    if not is_new:
        migrations.upgrade(connection)
        return
    for statement in _statements():
        connection.exec_driver_sql(statement)


_TABLES = "SELECT 1 FROM sqlite_master"
_DEFINITIONS = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid"
_REVISION = "SELECT 'INSERT INTO alembic_version VALUES (''' || version_num || ''')' FROM alembic_version"


@cache
def _statements():
    """Return the statements that create the tables, and the one that says which revision they have."""
    with create_engine("sqlite://").begin() as connection:
        migrations.upgrade(connection)
        return [row[0] for query in (_DEFINITIONS, _REVISION) for row in connection.exec_driver_sql(query)]
