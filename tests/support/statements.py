"""Observe the statements that a store sends to its database."""

from contextlib import contextmanager

from sqlalchemy import event, text


@contextmanager
def noted(database):
    """Yield a list of the statements sent within the block, with their parameters."""
    sent, engine = [], database._engines.writes.sync_engine

    def note(connection, cursor, statement, parameters, context, executemany):
        sent.append((statement, parameters[0] if executemany else parameters))

    event.listen(engine, "before_cursor_execute", note)
    yield sent
    event.remove(engine, "before_cursor_execute", note)


async def plan(db, statement, parameters):
    """Return the query plan of a statement."""
    if db.dialect.name == "sqlite":
        rows = await db.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        return "\n".join(row[3] for row in rows)
    for unwanted in ("seqscan", "bitmapscan", "sort"):  # these are in a plan only if there is no alternative
        await db.execute(text(f"SET LOCAL enable_{unwanted} = off"))
    return "\n".join(row[0] for row in await db.exec_driver_sql(f"EXPLAIN {statement}", parameters))
