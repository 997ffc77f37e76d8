"""Answers of backends that are as costly as their bytes allow."""

from support.upstream import chunk, stream, whole

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


def _vectors(*vectors):
    entries = b",".join(b'{"index":%d,"embedding":%b}' % (i, vector) for i, vector in enumerate(vectors))
    return whole(b'{"object":"list","data":[' + entries + b'],"usage":{"prompt_tokens":1,"total_tokens":1}}')


def _numbers(count):
    return b"[" + b",".join([b"-0.0123456789012345"] * count) + b"]"


def _request(inputs, more=b""):
    return b'{"model":"m",' + more + b'"input":[' + b",".join([b'"a"'] * inputs) + b"]}"


VECTORS = {  # each with its request
    "a vector of 22 MB": (_vectors(_numbers(1_100_000)), _request(1)),
    "a vector of 22 MB, as base64": (_vectors(_numbers(1_100_000)), _request(1, b'"encoding_format":"base64",')),
    "a vector of 22 MB, shortened": (_vectors(_numbers(1_100_000)), _request(1, b'"dimensions":500000,')),
    "22 MB of vectors for one input": (_vectors(b"[" + b",".join([_numbers(128)] * 8_600) + b"]"), _request(1)),
    "66 MB of vectors for 2,048 inputs": (_vectors(*[_numbers(1_610)] * 2_048), _request(2_048)),
}
