"""Extra fields, which a backend adds to the API because the client asked for them, as they come in pieces."""

from msgspec import Raw, json


def continued(before: Raw | None, more: Raw) -> Raw:
    """A list grows, anything else is replaced."""
    if before is None or bytes(before)[:1] != b"[" or bytes(more)[:1] != b"[":
        return more
    return Raw(json.encode([*json.decode(before), *json.decode(more)]))
