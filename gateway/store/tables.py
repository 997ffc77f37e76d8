"""Define the tables.

A *thread* is a list of items that grows at its end: the input and output of a chain of responses, the items of a
conversation, the messages of a chat completion.  A response is a range of a thread: its input, then its output.  If two
responses continue the same one, the second begins a thread of its own, whose parent is the first thread up to that
position.  So each item is stored once, extending a chain costs only the new items, and a page is a range of an index.

An unfinished response has a thread of its own, and a *job* with its lease: all three have the same id.  The *events*
for its subscribers form a log; each row has consecutive events.

The bytes of a *file* are *blobs*: one, or a blob for each part of the *upload* that made the file.  A blob without
either is being written, until its lease ends.  With SQLite its bytes are in a folder beside the database, else in
*chunks*.

A *batch* has a lease like a job.  Its *results* are the lines of its output files, until these files are made.

A body is JSON in UTF-8, as bytes: its length is its size, and PostgreSQL accepts a NUL in it.
"""

from collections.abc import Collection
from hashlib import sha256
from typing import Any

from msgspec import json
from sqlalchemy import (
    ARRAY,
    JSON,
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
from sqlalchemy.types import TypeEngine

_LONGEST = 3600  # seconds; all leases are shorter, so a later end comes from a clock that was ahead
LONGEST_MS = _LONGEST * 1000


def lease_ended(until: Column[int], now: int | ColumnElement[int], second: int = 1) -> ColumnElement[bool]:
    """Match rows whose lease has ended.  second: units of time in a second.

    An end too far in the future counts as ended as well.
    """
    return or_(until <= now, until > now + _LONGEST * second)


ID_LENGTH = 128
encode, decode = json.Encoder().encode, json.Decoder().decode


def as_stored(id: str) -> str:
    """Return a text as it is stored and compared; a text that databases may reject is replaced by its hash."""
    return id if len(id) <= ID_LENGTH and "\0" not in id else sha256(id.encode()).hexdigest()


class IdType(TypeDecorator[str]):
    """A text column with the conversion of `as_stored`."""

    impl = String(ID_LENGTH)
    cache_ok = True

    def process_bind_param(self, value: str | None, _: Dialect) -> str | None:
        """Convert a value; called by SQLAlchemy."""
        return None if value is None else as_stored(value)


class IdListType(TypeDecorator[list[str]]):
    """A list of ids as one parameter, an array or JSON, with the conversion of `as_stored`."""

    impl = JSON
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return the type of the dialect; called by SQLAlchemy."""
        return dialect.type_descriptor(ARRAY(String) if dialect.name == "postgresql" else JSON())

    def process_bind_param(self, value: Collection[str] | None, _: Dialect) -> list[str]:
        """Convert a value; called by SQLAlchemy."""
        return [*map(as_stored, value or ())]


metadata = MetaData()

threads = Table(
    "threads",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("parent", IdType),  # the thread that it continues,
    Column("parent_end", Integer),  # up to this place, exclusively
    Column("length", Integer, nullable=False),  # the place of the next item
    Column("bytes", BigInteger, nullable=False),  # of its items, and of data stored along with them
    Column("used_at", BigInteger, nullable=False),  # time of the last addition or continuation
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
    Column("body", LargeBinary),  # null: deleted with its response
    Index("items_by_id", "tenant", "id", "thread"),
)
responses = Table(
    "responses",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("thread", IdType, ForeignKey("threads.id", ondelete="CASCADE"), nullable=False),
    Column("first", Integer, nullable=False),  # place of its first input item,
    Column("output", Integer, nullable=False),  # of its first output item,
    Column("end", Integer, nullable=False),  # and behind its last item
    Column("body", LargeBinary, nullable=False),  # the Response object without its output
    Index("responses_by_thread", "thread"),
)
jobs = Table(
    "jobs",
    metadata,
    Column("id", IdType, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("holder", IdType),  # the process that works on it; null: none
    Column("held_until", BigInteger, nullable=False),  # end of its lease, Unix milliseconds
    Column("attempts", Integer, nullable=False),
    Column("cancelled", Boolean, nullable=False),
    Column("wanted_until", BigInteger),  # Unix milliseconds; null: forever
    Index("jobs_by_lease", "held_until"),
    Index("jobs_by_holder", "holder"),
)
requests = Table(  # of jobs; separate, since SQLite rewrites or compares whole rows, and leases are renewed often
    "requests",
    metadata,
    Column("job", IdType, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    Column("body", LargeBinary, nullable=False),
)
events = Table(
    "events",
    metadata,
    Column("response", IdType, ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    Column("first", Integer, primary_key=True),  # number of its first event
    Column("last", Integer, nullable=False),  # and of its last one
    Column("data", LargeBinary, nullable=False),
    Column("packed", Boolean, nullable=False),  # the whole log in one compressed row, counted in its thread's bytes
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
    Column("holder", IdType),  # the request that has the lease,
    Column("held_until", BigInteger, nullable=False),  # until then, Unix milliseconds
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
labels = Table(  # the metadata of completions once more, as an index
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
    Column("holder", IdType, nullable=False),  # the request that has the lease,
    Column("held_until", BigInteger, nullable=False),  # until then
    Column("valid_until", BigInteger, nullable=False),
    Column("status", Integer),  # null: in progress
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
uses = Table(  # usage of limited keys and models, in the time window that begins at `start`
    "uses",
    metadata,
    Column("key", IdType, primary_key=True),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("amount", BigInteger, nullable=False),
    Column("valid_until", BigInteger, nullable=False),
    Index("uses_by_validity", "valid_until"),
)
api_keys = Table(
    "api_keys",
    metadata,
    Column("name", IdType, primary_key=True),
    Column("version", BigInteger, nullable=False),  # a later change of any key has a higher one
    Column("body", LargeBinary, nullable=False),  # JSON; it has digests, no key
    Index("api_keys_by_version", "version"),
)
daily_usage = Table(  # sums of finished requests
    "daily_usage",
    metadata,
    Column("day", Integer, primary_key=True, autoincrement=False),  # days since 1970-01-01 (UTC)
    Column("key", IdType, primary_key=True),  # the name of an API key; empty: a request without one
    Column("model", IdType, primary_key=True),
    Column("requests", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("milliseconds", BigInteger, nullable=False),
)
audit_log = Table(
    "audit_log",
    metadata,
    Column("number", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),  # the database counts
    Column("created_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),  # JSON
    Index("audit_log_by_age", "created_at"),
)
files = Table(
    "files",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),  # null: never
    Column("purpose", IdType, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("name", LargeBinary, nullable=False),  # in UTF-8
    Index("files_by_age", "tenant", "created_at", "id"),
    Index("files_by_expiry", "expires_at"),
)
uploads = Table(
    "uploads",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("bytes", BigInteger, nullable=False),  # of all parts together
    Column("body", LargeBinary, nullable=False),  # the client's description of the file, as JSON
    Index("uploads_by_expiry", "expires_at"),
)
blobs = Table(
    "blobs",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("bytes", BigInteger, nullable=False),  # while it is written: the bytes that are reserved for it
    Column("file", IdType, ForeignKey("files.id", ondelete="CASCADE")),
    Column("place", Integer, nullable=False),  # among the blobs of the file
    Column("upload", IdType, ForeignKey("uploads.id", ondelete="CASCADE")),
    Column("valid_until", BigInteger),  # the end of the lease while it is written
    Index("blobs_by_tenant", "tenant"),
    Index("blobs_by_file", "file", "place"),
    Index("blobs_by_upload", "upload"),
    Index("blobs_by_validity", "valid_until"),
)
chunks = Table(
    "chunks",
    metadata,
    Column("blob", IdType, ForeignKey("blobs.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
batches = Table(
    "batches",
    metadata,
    Column("id", IdType, primary_key=True),
    Column("tenant", IdType, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("holder", IdType),  # the process that works on it
    Column("held_until", BigInteger),  # end of its lease, Unix milliseconds; null: the batch has ended
    Column("valid_until", BigInteger),  # null: the batch has not ended
    Column("completed", Integer, nullable=False),  # lines
    Column("failed", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),  # the Batch without its counts of finished lines, as JSON
    Index("batches_by_age", "tenant", "created_at", "id"),
    Index("batches_by_lease", "held_until"),
    Index("batches_by_validity", "valid_until"),
)
results = Table(
    "results",
    metadata,
    Column("batch", IdType, ForeignKey("batches.id", ondelete="CASCADE"), primary_key=True),
    Column("place", Integer, primary_key=True),  # of the line in the input file
    Column("ok", Boolean, nullable=False),  # the response has a status of 2xx
    Column("data", LargeBinary, nullable=False),
)
