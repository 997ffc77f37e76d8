"""Bytes → payloads, whatever the bytes are and however they are cut; of events the same as httpx-sse finds."""

from functools import partial

import httpx
from httpx_sse import EventSource

from fuzz.target import Input, Target, begun
from gateway.sse import SSE, FrameTooLong, NDJSONDecoder
from support.sse_streams import CASES, LINES

_BOM = b"\xef\xbb\xbf"
_LIMITS = (13, 1000, 1 << 20)
KINDS = (SSE, NDJSONDecoder)
WORDS = ("data", "data: ", "data:", "event: ", "id: 1", "retry: 5", ": ", "\r\n", "\n\n", "\r\r", "\ufeff", "[DONE]")


class ForgetfulSSE(SSE):
    """With a fault in it, of the sort that is easily made: an empty line that is cut in two is none."""

    def feed(self, data):
        self._newline = b""
        return super().feed(data)


def check(data, kinds=KINDS):
    given = Input.of(data)
    framing, limit = given.choose(0, kinds), given.choose(1, _LIMITS)
    whole = framed(framing(limit), [given.content])
    assert framed(framing(limit), given.cut(given.content)) == whole
    payloads, too_long = whole
    assert all(len(payload) <= limit for payload in payloads)
    if issubclass(framing, SSE) and not too_long:
        assert [payload.decode("utf-8", "replace") for payload in payloads] == reference(given.content)


def check_forgetful(data):
    check(data, (ForgetfulSSE,))


def framed(frames, pieces):
    """The payloads, and what was said of one that was too long."""
    payloads = []
    try:
        for piece in pieces:
            for payload in frames.feed(piece):
                payloads.append(payload)  # one by one: what came before an error counts
        payloads += frames.close()
    except FrameTooLong as error:
        return payloads, str(error)
    return payloads, ""


def reference(stream):
    """What httpx-sse makes of a stream.  Where we differ from it, and from the standard, it is on purpose:

    - the last event counts without the empty line behind it, as servers leave it out;
    - an event without data, or with none in it, is nothing to us;
    - a mark of the encoding falls away also behind empty lines; httpx-sse leaves it to others;
    - an event may not be longer than the limit.
    """
    text = stream.lstrip(b"\r\n").removeprefix(_BOM) + b"\n\n"
    answer = httpx.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=text)
    return [event.data for event in EventSource(answer).iter_sse() if event.data]


def seeds(kinds=KINDS):
    for place, kind in enumerate(kinds):
        for stream, _ in (*CASES, *LINES):
            for limit in range(len(_LIMITS)):
                yield begun(stream, place, limit, sizes=(0, len(kind.__name__)))


TARGETS = {
    "framing": Target(check, seeds, lambda: WORDS),
    "planted": Target(check_forgetful, partial(seeds, (ForgetfulSSE,)), lambda: WORDS),
}
