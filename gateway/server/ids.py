"""Generate random, unguessable names in the alphabet of the API's own ids."""

import secrets
import string
from collections.abc import Callable
from functools import cache, partial
from os import urandom

_ALPHABET = (string.ascii_letters + string.digits).encode()
_TABLE = bytes(_ALPHABET[i % len(_ALPHABET)] for i in range(256))


def new_id(prefix: str) -> str:
    """Return the prefix and 24 random characters."""
    return prefix + urandom(24).translate(_TABLE).decode()


@cache
def id_maker(prefix: str) -> Callable[[], str]:
    """Return a function that generates ids with one of the few prefixes of the APIs."""
    return partial(new_id, prefix)


def short_id() -> str:
    """Return nine random characters, the form that Mistral's chat templates require for the id of a tool call."""
    return urandom(9).translate(_TABLE).decode()


def padding() -> str:
    """Return 1 to 16 random characters, so that the length of a chunk does not reveal the length of its text."""
    return secrets.token_urlsafe(12)[: 1 + secrets.randbelow(16)]
