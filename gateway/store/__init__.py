"""Store responses, conversations, completions and reasoning in SQLite or PostgreSQL.  No other package uses SQL.

Reading order:

    tables          what there is                                             ← start here
    migrations      how a database gets there
    records         what others see of it
    batches         what is written together
    database        transactions
    driver          SQLite in a thread
    engines         SQLite and PostgreSQL
    threads         lists of items that grow and branch: what all the others are made of
    conversations   a thread with a name, and its lease
    responses       ranges of threads, and what they go on from
    jobs            leases of responses that outlive the connection of their client
    logs            the events of jobs
    completions     stored chat completions
    keys            requests that are sent twice and answered once
    thoughts        the reasoning that clients do not send back
    uses            what keys and models use, which may be limited
    sweep           deletes what was not used for long, or is too much

All are functions over a connection (`async with database.writing() as db`), and look up per tenant: what another one
has does not exist.  Jobs and logs are known by the id of their response, which is to be found first.  Times are
arguments: Unix seconds, but for what has to do with leases, which is in milliseconds.

Whoever locks several rows locks those of jobs first, then those of threads, then those of responses: so two of them
never wait for each other.
"""

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec

from gateway.store.database import Database

__all__ = ["Database"]

# Run when something of them is used: a gateway that stores nothing does without SQLAlchemy (22 MB, 0.2 s).
_WITH_SQL = (
    "completions", "conversations", "jobs", "keys", "logs", "responses", "sweep", "thoughts", "threads", "uses",
)  # fmt: skip


def _later(name: str) -> None:
    spec = find_spec(f"{__name__}.{name}")
    assert spec and spec.loader
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[spec.name] = globals()[name] = module_from_spec(spec)
    spec.loader.exec_module(module)


for _name in _WITH_SQL:
    _later(_name)
