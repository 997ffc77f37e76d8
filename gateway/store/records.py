"""Define the values that the store returns and takes; they know nothing of a database."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

Item = dict[str, Any]


class ListPosition(Struct, frozen=True):
    """A place in a thread: behind its first `end` items."""

    thread: str
    end: int


class ItemRange(Struct, frozen=True):
    """Some items of a thread: from `first` up to `end`, exclusively."""

    thread: str
    first: int
    end: int


class ItemList(Struct, frozen=True):
    """One that begins with these items, perhaps going on from another one; now: Unix seconds.

    beside: how many bytes are kept along with the items.
    """

    id: str
    tenant: str
    added: Sequence[Item]
    now: int
    parent: ListPosition | None = None
    extra_bytes: int = 0


class NewResponse(Struct, frozen=True):
    """A Response object to be kept, with what it was asked, in a thread of its own; parent: what it goes on from."""

    tenant: str
    body: dict[str, Any]
    input: Sequence[Item]
    now: int
    parent: ListPosition | None = None


class ItemsMissing(Exception):
    """Items that a chain needs were deleted."""


class StoredConversation(Struct, frozen=True):
    """A conversation as it was when it was looked up; end: the place behind its last item."""

    id: str
    thread: str
    created_at: int
    metadata: dict[str, str]
    end: int

    @property
    def items(self) -> ItemRange:
        return ItemRange(self.thread, 0, self.end)

    @property
    def behind(self) -> ListPosition:
        """Where a response goes on from it that is no part of it."""
        return ListPosition(self.thread, self.end)

    def shown(self) -> dict[str, Any]:
        return {"id": self.id, "object": "conversation", "created_at": self.created_at, "metadata": self.metadata}


class StoredResponse(Struct, frozen=True):
    """A response in the store: the ranges of its thread, and its object without the output."""

    id: str
    thread: str
    first: int
    output: int
    end: int
    body: dict[str, Any]

    @property
    def start_position(self) -> ListPosition:
        """Where its own input begins."""
        return ListPosition(self.thread, self.first)

    @property
    def behind(self) -> ListPosition:
        """Where another response goes on."""
        return ListPosition(self.thread, self.end)

    @property
    def input(self) -> ItemRange:
        return ItemRange(self.thread, self.first, self.output)

    @property
    def own(self) -> ItemRange:
        return ItemRange(self.thread, self.first, self.end)


class StoredJob(Struct, frozen=True):
    """A job as it was taken; request: the body as it was sent.

    attempts: how often a process has begun it, this time included.
    """

    id: str
    tenant: str
    request: bytes
    attempts: int
    cancelled: bool


class JobLeaseState(Struct, frozen=True):
    """The changes of a job by other processes; wanted_until: None is for ever."""

    cancelled: bool
    wanted_until: int | None


class JobState(Enum):
    QUEUED = "no process works on it"
    RUNNING = "a process works on it, or did and has not reported its end"


class LogRow(Struct, frozen=True):
    """Some events that follow each other: the numbers of the first and of the last one, and what they are."""

    first: int
    last: int
    data: bytes


class StoredCompletion(Struct, frozen=True):
    """A stored ChatCompletion object; asked: how many messages it answers."""

    id: str
    created_at: int
    body: dict[str, Any]
    message_count: int

    @property
    def messages(self) -> ItemRange:
        """Return the range of its input messages; each has an id."""
        return ItemRange(self.id, 0, self.message_count)


class CompletionFilter(Struct, frozen=True):
    """Which completions a page is of: those of a model, if it is given, that have all of this metadata."""

    model: str | None = None
    metadata: dict[str, str] = {}


class StoredAnswer(Struct, frozen=True):
    """The response to the first request of an idempotency key."""

    status: int
    type: str
    body: bytes


class IdempotencyState(Enum):
    NEW = "it is for the asker to answer"
    RUNNING = "somebody is answering it"
    OTHER = "the key is that of another request"


class UsageSlot(Struct, frozen=True, order=True):
    """The count of one thing in one window; start, until: Unix seconds, `until` is when nobody asks for it any more."""

    key: str
    start: int
    until: int
