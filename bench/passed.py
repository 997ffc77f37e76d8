"""Measure the memory of a gateway that passes on large bodies: an upload and a download of 1 GiB (quick: 100 MiB).

`python -m bench --only passed` prints it.  The client and the backend run in this process, so only the gateway's own
memory counts.  A process loads libraries in the first second after it is ready: that takes 15 to 35 MiB once, whatever
the size of the bodies.  So the measurement begins once its memory is steady.
"""

import asyncio
import http.client
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.figures import Figure
from bench.processes import Peak, free_port, resident_bytes
from bench.rounds import Server, Track, Wrong, say
from bench.traffic import KEY

_MIB = 1 << 20
_PIECE = b"x" * (1 << 16)
_WANTED = 4.0  # MiB
_QUIET = 3  # seconds
_FORM = (
    b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nmock\r\n'
    b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
)
_END = b"\r\n--XX--\r\n"
_UPLOAD, _DOWNLOAD = "/v1/audio/transcriptions", "/v1/audio/speech"
_LENGTH = re.compile(rb"(?i)content-length: (\d+)")
_HEAD = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n"


def figures(quick: bool, track: Track) -> Iterator[Figure]:
    """Yield the growth of the gateway's memory in each direction."""
    size = (100 if quick else 1024) * _MIB
    with _backend() as backend, track.gateway(backend) as gateway:
        for name, exchange in (("upload", _upload), ("download", _download)):
            say(f"passed: {name} of {size // _MIB} MiB")
            exchange(gateway.port, _MIB)
            held = _steady(gateway.pid)
            with Peak(gateway.pid) as peak:
                exchange(gateway.port, size)
            growth = (peak.bytes - held) / _MIB
            yield Figure("passed", f"{name} of {size // _MIB} MiB: memory", "MiB", (growth,), wanted=_WANTED)


def _steady(pid: int) -> int:
    """Return the resident bytes of a process once they have not grown for some seconds."""
    held, quiet = resident_bytes(pid), 0
    while quiet < _QUIET:
        time.sleep(1)
        now = resident_bytes(pid)
        held, quiet = now, 0 if now > held + _MIB // 4 else quiet + 1
    return held


# The client


def _upload(port: int, size: int) -> None:
    length = len(_FORM) + size + len(_END)
    headers = {"content-type": "multipart/form-data; boundary=XX", "content-length": str(length)}
    _exchange(port, _UPLOAD, _form(size), headers, len(b"{}"))


def _form(size: int) -> Iterator[bytes]:
    yield _FORM
    for _ in range(size // len(_PIECE)):
        yield _PIECE
    yield _END


def _download(port: int, size: int) -> None:
    body = json.dumps({"model": "mock", "input": "Hello", "voice": "alloy", "bytes": size}).encode()
    _exchange(port, _DOWNLOAD, body, {"content-type": "application/json"}, size)


def _exchange(port: int, path: str, body: bytes | Iterator[bytes], headers: dict[str, str], wanted: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, body, {**headers, "authorization": f"Bearer {KEY}"})
        answer, received = connection.getresponse(), 0
        while data := answer.read(len(_PIECE)):
            received += len(data)
    finally:
        connection.close()
    if answer.status != 200 or received != wanted:
        raise Wrong(f"{path}: HTTP {answer.status} with {received} bytes")


# The backend


@contextmanager
def _backend() -> Iterator[Server]:
    """Run the backend in a thread within the block."""
    port, loop = free_port(), asyncio.new_event_loop()
    thread = threading.Thread(target=_run, args=(loop, port))
    thread.start()
    try:
        yield Server(0, port, 0)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop, port: int) -> None:
    server = loop.run_until_complete(asyncio.start_server(_answer, "127.0.0.1", port))
    loop.run_forever()
    server.close()
    loop.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    left = int(length[1]) if length else 0
    if _DOWNLOAD.encode() in head:
        size = json.loads(await reader.readexactly(left))["bytes"]
        writer.write(_HEAD % (b"audio/mpeg", size))
        for _ in range(size // len(_PIECE)):
            writer.write(_PIECE)
            await writer.drain()
    else:
        while left and (data := await reader.read(len(_PIECE))):
            left -= len(data)
        writer.write(_HEAD % (b"application/json", 2) + b"{}")
    writer.close()
