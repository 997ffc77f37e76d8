"""A recording that is to be written, as a message from the process that made it to the one that writes it."""

from collections.abc import Sequence

from msgspec import Struct, msgpack

from gateway.recording import RecordingEntry


class RecordingFolder(Struct, frozen=True):
    """Where they go, how many files and bytes of them there may be, and whether they keep what is said in them."""

    directory: str
    files: int
    bytes: int
    content: bool


class WriteOrder(Struct, frozen=True):
    """A recording that is over.  secrets: what may not be in its file."""

    id: str
    started: str
    entries: list[RecordingEntry]
    folder: RecordingFolder
    secrets: Sequence[bytes]


packed = msgpack.Encoder().encode
unpacked = msgpack.Decoder(WriteOrder).decode
