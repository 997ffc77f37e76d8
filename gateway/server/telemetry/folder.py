"""Where the workers of a gateway write what they have counted, and which of them do not run any more."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory

_log = logging.getLogger("gateway")
_MEMORY = "/dev/shm"  # no disk has to turn for it, and containers have it where all else is read-only


@contextmanager
def metrics_folder(preferred: str = _MEMORY, otherwise: str | None = None) -> Iterator[Path | None]:
    """A new one, as long as the block; None, and the log knows, where there can be none.

    otherwise: where it is made if not in the preferred place; None: where temporary files are.
    """
    place = preferred if os.access(preferred, os.W_OK) else otherwise
    try:
        made = TemporaryDirectory(prefix="gateway-", dir=place, ignore_cleanup_errors=True)
    except OSError as error:
        _log.warning("/metrics tells of one worker at a time: there is no folder for all (%s)", error.strerror)
        yield None
        return
    with made as path:
        yield Path(path)


def mark_ended(file: Path | None) -> None:
    """The worker whose file it is has ended; None: it had none."""
    if file:
        _mark(file).touch()


def remove_orphan(file: Path | None) -> None:
    """Remove the folder, in place of its creator, which is gone."""
    if file:
        rmtree(file.parent, ignore_errors=True)


def has_ended(file: Path) -> bool:
    return _mark(file).exists()


def _mark(file: Path) -> Path:
    return file.with_suffix(".ended")
