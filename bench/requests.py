"""Count instructions and writes of whole requests, from the client's socket to its response.

`python -m bench --only requests` prints them.  A gateway runs under callgrind, with one worker in one process.  This
process is its client and its backend.  The counts are within 1 % from run to run.  Writes are the write system calls
to the client and the backend.  It needs what `instructions` needs.
"""

import asyncio
import gc
import http.client
import json
import os
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct
from websockets.sync.client import connect

from bench.figures import Figure
from bench.instructions import MARK, callgrind, environment, instructions_of
from bench.processes import cpu_seconds
from bench.request_sorts import FIRST, RATIOS, SORTS, Sort
from gateway import config
from gateway.config import Config
from gateway.formats import format_names
from gateway.server.process.worker import make_server

_SECONDS = 600.0  # for one answer: a program takes fifty times as long under callgrind
_BEGIN, _END = b"b", b"e"  # of the requests that count
_LAST = ("response.completed", "error")  # types of the last event of a response


class Usage(Struct, frozen=True):
    """The write system calls and the CPU seconds of one request."""

    writes: float
    seconds: float


def figures() -> Iterator[Figure]:
    """Yield the instructions of each sort of request, the writes of some, and the ratios."""
    counts = instructions(SORTS)
    for name, sort in SORTS.items():
        yield Figure("requests", f"{name}: instructions", "1/request", (counts[name],), wanted=sort.wanted)
    for ratio in RATIOS:
        value = counts[ratio.sort] / counts[ratio.other]
        yield Figure("requests", f"{ratio.sort} to {ratio.other}", "×", (value,), wanted=ratio.wanted)
    for name, usage in usages({name: sort for name, sort in SORTS.items() if sort.writes or sort.ms}).items():
        yield Figure("requests", f"{name}: writes", "1/request", (usage.writes,), wanted=SORTS[name].writes)
        yield Figure("requests", f"{name}: CPU", "ms", (usage.seconds * 1000,), wanted=SORTS[name].ms)


def instructions(sorts: dict[str, Sort]) -> dict[str, float]:
    """Return the instructions of one request of each sort."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        out = Path(folder) / "out"
        _run(sorts, folder, callgrind(out))
        parts = (instructions_of(out, place) for place in range(2, len(sorts) + 2))
        return {name: part / sort.times for (name, sort), part in zip(sorts.items(), parts, strict=True)}


def usages(sorts: dict[str, Sort]) -> dict[str, Usage]:
    """Return the usage of one request of each sort, by a gateway without callgrind."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return _run(sorts, folder, [sys.executable, "-m"])


def _run(sorts: dict[str, Sort], folder: str, command: list[str]) -> dict[str, Usage]:
    """Send the requests to a gateway that such a command starts, and return its usage for one of each sort."""
    with _backend() as backend, _gateway(folder, backend.server_address[1], command) as gateway:
        gateway.send(FIRST, backend)  # imports what is imported late, and opens the store
        return {name: gateway.send(sort, backend) for name, sort in sorts.items()}


# The backend


class _Backend(socketserver.ThreadingTCPServer):
    """Give one response to all requests, that of the current sort."""

    daemon_threads = True
    response = b""


class _Handler(socketserver.StreamRequestHandler):
    server: _Backend

    def handle(self) -> None:
        """Answer the requests of one connection."""
        while length := self._length():
            self.rfile.read(length)
            data = self.server.response
            kind = b"text/event-stream" if data.startswith(b"data: ") else b"application/json"
            head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (kind, len(data))
            self.request.sendall(head + data)

    def _length(self) -> int:
        """Read a head, and return the length of its body; 0 at the end of the connection."""
        length = 0
        while (line := self.rfile.readline()) not in (b"", b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return length


@contextmanager
def _backend() -> Iterator[_Backend]:
    with _Backend(("127.0.0.1", 0), _Handler) as backend:
        threading.Thread(target=backend.serve_forever, daemon=True).start()
        try:
            yield backend
        finally:
            backend.shutdown()


# The client


class _Gateway:
    """A gateway of one process, and its client."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self._process, self._port = process, port

    def send(self, sort: Sort, backend: _Backend) -> Usage:
        """Send the requests of a sort between two marks, after some that warm the path; return the usage of one."""
        backend.response = sort.response()
        with (_over_websocket if sort.websocket else _over_http)(self._port, sort) as put:
            for _ in range(sort.warm):
                put()
            self._mark(_BEGIN)
            writes, seconds = self._writes(), cpu_seconds(self._process.pid)
            for _ in range(sort.times):
                put()
            writes, seconds = self._writes() - writes, cpu_seconds(self._process.pid) - seconds
            self._mark(_END)
        return Usage(writes / sort.times, seconds / sort.times)

    def _mark(self, what: bytes) -> None:
        """Mark the end of a part for callgrind."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(what)
        if not self._process.stdout.read(1):
            raise RuntimeError("the gateway has ended")

    def _writes(self) -> int:
        counts = Path(f"/proc/{self._process.pid}/io").read_text()
        return int(counts.partition("syscw: ")[2].split()[0])


@contextmanager
def _over_http(port: int, sort: Sort) -> Iterator[Callable[[], None]]:
    body = sort.body()

    def put() -> None:
        connection.request("POST", sort.path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise RuntimeError(data.decode())

    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS)) as connection:
        yield put


@contextmanager
def _over_websocket(port: int, sort: Sort) -> Iterator[Callable[[], None]]:
    body = sort.body().decode()

    def put() -> None:
        connection.send(body)
        while json.loads(connection.recv(_SECONDS))["type"] not in _LAST:
            pass

    url = f"ws://127.0.0.1:{port}{sort.path}"
    with connect(url, open_timeout=_SECONDS, ping_interval=None, compression=None) as connection:
        yield put


# The gateway


@contextmanager
def _gateway(folder: str, backend: int, command: list[str]) -> Iterator[_Gateway]:
    """Run a gateway within the block.  command: runs a Python module."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        words = [*command, "bench.requests", str(listener.fileno()), str(backend), folder]
        process = subprocess.Popen(
            words,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            pass_fds=[listener.fileno()],
        )
        try:
            yield _Gateway(process, listener.getsockname()[1])
        finally:
            process.terminate()
            process.wait(_SECONDS)


def _config(backend: int, folder: str) -> Config:
    data = {
        "backends": {"up": {"url": f"http://127.0.0.1:{backend}", "kind": "vllm", "probe_seconds": 0}},
        "models": {"m": {"backends": ["up"], "format": "native"}},
        "store": {"url": f"sqlite:///{folder}/bench.db", "sealing_keys": ["s" * 32]},
        "server": {"drain_seconds": 0},
    }
    return config.parse(json.dumps(data), "bench.yaml", {}, format_names())


def _serve(listener: int, backend: int, folder: str) -> None:
    """Run the code that callgrind counts: a gateway that sets a mark for each byte of the standard input."""
    marks = partial(_read_marks, asyncio.Event())
    with socket.socket(fileno=listener) as sock:
        make_server(_config(backend, folder), marks, logs_reloads=False).serve_socket(sock)


async def _read_marks(reading: asyncio.Event) -> None:
    """Listen to the standard input from the first call on, as a source of configurations that never has one."""
    if not reading.is_set():
        reading.set()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _mark)


def _mark() -> None:
    if byte := os.read(sys.stdin.fileno(), 1):
        if byte == _BEGIN:
            gc.collect()
        MARK()
        os.write(sys.stdout.fileno(), byte)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
