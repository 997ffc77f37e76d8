"""Who may come in: bearer keys, compared in constant time."""

import hmac
from collections.abc import Mapping
from hashlib import sha256

from gateway.config import Auth, Key, Scope
from gateway.errors import Forbidden, Unauthorized

_NO_KEY = "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'."
_NO_SCOPE = "The key '{}' is not for this: it has no scope '{}'."
_NO_MODEL = "The key '{}' may not use the model '{}'."


class Doorkeeper:
    """Knows the keys only as digests."""

    def __init__(self, auth: Auth) -> None:
        self._keys = [(_digest(key.key.get_secret_value()), key) for key in auth.keys]

    def admit(self, headers: Mapping[str, str], scope: Scope = "inference") -> Key | None:
        """The key the client showed; None where nobody needs one.  Raises Unauthorized, or Forbidden."""
        if not self._keys:
            return None
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        shown = shown.strip() if scheme.lower() == "bearer" else headers.get("api-key", "")
        if not shown:
            raise Unauthorized(_NO_KEY)
        digest, found = _digest(shown), None
        for known, key in self._keys:  # all of them, so that the time says nothing
            if hmac.compare_digest(known, digest):
                found = key
        if not found:
            raise Unauthorized(f"Incorrect API key provided: {_masked(shown)}.")
        if scope not in found.scopes:
            raise Forbidden(_NO_SCOPE.format(found.name, scope), code="scope_not_allowed")
        return found

    def tenant(self, headers: Mapping[str, str]) -> str:
        """Whose things the client may see: the name of the key that is admitted, "" where nobody needs one."""
        key = self.admit(headers)
        return key.name if key else ""


def may_use(key: Key | None, asked: str, model: str) -> bool:
    """True if the key is for the name that was asked for or for the model that it means."""
    return key is None or key.models is None or asked in key.models or model in key.models


def allow_model(key: Key | None, asked: str, model: str) -> None:
    """Raise Forbidden if the key is not for this model."""
    if key and not may_use(key, asked, model):
        raise Forbidden(_NO_MODEL.format(key.name, asked), code="model_not_allowed", param="model")


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


def _masked(key: str) -> str:
    return f"{key[:3]}…{key[-4:]}" if len(key) > 16 else "…"
