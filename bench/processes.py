"""Run the measured programs: start them on one core, read /proc, and end them by their process id."""

import http.client
import os
import platform
import resource
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_START_SECONDS = 20.0
_STOP_SECONDS = 5.0
_FILES = 32768  # 10000 streams have two sockets each in the gateway


class NotReady(Exception):
    """A program ended or stayed silent instead of listening."""


def raise_file_limit() -> None:
    """Raise the limit of open files for this program and its children, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard > soft:
        most = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def machine() -> str:
    """Return processor, cores and Python version."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = models[0].partition(":")[2].strip() if models else platform.machine()
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}"


def free_port() -> int:
    """Return a free loopback port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running(command: Sequence[str], core: int, log: Path) -> Iterator[int]:
    """Run the command on one core, and yield its process id; afterwards no process of it is left."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        os.sched_setaffinity(process.pid, {core})
        yield process.pid
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_SECONDS)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the children in its own session
    process.wait()


def wait_until_ready(pid: int, port: int, path: str, log: Path, seconds: float = _START_SECONDS) -> None:
    """Wait until the program responds with 200.  Raises NotReady with the end of its log."""
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up and not _has_ended(pid):
        if _answers(port, path):
            return
        time.sleep(0.02)
    raise NotReady(f"no answer from 127.0.0.1:{port}{path}\n{last_lines(log)}")


def last_lines(log: Path) -> str:
    """Return the end of a program's log, which helps to find the cause of a failure."""
    lines = log.read_text(errors="replace").splitlines()
    return "\n".join(["the end of its log:", *lines[-15:]])


def _has_ended(pid: int) -> bool:
    # A child that has ended stays in the table as Z until a wait for it.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _answers(port: int, path: str) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of the process and its living children, ended threads included."""
    return sum(map(_cpu, _family(pid)))


def waited_seconds(pid: int) -> float:
    """Return how long the process was ready to run while others had its core; 0 if the kernel does not count it."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def resident_bytes(pid: int) -> int:
    """Return the resident memory of the process and its living children."""
    return sum(map(_resident, _family(pid)))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from _family(int(child))


def _cpu(pid: int) -> float:
    # The clock of clock_getcpuclockid(3) counts nanoseconds; /proc/PID/stat counts ticks of 10 ms.
    try:
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return 0.0


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0


class Peak:
    """The peak of a process's memory while the block runs."""

    def __init__(self, pid: int) -> None:
        self.bytes = 0
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.bytes = max(self.bytes, resident_bytes(self._pid))
