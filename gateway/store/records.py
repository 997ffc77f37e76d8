"""What is kept, as it is told: values that know nothing of a database."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

from msgspec import Struct

Item = dict[str, Any]


class Place(Struct, frozen=True):
    """A place in a thread: behind its first `end` items."""

    thread: str
    end: int


class Range(Struct, frozen=True):
    """Some items of a thread: from `first` up to `end`, exclusively."""

    thread: str
    first: int
    end: int


class Thread(Struct, frozen=True):
    """One that begins with these items, perhaps going on from another one; now: Unix seconds.

    beside: how many bytes are kept along with the items.
    """

    id: str
    tenant: str
    added: Sequence[Item]
    now: int
    parent: Place | None = None
    beside: int = 0


class Response(Struct, frozen=True):
    """A Response object to be kept, with what it was asked, in a thread of its own; parent: what it goes on from."""

    tenant: str
    body: dict[str, Any]
    input: Sequence[Item]
    now: int
    parent: Place | None = None


class Broken(Exception):
    """Items that a chain needs were deleted."""


class Conversation(Struct, frozen=True):
    """A conversation as it was when it was looked up; end: the place behind its last item."""

    id: str
    thread: str
    created_at: int
    metadata: dict[str, str]
    end: int

    @property
    def items(self) -> Range:
        return Range(self.thread, 0, self.end)

    @property
    def behind(self) -> Place:
        """Where a response goes on from it that is no part of it."""
        return Place(self.thread, self.end)

    def shown(self) -> dict[str, Any]:
        return {"id": self.id, "object": "conversation", "created_at": self.created_at, "metadata": self.metadata}


class Kept(Struct, frozen=True):
    """A response in the store: the ranges of its thread, and its object without the output."""

    id: str
    thread: str
    first: int
    output: int
    end: int
    body: dict[str, Any]

    @property
    def before(self) -> Place:
        """Where its own input begins."""
        return Place(self.thread, self.first)

    @property
    def behind(self) -> Place:
        """Where another response goes on."""
        return Place(self.thread, self.end)

    @property
    def input(self) -> Range:
        return Range(self.thread, self.first, self.output)

    @property
    def own(self) -> Range:
        return Range(self.thread, self.first, self.end)


class Job(Struct, frozen=True):
    """A job as it was taken; request: the body as it was sent.

    attempts: how often somebody has set to work on it, this time included.
    """

    id: str
    tenant: str
    request: bytes
    attempts: int
    cancelled: bool


class Held(Struct, frozen=True):
    """What others have said of a job meanwhile; wanted_until: None is for ever."""

    cancelled: bool
    wanted_until: int | None


class State(Enum):
    QUEUED = "nobody is at work on it"
    RUNNING = "somebody is, or was and has not said that it stopped"


class Row(Struct, frozen=True):
    """Some events that follow each other: the numbers of the first and of the last one, and what they are."""

    first: int
    last: int
    data: bytes


class Completion(Struct, frozen=True):
    """A stored ChatCompletion object; asked: how many messages it answers."""

    id: str
    created_at: int
    body: dict[str, Any]
    asked: int

    @property
    def messages(self) -> Range:
        """What it answers; each has an id."""
        return Range(self.id, 0, self.asked)


class Wanted(Struct, frozen=True):
    """Which completions a page is of: those of a model, if it is given, that have all of this metadata."""

    model: str | None = None
    metadata: dict[str, str] = {}


class Answer(Struct, frozen=True):
    """What the first request was answered."""

    status: int
    type: str
    body: bytes


class Begun(Enum):
    NEW = "it is for the asker to answer"
    RUNNING = "somebody is answering it"
    OTHER = "the key is that of another request"


class Slot(Struct, frozen=True, order=True):
    """The count of one thing in one window; start, until: Unix seconds, `until` is when nobody asks for it any more."""

    key: str
    start: int
    until: int
