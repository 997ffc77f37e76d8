"""Bodies that a gateway has to refuse: as costly as a megabyte allows, or no bodies at all."""

from stalls.bodies import CHAT, MESSAGES, RESPONSES, beside, joined

HOSTILE = (
    *((path, beside(path, joined(100_000, b'"u%d":1'))) for path in (CHAT, RESPONSES, MESSAGES)),
    *((path, beside(path, b'"x":[' + joined(500_000, b"[]") + b"]")) for path in (CHAT, RESPONSES)),
    (CHAT, beside(CHAT, b'"logit_bias":{' + joined(100_000, b'"%d":1') + b"}")),
    (CHAT, beside(CHAT, b'"user":' + b"[" * 1_000 + b"]" * 1_000)),
    (CHAT, b"[" * 1_000_000),
    (CHAT, b'{"model":"m","messages":"' + b"a" * 1_000_000 + b'"}'),
    (RESPONSES, b'{"model":"m","input":[' + joined(30_000, b'{"role":"user","content":"hi"}') + b"]}"),
    (RESPONSES, b'{"model":"m","input":"\xff\xfe"}'),
    (MESSAGES, b'{"model":"m","max_tokens":9,"messages":[' + b'{"role":' * 1_000),
)
