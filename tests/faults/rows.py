"""Faults of a backend and the outcome that each has for the client, as data."""

import gzip
import json

from msgspec import Struct
from msgspec.structs import replace

from faults.upstream import DOWN, EARLY, SLAM, ends_itself
from faults.ways import Answers, Fails
from support.upstream import (
    CLOSE,
    DONE,
    END,
    HANG,
    HELLO,
    RESET,
    call,
    chunk,
    completion_body,
    frame,
    head,
    silent,
    whole,
)
from support.wait import idle


class Row(Struct, frozen=True):
    """script: of the backend, for every way of asking; then: what comes of it.

    lasts: the connection to the backend is kept for the next request, None: the backend closes it itself.
    settings: of the gateway; most: bytes that may be taken of an answer that has no end; text: of the question.
    next_scripts: the scripts of the requests after the first.
    """

    name: str
    script: list
    then: Fails | Answers
    lasts: bool | None = False
    settings: dict = {}
    most: int = 0
    text: str = "Hello"
    next_scripts: tuple = ()


def row(name, script, then, **more):
    """A Row whose script tells what becomes of the connection, unless it is said."""
    lasts = None if ends_itself(script) else script[-1] is END or (len(script) == 1 and isinstance(script[0], bytes))
    return Row(name, script, then, **{"lasts": lasts, **more})


LOST, INVALID, LATE = (502, "upstream_lost"), (502, "upstream_error"), (504, "upstream_timeout")


def backend(**timeouts):
    return {"backend": {"timeouts": timeouts}}


BRIEF = 0.1  # seconds that a limit of time is set to
REUSED = backend(reused=20)  # a machine that is busy may take longer than the default
FIRST_BYTE, IDLE, TOTAL = backend(first_byte=BRIEF), backend(idle=BRIEF), backend(total=2 * BRIEF)
SMALL = {"limits": {"frame_bytes": 1 << 16}}
IN_FLIGHT = 16 << 20  # bytes that the kernel may hold of what nobody reads, and then some
PING = b": ping\n\n"

# A short answer with everything in it: each frame, and what of it is for the client.
PIECES = [
    (chunk(role="assistant", content=""), ""),
    (chunk(reasoning_content="Hm, "), "Hm, "),
    (chunk(reasoning_content="well. "), "well. "),
    (chunk("Hel"), "Hel"),
    (chunk("lo"), "lo"),
    (chunk(tool_calls=call("f", "", id="call_a")), ""),
    (chunk(tool_calls=call(arguments='{"a": ')), '{"a": '),
    (chunk(tool_calls=call(arguments="1}")), "1}"),
    (chunk(finish="tool_calls"), ""),
    (frame(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}), ""),
    (DONE, ""),
]
FINISH = 9  # pieces, after which nothing is missing
EMPTY = 6  # pieces, after which a call has no arguments yet: they are an object, as clients read them
HEL, REST = [head(), chunk("Hel")], [chunk("lo"), chunk(finish="stop"), DONE]


def begun(number):
    """The head and so many pieces, and what a client has of them."""
    came = "".join(text for _, text in PIECES[:number])
    return [head(), *(piece for piece, _ in PIECES[:number])], came + "{}" * (number == EMPTY)


def breaks(word, end):
    """The answer that ends in this way behind each of its pieces."""
    for number in range(len(PIECES) + 1):
        script, came = begun(number)
        then = Fails(*LOST, came) if number < FINISH else Answers(came)
        yield row(f"{word} after {number} of {len(PIECES)} events", [*script, end], then)


def raw(*lines, body=b""):
    """A head that is written as it is."""
    return "\r\n".join(("HTTP/1.1 200 OK", *lines, "", "")).encode() + body


def chunked(*frames):
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in frames)


def singly(data, seconds=0.0):
    """The bytes one by one."""
    for number in range(len(data)):
        yield data[number : number + 1]
        if seconds and number % 8 == 0:
            yield silent(seconds)


def forever(piece, seconds=0.0):
    """A step that says this again and again, until the connection is closed."""

    async def say(writer):
        while not writer.is_closing():
            writer.write(piece)
            say.sent += len(piece)
            await writer.drain()
            await idle(seconds)
        raise ConnectionError

    say.sent = 0
    return say


JSON = json.dumps(completion_body("Hi")).encode()
STREAM = "content-type: text/event-stream"
CHUNKED = "transfer-encoding: chunked"
HTML = b"<html><body><h1>Welcome to nginx!</h1></body></html>"
ERROR = {"error": {"message": "CUDA out of memory", "type": "server_error"}}
SUM = b"".join(HELLO[1:-1])
ANSWER = raw(STREAM, CHUNKED, body=chunked(*HELLO[1:-1], b"")[:-2] + b"\r\n")
EACCENT = chunk("h\N{LATIN SMALL LETTER E WITH ACUTE}").replace(
    b"\\u00e9", "\N{LATIN SMALL LETTER E WITH ACUTE}".encode()
)
WITHIN = EACCENT.index("\N{LATIN SMALL LETTER E WITH ACUTE}".encode()) + 1

NO_ANSWER = [
    row("refuses the connection", [DOWN, END], Fails(502, "upstream_unreachable")),
    row("accepts and closes", [SLAM, END], Fails(*LOST)),
    row("closes when it has the request", [CLOSE], Fails(*LOST)),
    row("resets when it has the request", [RESET], Fails(*LOST)),
    row("closes within the head", [b"HTTP/1.1 200 OK\r\ncontent-", CLOSE], Fails(*LOST)),
    row("hangs before the head", [HANG], Fails(*LATE), settings=FIRST_BYTE),
    row("hangs before the body", [head(), HANG], Fails(*LATE), settings=FIRST_BYTE),
    row("hangs before content", [head(), PIECES[0][0], HANG], Fails(*LATE), settings=IDLE),
    row("hangs after content", [*HEL, HANG], Fails(*LATE, "Hel"), settings=IDLE),
    row("hangs within a whole body", [head(type="application/json"), JSON[:40], HANG], Fails(*LATE), settings=IDLE),
    row("hangs after [DONE]", [*HEL, *REST, HANG], Answers("Hello")),
    row("only pings, beyond the total", [head(), forever(chunked(PING), 0.02)], Fails(*LATE), settings=TOTAL),
    row("pings after content, beyond the total", [*HEL, forever(chunked(PING), 0.02)], Fails(*LATE, "Hel"), settings=TOTAL),
]  # fmt: skip
CUT = [
    row("cuts a JSON text", [*HEL, chunk("lo")[:20], CLOSE], Fails(*LOST, "Hel")),
    row("cuts a character", [*HEL, EACCENT[:WITHIN], RESET], Fails(*LOST, "Hel")),
    row("sends a character in two packets", [*HEL, EACCENT[:WITHIN], EACCENT[WITHIN:], *REST, END], Answers("Helh\u00e9lo")),
    row("cuts the framing of a chunk", [raw(STREAM, CHUNKED, body=chunked(chunk("Hel")) + b"5f\r\nda"), CLOSE], Fails(*LOST, "Hel")),
    row("breaks the framing of a chunk", [raw(STREAM, CHUNKED, body=chunked(chunk("Hel")) + b"zz\r\n"), HANG], Fails(*INVALID, "Hel")),
    row("cuts a whole body", [raw("content-length: 999", "content-type: application/json", body=JSON[:60]), CLOSE], Fails(*LOST)),
]  # fmt: skip
NO_API = [
    row("HTML with 200", whole(HTML, type="text/html"), Fails(*INVALID)),
    row("HTML with 502", whole(HTML, status=502, type="text/html"), Fails(*INVALID)),
    row("HTML that is called an event stream", whole(HTML, type="text/event-stream"), Fails(*INVALID)),
    row("an error with 200", whole(ERROR), Fails(*INVALID)),
    row("an error as the first event", [head(), b"data: %b\n\n" % json.dumps(ERROR).encode(), HANG], Fails(*INVALID)),
    row("an error after content", [*HEL, b"data: %b\n\n" % json.dumps(ERROR).encode(), HANG], Fails(*INVALID, "Hel")),
    row("invalid JSON as the first event", [head(), b"data: {]\n\n", HANG], Fails(*INVALID)),
    row("invalid JSON after content", [*HEL, b"data: {]\n\n", HANG], Fails(*INVALID, "Hel")),
    row("invalid JSON as the whole body", whole(b'{"choices": ['), Fails(*INVALID)),
    row("invalid UTF-8 in a text", [*HEL, chunk("lo").replace(b"lo", b"l\xff"), *REST[1:], END], Answers("Hell\ufffd")),
    row("no choices", whole({"id": "x", "object": "chat.completion"}), Fails(*INVALID)),
    row("204", [b"HTTP/1.1 204 No Content\r\n\r\n"], Fails(*INVALID)),
    row("301 to another place", whole(b"", status=301, location="/elsewhere"), Fails(*INVALID)),
    row("307 to another place", whole(b"", status=307, location="/elsewhere"), Fails(*INVALID)),
    row("429 with retry-after", whole({"error": "slow down"}, status=429, retry_after="7"), Fails(429, "rate_limit_exceeded", after="7")),
    row("503 with retry-after", whole({"error": "too busy"}, status=503, retry_after="7"), Fails(503, "server_is_overloaded", after="7")),
    row("gzip where none was asked for", whole(gzip.compress(JSON), content_encoding="gzip"), Fails(*INVALID), lasts=False),
    row("gzip as an event stream", whole(gzip.compress(SUM), type="text/event-stream", content_encoding="gzip"), Fails(*INVALID), lasts=False),
]  # fmt: skip
NO_HTTP = [
    row("no HTTP at all", [b"220 smtp.example.com ESMTP\r\n", HANG], Fails(*INVALID)),
    row("101 to another protocol", [b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", HANG], Fails(*INVALID)),
    row("1xx before the answer", [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + ANSWER], Answers()),
    row("a length that is too long", [raw("content-length: 999", STREAM, body=SUM), CLOSE], Answers()),
    row("a length that is too long, of a whole body", [raw(f"content-length: {len(JSON) + 9}", body=JSON), CLOSE], Fails(*LOST)),
    row("a length that is too short", [raw("content-length: 60", "content-type: application/json", body=JSON), HANG], Fails(*INVALID)),
    row("a length and chunks as well", [raw(STREAM, "content-length: 60", CHUNKED, body=chunked(*HELLO[1:-1], b"")), HANG], Fails(*INVALID)),
    row("two lengths", [raw(STREAM, "content-length: 60", "content-length: 61", body=SUM), HANG], Fails(*INVALID)),
    row("no length, and the end of the connection", [raw(STREAM, body=SUM), CLOSE], Answers()),
    row("no length, and a reset", [raw("content-type: application/json", body=JSON), RESET], Fails(*LOST)),
    row("more after the end", [ANSWER + b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", HANG], Answers()),
    row("more after [DONE]", [head(), *HELLO[1:-1], chunk("more"), END], Answers()),
    row("a byte at a time", [*singly(ANSWER, 0.001)], Answers(), lasts=True),
    row("answers before it has read the request", [EARLY, ANSWER], Answers(), text="~" * (4 << 20)),
    row("refuses before it has read the request", [EARLY, *whole({"error": "too large"}, status=413), CLOSE], Fails(413, "request_too_large"), text="~" * (4 << 20)),
]  # fmt: skip
ENDLESS = [
    row("an endless event", [raw(STREAM), b"data: ", forever(b"~" * (1 << 16))], Fails(502, "frame_too_long"), settings=SMALL, most=IN_FLIGHT),
    row("an endless event after content", [raw(STREAM, body=HEL[1]), b"data: ", forever(b"~" * (1 << 16))], Fails(502, "frame_too_long", "Hel"), settings=SMALL, most=IN_FLIGHT),
    row("an endless whole body", [raw("content-type: application/json"), forever(b"~" * (1 << 16))], Fails(502, "frame_too_long"), settings=SMALL, most=IN_FLIGHT),
    row("an endless error", [raw("content-type: text/html").replace(b"200", b"500"), forever(b"~" * (1 << 16))], Fails(*INVALID), most=IN_FLIGHT),
    row("an endless head", [b"HTTP/1.1 200 OK\r\n", forever(b"x-more: ~~~~~~~~\r\n" * 1000)], Fails(*INVALID), most=IN_FLIGHT),
    row("an endless line of the head", [b"HTTP/1.1 200 OK\r\nx-more: ", forever(b"~" * (1 << 16))], Fails(*INVALID), most=IN_FLIGHT),
    row("endless interim answers", [forever(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)], Fails(*INVALID), most=IN_FLIGHT),
]  # fmt: skip
RACES = [
    row("closes a kept connection when it is used", [CLOSE], Answers(), settings=REUSED, next_scripts=(HELLO, [CLOSE]) * 10 + (HELLO,), lasts=True),
    row("resets a kept connection when it is used", [RESET], Answers(), settings=REUSED, next_scripts=(HELLO, [RESET]) * 10 + (HELLO,), lasts=True),
    row("closes each connection after its answer", [*HELLO, CLOSE], Answers(), next_scripts=([*HELLO, CLOSE],) * 20 + (HELLO,), lasts=None),
]  # fmt: skip

OF_MESSAGES = (  # those that a further API is tried with
    "closes when it has the request", "hangs before the head", "hangs before the body", "hangs after content",
    "cuts a JSON text", "cuts a whole body", "HTML with 200", "an error after content", "429 with retry-after",
    "503 with retry-after", "no length, and the end of the connection", "closes after 8 of 11 events",
    "closes after 9 of 11 events", "closes a kept connection when it is used",
)  # fmt: skip
OF_PASSED = (  # those that endpoints are tried with that are passed on
    "refuses the connection", "accepts and closes", "closes when it has the request", "resets when it has the request",
    "closes within the head", "hangs before the head", "hangs before the body", "hangs after content",
    "breaks the framing of a chunk", "HTML with 502", "301 to another place",
    "429 with retry-after", "503 with retry-after", "no HTTP at all", "1xx before the answer",
    "a byte at a time", "closes after 8 of 11 events",
    "resets after 2 of 11 events", "answers before it has read the request", "an endless head",
    "closes a kept connection when it is used",
)  # fmt: skip
ROWS = [*NO_ANSWER, *breaks("closes", CLOSE), *breaks("resets", RESET), *CUT, *NO_API, *NO_HTTP, *ENDLESS, *RACES]
MESSAGES = [replace(row, name=f"message: {row.name}") for row in ROWS if row.name in OF_MESSAGES]
PASSED = [replace(row, name=f"passed on: {row.name}") for row in ROWS if row.name in OF_PASSED]
