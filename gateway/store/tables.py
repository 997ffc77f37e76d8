"""The tables.

A *thread* is a list of items that grows at its end: the input and output of a chain of responses, the items of a
conversation, the messages of a chat completion.  A response is a range of a thread: its input, then its output.  Where
two responses go on from the same one, the second begins a thread of its own, whose parent is the first one's up to that
place.  So each item is kept once, extending a chain costs what is added, and a page of it is a range of an index.

A response that is not finished has a thread of its own, and a *job* with its lease: all three have
the same id.  What its followers are told is a log: rows of *events*, each of them some that follow each other.

A body is JSON in UTF-8, as bytes: so its length is what it takes, and PostgreSQL does not mind a NUL in it.
"""

from hashlib import sha256

from msgspec import json
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    TypeDecorator,
    or_,
)

_LONGEST = 3600  # seconds; no lease is as long, so one that ends later was written by a clock that was ahead
LONGEST_MS = _LONGEST * 1000


def lease_ended(until: Column[int], now: int | ColumnElement[int], second: int = 1) -> ColumnElement[bool]:
    """Match rows whose lease has ended, few without this condition; `second`: units of time in a second."""
    return or_(until <= now, until > now + _LONGEST * second)


ID_LENGTH = 128
encode, decode = json.Encoder().encode, json.Decoder().decode


def as_stored(id: str) -> str:
    """A text that is compared, and may be a client's: one that a database may not take stands there as its hash."""
    return id if len(id) <= ID_LENGTH and "\0" not in id else sha256(id.encode()).hexdigest()


class IdType(TypeDecorator[str]):
    """A text as `as_stored` says."""

    impl = String(ID_LENGTH)
    cache_ok = True

    def process_bind_param(self, value: str | None, _: Dialect) -> str | None:
        return None if value is None else as_stored(value)


metadata = MetaData()

threads = Table(
    "threads",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("parent", IdType),  # the thread it goes on from,
    Column("parent_end", Integer),  # up to there, exclusively
    Column("length", Integer, nullable=False),  # the place of the next item
    Column("bytes", BigInteger, nullable=False),  # of its items, and of what is kept beside them
    Column("used_at", BigInteger, nullable=False),  # when something was put into it, or went on from it
    Index("threads_by_use", "used_at"),
    Index("threads_by_parent", "parent"),
)
items = Table(
    "items",
    metadata,
    Column("thread", IdType, ForeignKey("threads.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("id", IdType),
    Column("body", LargeBinary),  # null: it was deleted with its response
    Index("items_by_id", "tenant", "id", "thread"),
)
responses = Table(
    "responses",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("thread", IdType, ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    Column("first", Integer, nullable=False),  # the place of its first input item,
    Column("output", Integer, nullable=False),  # of its first output item,
    Column("end", Integer, nullable=False),  # and behind its last one
    Column("body", LargeBinary, nullable=False),  # the Response object without its output
    Index("responses_by_thread", "thread"),
)
jobs = Table(
    "jobs",
    metadata,
    Column("id", IdType, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("holder", IdType),  # the process that is at work on it; null: nobody is,
    Column("held_until", BigInteger, nullable=False),  # and until then nobody else is: Unix milliseconds
    Column("attempts", Integer, nullable=False),
    Column("cancelled", Boolean, nullable=False),
    Column("wanted_until", BigInteger),  # Unix milliseconds; null: always
    Index("jobs_by_lease", "held_until"),
    Index("jobs_by_holder", "holder"),
)
requests = Table(  # of jobs: a lease is renewed often, and SQLite writes, or compares, the whole of a row
    "requests",
    metadata,
    Column("job", IdType, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
events = Table(
    "events",
    metadata,
    Column("response", IdType, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("first", Integer, primary_key=True),  # the numbers of its first event
    Column("last", Integer, nullable=False),  # and of its last one
    Column("data", LargeBinary, nullable=False),
    Column("packed", Boolean, nullable=False),  # the whole log in one row, compressed, and part of its thread's bytes
    Column("valid_until", BigInteger),  # null: as long as the response
    Index("events_by_validity", "valid_until"),
)
conversations = Table(
    "conversations",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("thread", IdType, ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("metadata", LargeBinary, nullable=False),  # JSON
    Column("holder", IdType),  # the request that is at work on it,
    Column("held_until", BigInteger, nullable=False),  # until then at the latest: Unix milliseconds
    Index("conversations_by_thread", "thread"),
)
completions = Table(
    "completions",
    metadata,
    Column(
        "id", IdType, ForeignKey("threads.id", ondelete="CASCADE"), primary_key=True
    ),  # its messages are that thread
    Column("tenant", IdType, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("model", IdType, nullable=False),
    Column("body", LargeBinary, nullable=False),  # the ChatCompletion object
    Index("completions_by_age", "tenant", "created_at", "id"),
)
labels = Table(  # the metadata of completions once more, to find them by
    "labels",
    metadata,
    Column("completion", IdType, ForeignKey("completions.id", ondelete="CASCADE"), primary_key=True),
    Column("key", IdType, primary_key=True),
    Column("value", IdType, nullable=False),
)
keys = Table(
    "keys",
    metadata,
    Column("tenant", IdType, primary_key=True),
    Column("key", IdType, primary_key=True),
    Column("digest", IdType, nullable=False),  # of the request
    Column("holder", IdType, nullable=False),  # the holder of its lease,
    Column("held_until", BigInteger, nullable=False),  # and until when nobody else does
    Column("valid_until", BigInteger, nullable=False),
    Column("status", Integer),  # null: it is being answered
    Column("type", String(256)),
    Column("body", LargeBinary),
    Index("keys_by_validity", "valid_until"),
)
thoughts = Table(
    "thoughts",
    metadata,
    Column("tenant", IdType, primary_key=True),
    Column("key", IdType, primary_key=True),
    Column("text", LargeBinary, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("used_at", BigInteger, nullable=False),
    Index("thoughts_by_use", "used_at"),
)
uses = Table(  # of what has limits, in the window of time that begins then
    "uses",
    metadata,
    Column("key", IdType, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("amount", BigInteger, nullable=False),
    Column("valid_until", BigInteger, nullable=False),
    Index("uses_by_validity", "valid_until"),
)
