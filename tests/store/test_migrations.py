"""Test that migrations only add, so that the previous release can use a newer database."""

import pytest
from sqlalchemy import create_engine, inspect, text

from gateway.store import Database, migrations
from gateway.store.tables import metadata

STEPS = migrations.steps()


def described(connection):
    """Return the columns, keys and constraints of each table, by name."""
    found, tables = inspect(connection), {}
    for table in set(found.get_table_names()) - {"alembic_version"}:
        columns = {
            column["name"]: (str(column["type"]), column["nullable"], column["default"])
            for column in found.get_columns(table)
        }
        rules = found.get_pk_constraint(table), found.get_foreign_keys(table), found.get_unique_constraints(table)
        unique = [index for index in found.get_indexes(table) if index["unique"]]
        tables[table] = columns, (*rules, unique, found.get_check_constraints(table))
    return tables


def goes_on(old, new):
    """Return whether statements for the old tables also work with the new ones."""
    return old.keys() <= new.keys() and all(
        rules == new[table][1]
        and columns.items() <= new[table][0].items()
        and all(
            nullable or default is not None
            for name, (_, nullable, default) in new[table][0].items()
            if name not in columns
        )
        for table, (columns, rules) in old.items()
    )


def changed(*statements):
    """Return the present schema before and after these statements."""
    with create_engine("sqlite://").connect() as connection:
        migrations.upgrade(connection)
        before = described(connection)
        for statement in statements:
            connection.execute(text(statement))
        return before, described(connection)


def test_migration_files_are_named_for_their_revisions():
    assert [step.revision for step in migrations.revisions().walk_revisions()] == STEPS[::-1]


def test_migration_steps_only_add():
    with create_engine("sqlite://").connect() as connection:
        before = described(connection)
        for step in STEPS:
            migrations.upgrade(connection, step)
            after = described(connection)
            assert goes_on(before, after), step
            before = after
    assert before.keys() == metadata.tables.keys()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE keys DROP COLUMN body",
        "ALTER TABLE keys RENAME COLUMN body TO text",
        "ALTER TABLE keys ADD COLUMN more INTEGER NOT NULL DEFAULT 0 REFERENCES jobs (id)",
        "ALTER TABLE keys RENAME TO old; CREATE TABLE keys AS SELECT *, 0 AS more FROM old",
        "CREATE UNIQUE INDEX one ON keys (digest)",
        "DROP TABLE keys",
    ],
)
def test_migration_check_finds_removals_and_new_constraints(statement):
    assert not goes_on(*changed(*statement.split(";")))


def test_migration_check_accepts_additions():
    more = "CREATE TABLE more (id INTEGER)", "ALTER TABLE keys ADD COLUMN more INTEGER", "CREATE INDEX m ON keys (more)"
    assert goes_on(*changed(*more, "ALTER TABLE keys ADD COLUMN most INTEGER NOT NULL DEFAULT 0"))


async def test_migration_leaves_a_newer_database_as_it_is(store_url):
    """A gateway of the old release may restart beside newer ones."""
    newer = Database(store_url)
    async with newer.writing() as db:
        await db.execute(text("UPDATE alembic_version SET version_num = 'newer'"))
    await newer.close()
    old = Database(store_url)
    async with old.reading() as db:
        assert await db.scalar(text("SELECT count(*) FROM jobs")) == 0
        assert await db.scalar(text("SELECT version_num FROM alembic_version")) == "newer"
    await old.close()
