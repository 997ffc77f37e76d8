"""Count instructions per chunk of the pure core with callgrind: the figures do not depend on the load of the machine.

`python -m bench --only instructions` prints them.  It needs valgrind, and a Python with symbols in its binary: a call
of getppid marks the beginning and the end of a stretch for callgrind.
"""

import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import core, relayed
from bench.figures import Figure

MARK, _MARKED_BY = os.getppid, "getppid"
_WARM, _CHUNKS = 100, 200
_SECONDS = 900
_STRETCHES = core.STRETCHES | relayed.STRETCHES


def figures() -> Iterator[Figure]:
    """Yield one figure per stretch."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder) / "out"
        command = [*callgrind(out), "bench.instructions"]
        subprocess.run(command, env=environment(), check=True, timeout=_SECONDS, capture_output=True)
        for place, name in enumerate(_STRETCHES, 1):
            counted = instructions_of(out, place) / _CHUNKS
            yield Figure("instructions", f"instructions, {name}", "1/chunk", (counted,))


def callgrind(out: Path) -> list[str]:
    """Return the command that runs a module of the bench under callgrind; the module's name follows."""
    python = os.path.realpath(sys.executable)
    tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--dump-before={_MARKED_BY}"]
    return [*tool, python, "-m"]


def environment() -> dict[str, str]:
    """Return a minimal environment, since its size moves the stack, with fixed hashes."""
    return {"PATH": os.defpath, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def instructions_of(out: Path, place: int) -> int:
    """Return the instructions of a stretch, counted from 1.  Each mark ends a part: the one before it, or a stretch."""
    return summary(out.with_suffix(f".{2 * place}"))


def summary(part: Path) -> int:
    """Return the instructions of a part that callgrind has written."""
    counted = re.search(r"^summary: (\d+)", part.read_text(), re.MULTILINE)
    assert counted
    return int(counted[1])


def _run() -> None:
    """Run the code that callgrind counts."""
    for stretch in _STRETCHES.values():
        feed = stretch.begin()
        for _ in range(_WARM):
            feed()
        gc.collect()
        MARK()
        for _ in range(_CHUNKS):
            feed()
        MARK()


if __name__ == "__main__":
    _run()
