"""Define the values that the store accepts and returns; they contain no SQL."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Literal

from msgspec import Struct

Item = dict[str, Any]


class ListPosition(Struct, frozen=True):
    """A position in a thread: behind its first `end` items."""

    thread: str
    end: int


class ItemRange(Struct, frozen=True):
    """A range of items of a thread: from `first` up to `end`, exclusively."""

    thread: str
    first: int
    end: int


class ItemList(Struct, frozen=True):
    """A new thread with its items; now: Unix seconds.

    parent: the position that it continues.
    extra_bytes: bytes that are stored along with the items.
    """

    id: str
    tenant: str
    added: Sequence[Item]
    now: int
    parent: ListPosition | None = None
    extra_bytes: int = 0


class ListAddition(Struct, frozen=True):
    """Items to append to a thread, with bytes that are stored along with them.  at: its end; now: Unix seconds."""

    at: ListPosition
    tenant: str
    added: Sequence[Item]
    now: int
    extra_bytes: int


class NewResponse(Struct, frozen=True):
    """A Response object to store in a thread of its own.

    input: its input items.
    now: Unix seconds.
    parent: the position that it continues.
    """

    tenant: str
    body: dict[str, Any]
    input: Sequence[Item]
    now: int
    parent: ListPosition | None = None


class FinishedResponse(Struct, frozen=True):
    """The final Response object of a response that is in progress.  now: Unix seconds."""

    tenant: str
    body: dict[str, Any]
    now: int


class ItemsMissing(Exception):
    """Items that a chain of responses needs were deleted."""


class StoredConversation(Struct, frozen=True):
    """A conversation at the time of its lookup; end: the position behind its last item."""

    id: str
    thread: str
    created_at: int
    metadata: dict[str, str]
    end: int

    @property
    def items(self) -> ItemRange:
        """The range of its items."""
        return ItemRange(self.thread, 0, self.end)

    @property
    def behind(self) -> ListPosition:
        """The position that a response outside the conversation continues."""
        return ListPosition(self.thread, self.end)

    def shown(self) -> dict[str, Any]:
        """Return the conversation object of the API."""
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
        """The position of its first input item."""
        return ListPosition(self.thread, self.first)

    @property
    def behind(self) -> ListPosition:
        """The position that the next response continues."""
        return ListPosition(self.thread, self.end)

    @property
    def input(self) -> ItemRange:
        """The range of its input items."""
        return ItemRange(self.thread, self.first, self.output)

    @property
    def own(self) -> ItemRange:
        """The range of its input and output items."""
        return ItemRange(self.thread, self.first, self.end)


class StoredJob(Struct, frozen=True):
    """A claimed job.

    request: the body as the client sent it.
    attempts: how many times a process has begun the job, this time included.
    """

    id: str
    tenant: str
    request: bytes
    attempts: int
    cancelled: bool


class NewJob(Struct, frozen=True):
    """A job to create.  now, lease, wanted_until: in milliseconds.

    wanted_until: the job runs until then without a subscriber; None: to its end.
    """

    tenant: str
    id: str
    request: bytes
    holder: str
    now: int
    lease: int
    wanted_until: int | None = None


class OpenedResponse(Struct, frozen=True):
    """A response that is in progress, with its job."""

    response: NewResponse
    job: NewJob


class FinishedJob(Struct, frozen=True):
    """A finished response, with the process that has its job."""

    response: FinishedResponse
    holder: str


class JobLeaseState(Struct, frozen=True):
    """The changes of a job by other processes; wanted_until: None means forever."""

    cancelled: bool
    wanted_until: int | None


class JobState(Enum):
    """The state of a job."""

    QUEUED = "no process works on it"
    RUNNING = "a process works on it, or did and has not reported its end"


class LogRow(Struct, frozen=True):
    """Consecutive events: the numbers of the first and of the last one, and their data."""

    first: int
    last: int
    data: bytes


class StoredCompletion(Struct, frozen=True):
    """A stored ChatCompletion object; message_count: the number of its input messages."""

    id: str
    created_at: int
    body: dict[str, Any]
    message_count: int

    @property
    def messages(self) -> ItemRange:
        """The range of its input messages; each has an id."""
        return ItemRange(self.id, 0, self.message_count)


class CompletionFilter(Struct, frozen=True):
    """A filter of completions: by model, if given, and by all of this metadata."""

    model: str | None = None
    metadata: dict[str, str] = {}


class StoredAnswer(Struct, frozen=True):
    """The response to the first request of an idempotency key."""

    status: int
    type: str
    body: bytes


class IdempotencyState(Enum):
    """The state of an idempotency key without a stored response."""

    NEW = "it is for the asker to answer"
    RUNNING = "somebody is answering it"
    OTHER = "the key is that of another request"


class UsageSlot(Struct, frozen=True, order=True):
    """The count of one key in one time window; start, until: Unix seconds, `until` is when it expires."""

    key: str
    start: int
    until: int


class ApiKeyRow(Struct, frozen=True):
    """An API key in the store; version: the number of its last change."""

    name: str
    version: int
    body: bytes


UsageColumn = Literal["day", "key", "model"]
UsagePlace = tuple[int, str, str]  # day since 1970-01-01 (UTC), name of the key, model


class UsageSums(Struct, gc=False):
    """The sums of some requests.  Input includes cached tokens, output includes reasoning tokens."""

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    milliseconds: int = 0

    def add(self, more: "UsageSums") -> None:
        """Add other sums to these."""
        self.requests += more.requests
        self.input_tokens += more.input_tokens
        self.cached_tokens += more.cached_tokens
        self.output_tokens += more.output_tokens
        self.milliseconds += more.milliseconds


class FileQuota(Struct, frozen=True):
    """The limit of bytes of all files of a tenant."""

    tenant: str
    bytes: int


class FileFilter(Struct, frozen=True):
    """A filter of files: not expired at `now`, and with this purpose if given."""

    now: int
    purpose: str | None = None


class StoredUpload(Struct, frozen=True):
    """A file that arrives in parts.

    status: pending, completed or cancelled.
    body: `bytes`, `filename` and `purpose` of the file, and `expires_after` if the client sent it.
    """

    id: str
    created_at: int
    expires_at: int
    status: str
    body: dict[str, Any]

    @property
    def bytes(self) -> int:
        """The bytes of all parts together."""
        size: int = self.body["bytes"]
        return size

    def status_at(self, now: int) -> str:
        """Return the status, which is `expired` if the upload was not completed in time."""
        return "expired" if self.status == "pending" and self.expires_at <= now else self.status

    def shown(self) -> dict[str, Any]:
        """Return the upload object of the API."""
        return {
            "id": self.id,
            "object": "upload",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.body["filename"],
            "purpose": self.body["purpose"],
            "status": self.status,
            "file": None,
        }


class StoredFile(Struct, frozen=True):
    """A file without its bytes; times are Unix seconds, expires_at: None means never."""

    id: str
    created_at: int
    expires_at: int | None
    purpose: str
    bytes: int
    filename: str

    def shown(self) -> dict[str, Any]:
        """Return the file object of the API."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class BatchLease(Struct, frozen=True):
    """The lease of a process on batches, from `now` on, in milliseconds."""

    holder: str
    now: int
    length: int

    @property
    def values(self) -> dict[str, Any]:
        """The values of the row of a batch."""
        return {"holder": self.holder, "held_until": self.now + self.length}


class LineResult(Struct, frozen=True):
    """The result of a line: its place in the input file, and its line in an output file; ok: in that of successes."""

    place: int
    ok: bool
    data: bytes
