"""Find headers of a request by name; all lookups share a dict of them."""

from collections.abc import MutableMapping
from typing import Any

_PLACE = "gateway.headers"  # in the scope of a request


def get_header(scope: MutableMapping[str, Any], name: bytes) -> str | None:
    """The first of this name, which is in lower case; None if there is none."""
    value = header_dict(scope).get(name)
    return None if value is None else value.decode("latin-1")


def header_dict(scope: MutableMapping[str, Any]) -> dict[bytes, bytes]:
    """The first header of each name."""
    found: dict[bytes, bytes] = scope.get(_PLACE) or scope.setdefault(_PLACE, dict(reversed(scope["headers"])))
    return found
