"""Instructions per chunk of the pure core, as callgrind counts them: the same on a busy machine as on an idle one.

`python -m bench --only instructions` prints them.  It needs valgrind, and a Python whose functions have names in the
binary: the one that asks for the parent's process id tells callgrind where a stretch begins and ends.
"""

import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import core
from bench.figures import Figure

_MARK, _MARKED_BY = os.getppid, "os_getppid"
_WARM, _CHUNKS = 100, 200
_SECONDS = 900


def figures() -> Iterator[Figure]:
    """One for each stretch."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder) / "out"
        subprocess.run(_command(out), env=_environment(), check=True, timeout=_SECONDS, capture_output=True)
        for place, name in enumerate(core.STRETCHES, 1):
            # Each mark ends a part: that before a stretch, then the stretch.
            counted = re.search(r"^summary: (\d+)", out.with_suffix(f".{2 * place}").read_text(), re.MULTILINE)
            assert counted
            yield Figure("instructions", f"instructions, {name}", "1/chunk", (int(counted[1]) / _CHUNKS,))


def _command(out: Path) -> list[str]:
    python = os.path.realpath(sys.executable)
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--dump-before={_MARKED_BY}"]
    return [*tool, python, "-m", "bench.instructions"]


def _environment() -> dict[str, str]:
    """As little as possible, as its size moves the stack, and no chance in the hashes."""
    return {"PATH": os.defpath, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _run() -> None:
    """What is counted."""
    for stretch in core.STRETCHES.values():
        feed = stretch.begin()
        for _ in range(_WARM):
            feed()
        gc.collect()
        _MARK()
        for _ in range(_CHUNKS):
            feed()
        _MARK()


if __name__ == "__main__":
    _run()
