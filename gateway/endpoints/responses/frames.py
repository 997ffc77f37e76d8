"""The events of one answer, numbered as they are made: each a frame of its own in an event stream."""

from collections.abc import Callable, Iterable
from itertools import count

from msgspec import Struct

from gateway.endpoints.responses.shape import JsonObject, encode

_END = b"}\n\n"


class DeltaTemplate(Struct, frozen=True, gc=False):
    """The bytes that all deltas of one run share: before their number, and from there to their text."""

    before: bytes
    after: bytes


def delta_template(type: str, at: JsonObject) -> DeltaTemplate:
    name = type.encode()
    return DeltaTemplate(
        b'event: %b\ndata: {"type":"%b","sequence_number":' % (name, name), b',%b,"delta":' % encode(at)[1:-1]
    )


class EventWriter:
    """`put` what happens, then `taken` is what to send.

    pad: makes the padding of a delta; None: there is none.  first: the number of the first event.
    """

    def __init__(self, pad: Callable[[], str] | None = None, first: int = 0) -> None:
        self._numbers, self._pad = count(first), pad
        self._out: list[bytes] = []

    def put(self, type: str, **fields: object) -> None:
        body = {"type": type, "sequence_number": next(self._numbers), **fields}
        self._out.append(b"event: %b\ndata: %b\n\n" % (type.encode(), encode(body)))

    def put_deltas(self, like: DeltaTemplate, texts: Iterable[str], more: bytes) -> None:
        """One for each text.  more: further members, each behind a comma."""
        before, after, end, pad = like.before, like.after, more + _END, self._pad
        numbered = zip(texts, self._numbers, strict=False)
        if pad is None:
            self._out += [b"%b%d%b%b%b" % (before, number, after, encode(text), end) for text, number in numbered]
            return
        for text, number in numbered:
            padding = b',"obfuscation":%b' % encode(pad())
            self._out.append(b"%b%d%b%b%b%b%b" % (before, number, after, encode(text), more, padding, _END))

    def taken(self) -> bytes:
        frames = b"".join(self._out)
        self._out.clear()
        return frames

    def go_on(self, number: int) -> None:
        """Forget the written events, and give the next one this number."""
        self._out.clear()
        self._numbers = count(number)


class NullEventWriter(EventWriter):
    """An event writer without a reader."""

    def put(self, type: str, **fields: object) -> None: ...

    def put_deltas(self, like: DeltaTemplate, texts: Iterable[str], more: bytes) -> None: ...
