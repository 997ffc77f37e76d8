"""Streams of Server-Sent Events in every form that the standard allows."""

CASES = [
    (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    (b"data: a\r\n\ndata: b\n\r\n", [b"a", b"b"]),
    (b"data:a\n\n", [b"a"]),
    (b"data: \n\ndata:\n\ndata: a\n\n", [b"a"]),
    (b"data:  a\n\n", [b" a"]),
    (b"data: a\ndata: b\n\n", [b"a\nb"]),
    (b"event: x\nid: 1\ndata: a\nretry: 5\n\n", [b"a"]),
    (b": ping\n\n:\n\ndata: a\n\n", [b"a"]),
    (b"data: a\n: in the middle\ndata: b\n\n", [b"a\nb"]),
    (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
    (b"\xef\xbb\xbf\n\ndata: a\n\n", [b"a"]),
    (b"\n\xef\xbb\xbfdata: a\n\n", [b"a"]),
    (b"\n\n\n\ndata: a\n\n\n\n", [b"a"]),
    (b"data\n\ndata:\n\ndata: a\n\n", [b"a"]),
    (b"data: a", [b"a"]),
    (b"data: a\n", [b"a"]),
    (b"data: a\r", [b"a"]),
    ("data: é😀\n\n".encode(), ["é😀".encode()]),
    (b"datax: a\n\nxdata: a\n\n", []),
    (b"", []),
]

LINES = [
    (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
    (b"a\r\nb\r\n", [b"a", b"b"]),
    (b"\n\n a\t\n\r\n\nb", [b"a", b"b"]),
    (b"a", [b"a"]),
    (b"a\n ", [b"a"]),
    ("é😀\n\u2028\n".encode(), ["é😀".encode(), "\u2028".encode()]),
    (b"", []),
]
