"""The log of a response: its event stream as bytes, but for the mark of its end."""

from collections.abc import Iterator

DONE = b"data: [DONE]\n\n"
_END = b"\n\n"  # of a frame; JSON has no line breaks of its own
_DATA = b"\ndata: "
_WARNINGS = b": gateway-warnings "


def count_events(data: bytes) -> int:
    """How many events whole frames have; comments are none."""
    return data.count(_DATA)


def event_payloads(data: bytes) -> Iterator[bytes]:
    """The JSON of each event of whole frames."""
    for frame in data.split(_END):
        _, found, payload = frame.partition(_DATA)
        if found:
            yield payload


def warning_comments(data: bytes) -> list[str]:
    """Return the warnings in comments among whole frames."""
    told = (frame.removeprefix(_WARNINGS).decode() for frame in data.split(_END) if frame.startswith(_WARNINGS))
    return [entry for entries in told for entry in entries.split(", ")]


def events_after(data: bytes, first: int, after: int) -> bytes:
    """Return the events behind number `after` in whole frames, whose first event has the number `first`.

    A comment is kept where the event is that follows it.
    """
    start = end = 0
    while first <= after and end < len(data):
        comment = data.startswith(b":", end)
        end = data.index(_END, end) + len(_END)
        if not comment:
            first, start = first + 1, end
    return data[start:] if first > after else b""
