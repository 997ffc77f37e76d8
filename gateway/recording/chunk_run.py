"""Keep chunks that a relay read, decoded and wrote in one step; make their entries when a reader asks for them."""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import json

from gateway.events import Event, ToolCallStart
from gateway.recording.entries import ENTRY, ResponseDataEntry, UpstreamDataEntry

_FIELDS = 4  # of a chunk
_encoded = json.Encoder().encode


class ChunkRun:
    """Consecutive chunks of one upstream call.

    begun: the start of the request; fields: of each chunk its time, its data, its events and the bytes for the client.
    unseen: the number of chunks without bytes for the client.
    count: the number of its entries; size: their counted bytes; t: the time of the last one.
    """

    __slots__ = ("_begun", "_call", "_fields", "count", "size")

    def __init__(self, begun: float, call: int, fields: list[Any], unseen: int) -> None:
        self._begun, self._call, self._fields = begun, call, fields
        pieces = fields[1::2]  # what came and what went out, in turns
        self.count = len(pieces) - unseen
        self.size = len(b"".join(pieces)) + ENTRY * self.count  # a copy takes half the time of adding up the lengths

    @property
    def t(self) -> float:
        """The time of the last entry, in seconds since the request arrived."""
        last: float = self._fields[-_FIELDS]
        return last - self._begun

    def entries(self) -> list[UpstreamDataEntry | ResponseDataEntry]:
        """Return the entries: the read of each chunk, and behind it what the client got of it."""
        return [*self._entries()]

    def tool_names(self) -> Iterator[str]:
        """Yield the names of the tool calls that begin here."""
        events: list[Sequence[Event]] = self._fields[2::_FIELDS]
        if ToolCallStart in set(map(type, chain.from_iterable(events))):
            yield from (one.name for one in chain.from_iterable(events) if isinstance(one, ToolCallStart))

    def _entries(self) -> Iterator[UpstreamDataEntry | ResponseDataEntry]:
        fields = iter(self._fields)  # each round of `zip` takes the next four of it
        for at, data, events, written in zip(*[fields] * _FIELDS, strict=True):
            time = at - self._begun
            yield UpstreamDataEntry(time, self._call, data, _encoded(events) if events else b"")
            if written:
                yield ResponseDataEntry(time, written)
