"""The folder of recordings: one file each, the oldest of which go when there are too many.  Not for the event loop."""

import os
import re
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from gateway import __version__
from gateway.recording import Recording, redact, write_lines
from gateway.server.recording.order import RecordingFolder, WriteOrder

_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")


def write_file(order: WriteOrder) -> None:
    """Write a file that only its owner may read, in one step; raise OSError."""
    kept = order.folder
    folder = Path(kept.directory)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    recording = Recording(order.id, order.started, 0)
    recording.entries = order.entries
    shown = redact(recording, order.secrets, contents=not kept.content)
    started = _UNFIT.sub("", recording.started.partition("+")[0])
    new = folder / f"{started}-{_UNFIT.sub('_', recording.id)[:64]}-{token_hex(3)}.part"
    new.touch(0o600)
    with new.open("wb") as file:
        file.writelines(write_lines(shown, __version__, redacted=not kept.content))
    new.replace(new.with_suffix(".jsonl"))
    with suppress(FileNotFoundError):  # another worker was faster
        _tidy(folder, kept)


def _tidy(folder: Path, kept: RecordingFolder) -> None:
    """Their names are in the order in which they began."""
    with os.scandir(folder) as found:
        files = sorted((one.name, one.stat().st_size) for one in found if one.name.endswith(".jsonl"))
    number, size = len(files), sum(size for _, size in files)
    for name, own in files:
        if number <= kept.files and size <= kept.bytes:
            return
        (folder / name).unlink()
        number, size = number - 1, size - own
