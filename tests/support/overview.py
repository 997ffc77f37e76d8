"""Ask a gateway for its overview."""

from gateway.server.observability.snapshot import RequestSnapshot

CHAT, PATH = "/v1/chat/completions", "/admin/overview"

KEYS = [
    {"name": "ann", "key": "ann-key"},
    {"name": "eve", "key": "eve-key", "scopes": ["admin"]},
]


def seen(**members):
    """Return the snapshot of a request, with these values instead of the usual ones."""
    known = {
        "id": "r", "endpoint": CHAT, "key": "", "model": "m", "backend": "up", "format": "", "live": False, "status": 200,
        "error": None, "message": None, "streamed": True, "arrived": 100.0, "asked": 0.0, "first_content": 0.0,
        "duration": 0.0, "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "reasoning_tokens": 0, "ledger": {},
    }  # fmt: skip
    return RequestSnapshot(**{**known, **members})
