"""Bodies of requests that are as costly as their bytes allow."""

import zlib
from base64 import b64encode
from collections.abc import Callable

from msgspec import Struct

CHAT, RESPONSES, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/responses", "/v1/completions", "/v1/embeddings"
CONVERSATIONS, RERANK, COMPACT, COUNT = (
    "/v1/conversations",
    "/v1/rerank",
    "/v1/responses/compact",
    "/v1/responses/input_tokens",
)
MESSAGES = "/v1/messages"
_HI = b'{"role":"user","content":"hi"}'
_HEADS = {
    CHAT: b'"model":"m","messages":[' + _HI + b"]",
    RESPONSES: b'"model":"m","store":false,"input":"hi"',
    COMPLETIONS: b'"model":"m","prompt":"hi"',
    EMBEDDINGS: b'"model":"m","input":"hi"',
    CONVERSATIONS: b'"items":[]',
    RERANK: b'"model":"m","query":"hi","documents":["hi"]',
    MESSAGES: b'"model":"m","max_tokens":9,"messages":[' + _HI + b"]",
}


class Row(Struct, frozen=True):
    """name: of the body; body: makes it."""

    name: str
    path: str
    body: Callable[[], bytes]


def joined(count, piece):
    """Return so many pieces; a piece with a conversion gets its number."""
    return b",".join(piece % number if b"%" in piece else piece for number in range(count))


def beside(path, more):
    """Return a body that is valid but for one member more."""
    return b"{" + _HEADS[path] + b"," + more + b"}"


def _members(path, count):
    return lambda: beside(path, joined(count, b'"u%d":1'))


def _value(path, start, piece, count, end):
    """Return a body with an unknown member that has one large value."""
    return lambda: beside(path, b'"x":' + start + joined(count, piece) + end)


def _chat(messages, count, more=b""):
    return lambda: b'{"model":"m",' + more + b'"messages":[' + joined(count, messages) + b"]}"


def _input(items, count):
    return lambda: b'{"model":"m","store":false,"input":[' + joined(count, items) + b"]}"


def _part(part):
    return b'{"model":"m","messages":[{"role":"user","content":[' + part + b"]}]}"


def _file(data):
    return _part(b'{"type":"file","file":{"filename":"a.txt","file_data":"' + b64encode(data) + b'"}}')


def _image(data):
    return _part(b'{"type":"image_url","image_url":{"url":"data:image/png;base64,' + b64encode(data) + b'"}}')


def _pairs(count):
    call = b'{"type":"function_call","call_id":"c%d","name":"f","arguments":"{}"}'
    output = b'{"type":"function_call_output","call_id":"c%d","output":"ok"}'
    return lambda: (
        b'{"model":"m","store":false,"input":['
        + b",".join(each for n in range(count) for each in (call % n, output % n))
        + b"]}"
    )


def _calls(count):
    call = (
        b'{"role":"assistant","tool_calls":[{"id":"c%d","type":"function","function":{"name":"f","arguments":"{}"}}]}'
    )
    output = b'{"role":"tool","tool_call_id":"c%d","content":"ok"}'
    return lambda: (
        b'{"model":"m","messages":[' + b",".join(each for n in range(count) for each in (call % n, output % n)) + b"]}"
    )


def _uses(count):
    """Return a body with so many tool calls and results of the Messages API."""
    use = b'{"role":"assistant","content":[{"type":"tool_use","id":"c%d","name":"f","input":{}}]}'
    result = b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"c%d","content":"ok"}]}'
    turns = b",".join(each for n in range(count) for each in (use % n, result % n))
    return lambda: _messages(_HI + b"," + turns)


def _messages(turns):
    return b'{"model":"m","max_tokens":9,"messages":[' + turns + b"]}"


def _tool(count):
    """Return a body with a tool whose schema has so many members."""
    properties = joined(count, b'"p%d":{"type":"string"}')
    parameters = b'{"type":"object","properties":{' + properties + b"}}"
    return lambda: (
        b'{"model":"m","messages":['
        + _HI
        + b'],"tools":[{"type":"function","function":{"name":"f","parameters":'
        + parameters
        + b"}}]}"
    )


def _pdf():
    """Return a body with a PDF of some kilobytes that takes its reader many seconds."""
    content = zlib.compress(b"BT /F 12 Tf 0 700 Td " + b"(a) Tj " * 60_000 + b"ET", 9)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%b]/Count 20>>" % (b"4 0 R " * 20),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>>>/Contents 5 0 R>>",
        b"<</Length %d/Filter/FlateDecode>>\nstream\n%b\nendstream" % (len(content), content),
    ]
    out, places = b"%PDF-1.7\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%btrailer\n<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(out),
    )
    file = b'{"type":"file","file":{"filename":"a.pdf","file_data":"' + b64encode(out + end) + b'"}}'
    return b'{"model":"m","messages":[{"role":"user","content":[' + file + b"]}]}"


def _text(path, size):
    return lambda: (
        b'{"model":"m","input":"' + b"a" * size + b'"}'
        if path != CHAT
        else (b'{"model":"m","messages":[{"role":"user","content":"' + b"a" * size + b'"}]}')
    )


_SPREAD = [
    Row(f"{count // 1000:,} thousand unknown members", path, _members(path, count))
    for path in _HEADS
    for count in (300_000, 2_500_000)
]
_SHAPES = [
    ("a list of lists", b"[", b"[]", 10_000_000, b"]"),
    ("a list of numbers", b"[", b"1", 15_000_000, b"]"),
    ("a list of strings", b"[", b'"a"', 7_000_000, b"]"),
    ("an object of objects", b"{", b'"%d":{}', 2_000_000, b"}"),
]
ROWS = [
    *_SPREAD,
    *(Row(f"{name} as an unknown member", path, _value(path, *shape)) for path in (CHAT, RESPONSES) for name, *shape in _SHAPES),
    Row("500 thousand text parts", CHAT, lambda: b'{"model":"m","messages":[{"role":"user","content":[' + joined(500_000, b'{"type":"text","text":"a"}') + b"]}]}"),
    Row("2,000 text parts", CHAT, lambda: b'{"model":"m","messages":[{"role":"user","content":[' + joined(2_000, b'{"type":"text","text":"a"}') + b"]}]}"),
    Row("50 thousand calls and outputs", RESPONSES, _pairs(50_000)),
    Row("10 thousand calls and outputs", RESPONSES, _pairs(10_000)),
    Row("10 thousand calls and outputs", CHAT, _calls(10_000)),
    Row("10 thousand calls and outputs", COUNT, _pairs(10_000)),
    Row("10 thousand calls and outputs", COMPACT, _pairs(10_000)),
    Row("1 million entries of logit_bias", CHAT, lambda: beside(CHAT, b'"logit_bias":{' + joined(1_000_000, b'"%d":1') + b"}")),
    Row("1 million entries of metadata", CONVERSATIONS, lambda: b'{"metadata":{' + joined(1_000_000, b'"%d":"a"') + b"}}"),
    Row("1 million entries of metadata", CHAT, lambda: beside(CHAT, b'"metadata":{' + joined(1_000_000, b'"%d":"a"') + b"}")),
    Row("200 thousand messages", CHAT, _chat(_HI, 200_000)),
    Row("20 thousand messages", CHAT, _chat(_HI, 20_000)),
    Row("200 thousand messages", RESPONSES, _input(_HI, 200_000)),
    Row("20 thousand messages", RESPONSES, _input(_HI, 20_000)),
    Row("20 thousand messages, stored", RESPONSES, lambda: b'{"model":"m","input":[' + joined(20_000, _HI) + b"]}"),
    Row("500 thousand blocks", MESSAGES, lambda: _messages(b'{"role":"user","content":[' + joined(500_000, b'{"type":"text","text":"a"}') + b"]}")),
    Row("9 thousand calls and results", MESSAGES, _uses(9_000)),
    Row("20 thousand messages", MESSAGES, lambda: _messages(joined(20_000, _HI))),
    Row("a text of 32 MB", MESSAGES, lambda: _messages(b'{"role":"user","content":"' + b"a" * 32_000_000 + b'"}')),
    Row("2 million tags in a prefill", MESSAGES, lambda: _messages(_HI + b',{"role":"assistant","content":"' + b"<" * 2_000_000 + b'"}')),
    Row("20 items", CONVERSATIONS, lambda: b'{"items":[' + joined(20, _HI) + b"]}"),
    Row("a schema of 500 thousand members", CHAT, _tool(500_000)),
    Row("a text of 32 MB", CHAT, _text(CHAT, 32_000_000)),
    Row("a text of 32 MB", RESPONSES, _text(RESPONSES, 32_000_000)),
    Row("a text of 32 MB", EMBEDDINGS, _text(EMBEDDINGS, 32_000_000)),
    Row("1 million texts", EMBEDDINGS, lambda: b'{"model":"m","input":[' + joined(1_000_000, b'"a"') + b"]}"),
    Row("15 million tokens", EMBEDDINGS, lambda: b'{"model":"m","input":[' + joined(15_000_000, b"1") + b"]}"),
    Row("15 million tokens", COMPLETIONS, lambda: b'{"model":"m","prompt":[' + joined(15_000_000, b"1") + b"]}"),
    Row("1 million documents", RERANK, lambda: b'{"model":"m","query":"a","documents":[' + joined(1_000_000, b'"a"') + b"]}"),
    Row("a PDF that takes its reader many seconds", CHAT, _pdf),
    Row("a file of 20 MB of text", CHAT, lambda: _file(b"text in a file\n" * 1_400_000)),
    Row("a file of 20 MB of Latin-1", CHAT, lambda: _file("voilà, du texte\n".encode("latin-1") * 1_300_000)),
    Row("an image of 20 MB", CHAT, lambda: _image(b"\x89PNG\r\n\x1a\n" + bytes(20_000_000))),
    Row("30 million opened lists", CHAT, lambda: b"[" * 30_000_000),
    Row("30 million spaces", CHAT, lambda: b" " * 30_000_000 + b"{}"),
    Row("30 million backslashes", CHAT, lambda: b'{"model":"m","messages":[{"role":"user","content":"' + b"\\\\" * 15_000_000 + b'"}]}'),
    Row("5 million escaped quotes", CHAT, lambda: b'{"model":"m","messages":[{"role":"user","content":"' + b'\\":' * 5_000_000 + b'"}]}'),
]  # fmt: skip
