"""Random names: unguessable, in the alphabet of the API's own."""

import secrets
import string
from os import urandom

_ALPHABET = (string.ascii_letters + string.digits).encode()
_TABLE = bytes(_ALPHABET[i % len(_ALPHABET)] for i in range(256))


def new_id(prefix: str) -> str:
    """The prefix and 24 random characters."""
    return prefix + urandom(24).translate(_TABLE).decode()


def short_id() -> str:
    """Nine characters, as Mistral's templates want the id of a call."""
    return urandom(9).translate(_TABLE).decode()


def padding() -> str:
    """Between 1 and 16 characters, so that the length of a chunk says nothing of its text."""
    return secrets.token_urlsafe(12)[: 1 + secrets.randbelow(16)]
