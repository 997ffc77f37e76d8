"""Answers of backends that are as costly as their bytes allow."""

from support.upstream import chunk, stream

ANSWERS = {
    "a broken event of 7 MB": stream(
        b'data: {"choices":[{"index":0,"delta":{"content":"' + b"a\\q" * 2_300_000 + b"\n\n",
        chunk("Hi", finish="stop"),
    ),
    "an event of 7 MB without its end": stream(b'data: {"choices":[{"index":0,"delta":{"content":"' + b"a" * 7_000_000),
    "200 kB of opened brackets": stream(*[chunk("[" * 2_000)] * 100, chunk(finish="stop")),
    "200 kB of opened braces": stream(*[chunk("{" * 2_000)] * 100, chunk(finish="stop")),
    "200 kB of opened braces in one chunk": stream(chunk("{" * 200_000), chunk(finish="stop")),
}
TOOLS = b'"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],'
BODY = b'{"model":"m","stream":true,' + TOOLS + b'"messages":[{"role":"user","content":"hi"}]}'
