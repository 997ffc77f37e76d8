"""Store responses, conversations, completions, reasoning and files in SQLite or PostgreSQL.  No other package uses SQL.

Reading order:

    tables              the tables                                                ← start here
    migrations          the steps from one schema to the next
    records             stored values without SQL
    database            transactions
    write_queue         the order of writes, and those that share a transaction
    engines             SQLite and PostgreSQL
    sqlite_driver       a statement in one trip to SQLite's thread
    direct              a whole transaction in one trip, without SQLAlchemy
    item_lists          lists of items that grow and branch; most others build on them
    conversations       a list with a name, and its lease
    responses           ranges of lists, and the response that each continues
    jobs                leases of responses that outlive the connection of their client
    event_logs          the events of jobs
    chat_completions    stored chat completions
    idempotency_keys    repeated requests that get one response
    reasoning_memory    reasoning that clients do not send back
    usage_sums          usage of keys and models, by day for operators and by window for limits
    api_keys            API keys that commands and /admin/keys make
    audit_log           changes of these keys, and reloads
    files               files of tenants, and uploads, which are files that arrive in parts
    blobs               their bytes: owners, limits and leases
    batches             batches: their leases, and the results of their lines
    file_store          their bytes, in a folder or in rows
    expiry              deletes old and surplus rows

All are functions over a connection (`async with database.writing() as db`).  Those of constant statements cost less as
a whole (`database.run_writing`).  Each lookup is for one tenant: the rows of other tenants do not exist for it.  Jobs
and logs have the id of their response; the caller finds the response first.  Times are arguments, in Unix seconds;
those of leases are in milliseconds.

A transaction that locks several rows locks jobs first, then threads, then responses, so that no two transactions wait
for each other.
"""

from gateway.lazy_module import LazyModule
from gateway.store.database import Database

__all__ = ["Database"]

# Imported at first use: without stored data the gateway needs no SQLAlchemy (22 MB, 0.2 s).
_WITH_SQL = (
    "chat_completions", "conversations", "jobs", "idempotency_keys", "event_logs", "responses", "expiry",
    "reasoning_memory", "item_lists", "usage_sums", "api_keys", "audit_log",
    "files", "blobs", "batches",
)  # fmt: skip

for _name in _WITH_SQL:
    globals()[_name] = LazyModule(f"{__name__}.{_name}")
