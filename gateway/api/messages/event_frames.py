"""Write the events of a message's stream as frames."""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import json

from gateway.api.messages.errors import stream_error
from gateway.errors import Problem

JsonObject = dict[str, Any]

encode: Callable[[Any], bytes] = json.Encoder().encode
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_END = b"}}\n\n"


def delta_prefix(index: int, type: str, member: str) -> bytes:
    """Return the bytes before the text, which all deltas of one block share."""
    before = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
    return before % (index, type.encode(), member.encode())


class BlockEventWriter:
    """Take events one by one; `take` returns the frames to send."""

    def __init__(self) -> None:
        self._out: list[bytes] = []

    def write_event(self, type: str, **members: object) -> None:
        """Write one event; its name is its type."""
        self._out.append(b"event: %b\ndata: %b\n\n" % (type.encode(), encode({"type": type, **members})))

    def write_deltas(self, prefix: bytes, texts: Iterable[str]) -> None:
        """Write a delta of a block for each text."""
        self._out += [b"%b%b%b" % (prefix, encode(text), _END) for text in texts]

    def write_error(self, problem: Problem, request_id: str) -> None:
        """Write an error, the last event."""
        event = stream_error(problem, request_id)
        self._out.append(b"event: error\ndata: %b\n\n" % encode(event))

    def write_warnings(self, entries: str) -> None:
        """Write warnings as a comment, which clients ignore."""
        if entries:
            self._out.append(b": gateway-warnings %b\n\n" % entries.encode())

    def take(self) -> bytes:
        """Return the frames written since the last call."""
        frames = b"".join(self._out)
        self._out.clear()
        return frames


class NullBlockEventWriter(BlockEventWriter):
    """A writer for a whole message, which drops all events."""

    def write_event(self, type: str, **members: object) -> None: ...

    def write_deltas(self, prefix: bytes, texts: Iterable[str]) -> None: ...
