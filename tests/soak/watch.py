"""What the processes of a gateway take, as the kernel counts it."""

import os
from pathlib import Path

from msgspec import Struct

PAGE = os.sysconf("SC_PAGE_SIZE")
MB = 1 << 20
STORE = "gateway.db"


class Sample(Struct, frozen=True):
    """Of all processes together; seconds and answers since the beginning, MB of memory.

    descriptors: without those of SQLite's files; it keeps what it has closed for what it opens next, as locks go by file.
    """

    seconds: float
    answers: int
    memory: float
    descriptors: int
    sockets: int
    threads: int


def sample(pid, seconds=0.0, answers=0):
    pids = [pid, *children(pid)]
    links = [link for one in pids for link in opened(one)]
    pages = sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in pids)
    threads = sum(1 for one in pids for _ in Path(f"/proc/{one}/task").iterdir())
    descriptors = sum(STORE not in link for link in links)
    sockets = sum(link.startswith("socket:") for link in links)
    return Sample(seconds, answers, pages * PAGE / MB, descriptors, sockets, threads)


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [one for child in map(int, text.split()) for one in (child, *children(child))]


def opened(pid):
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            yield str(link.readlink())
        except FileNotFoundError:
            continue  # closed meanwhile


def slope(samples, per):
    """MB per 1 of `per`, a field, by least squares over the second half."""
    half = samples[len(samples) // 2 :]
    xs, ys = [getattr(one, per) for one in half], [one.memory for one in half]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((a - x) ** 2 for a in xs)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread if spread else 0.0
