"""What lasts: responses, conversations, completions and thoughts, in SQLite or PostgreSQL.  No other code speaks SQL.

Reading order:

    tables          what there is                                             ← start here
    migrations      how a database gets there
    database        transactions, and StoreFailed
    threads         lists of items that grow and branch: what all the others are made of
    conversations   a thread with a name, and who is at work on it
    responses       ranges of threads, and what they go on from
    completions     stored chat completions
    keys            requests that are sent twice and answered once
    thoughts        the reasoning that clients do not send back
    sweep           deletes what was not used for long, or is too much

All are functions over a connection (`async with database.writing() as db`), and look up per tenant: what another one
has does not exist.  Times are arguments: Unix seconds, but for the leases of conversations, which are in milliseconds.
"""

from gateway.store.database import Database, StoreFailed

__all__ = ["Database", "StoreFailed"]
