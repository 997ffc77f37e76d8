"""Run a child program that writes the recordings on its standard input, and reports each failure in a line.

Each recording is a WriteOrder, preceded by its length.  The program ends only with its input, whatever signals it gets,
as more recordings may follow.  It runs at a low priority.
"""

import os
import re
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from msgspec import Struct, msgpack

from gateway import __version__
from gateway.recording import Recording, RecordingEntry, redact, summarize, write_lines

packed = msgpack.Encoder().encode
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
LENGTH = 4  # bytes of the length


class RecordingFolder(Struct, frozen=True):
    """The folder of recordings, its limits, and whether recordings keep contents."""

    directory: str
    files: int
    bytes: int
    content: bool


class WriteOrder(Struct, frozen=True):
    """A finished recording to write.  size: its counted bytes; secrets: values to remove from it."""

    id: str
    started: str
    entries: list[RecordingEntry]
    size: int
    max_bytes: int
    folder: RecordingFolder
    secrets: Sequence[bytes]


unpacked = msgpack.Decoder(WriteOrder).decode


def write_file(order: WriteOrder) -> None:
    """Write a file that only its owner can read, in one step; raise OSError."""
    kept = order.folder
    folder = Path(kept.directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    recording = Recording(order.id, order.started, order.max_bytes)
    recording.entries, recording.size = order.entries, order.size
    shown = redact(recording, order.secrets, contents=not kept.content)
    started = _UNFIT.sub("", recording.started.partition("+")[0])
    new = folder / f"{started}-{_UNFIT.sub('_', recording.id)[:64]}-{token_hex(3)}.part"
    new.touch(0o600)
    with new.open("wb") as file:
        summary = summarize(shown, order.secrets)
        file.writelines(write_lines(shown, __version__, redacted=not kept.content, summary=summary))
    new.replace(new.with_suffix(".jsonl"))
    with suppress(FileNotFoundError):  # another worker was faster
        _tidy(folder, kept)


def _tidy(folder: Path, kept: RecordingFolder) -> None:
    """Remove the oldest files beyond the limits; their names sort by start."""
    with os.scandir(folder) as found:
        files = sorted((one.name, one.stat().st_size) for one in found if one.name.endswith(".jsonl"))
    number, size = len(files), sum(size for _, size in files)
    for name, own in files:
        if number <= kept.files and size <= kept.bytes:
            return
        (folder / name).unlink()
        number, size = number - 1, size - own


def main(orders: BinaryIO, failures: BinaryIO) -> None:
    """Write each recording of the input; called in the child process."""
    while size := int.from_bytes(orders.read(LENGTH), "big"):
        data = orders.read(size)
        if len(data) == size and (why := _failure(data)):  # else the data is incomplete, as the gateway was killed
            failures.write(why.encode() + b"\n")
            failures.flush()


def _failure(data: bytes) -> str:
    """Write a recording; return the reason of a failure without its content, "" on success."""

    try:
        write_file(unpacked(data))
    except OSError as error:
        return error.strerror or type(error).__name__
    except Exception as error:  # noqa: BLE001 - the next recording may be valid
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} in {frame.name}, line {frame.lineno}"
    return ""


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(AttributeError):  # Windows has no such function
        os.nice(10)
    main(sys.stdin.buffer, sys.stdout.buffer)
