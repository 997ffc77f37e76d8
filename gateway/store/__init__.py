"""Store responses, conversations, completions and reasoning in SQLite or PostgreSQL.  No other package uses SQL.

Reading order:

    tables              the tables                                                ← start here
    migrations          the steps from one schema to the next
    records             stored values without SQL
    database            transactions, and writes that share one
    engines             SQLite and PostgreSQL
    item_lists          lists of items that grow and branch: all others are made of them
    conversations       a list with a name, and its lease
    responses           ranges of lists, and the response that each continues
    jobs                leases of responses that outlive the connection of their client
    event_logs          the events of jobs
    chat_completions    stored chat completions
    idempotency_keys    requests that are sent twice and answered once
    reasoning_memory    reasoning that clients do not send back
    usage_counts        use of keys and models, which may be limited
    expiry              deletes rows that are old or surplus

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
    "chat_completions", "conversations", "jobs", "idempotency_keys", "event_logs", "responses", "expiry",
    "reasoning_memory", "item_lists", "usage_counts",
)  # fmt: skip


def _later(name: str) -> None:
    spec = find_spec(f"{__name__}.{name}")
    assert spec and spec.loader
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[spec.name] = globals()[name] = module_from_spec(spec)
    spec.loader.exec_module(module)


for _name in _WITH_SQL:
    _later(_name)
