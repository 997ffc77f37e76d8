"""Authenticate API keys; only their SHA-256 digests are kept."""

from collections.abc import MutableMapping
from typing import Any

from starlette.requests import HTTPConnection

from gateway.config import ApiKey, Config, Scope, key_digest
from gateway.errors import BadRequest, Forbidden, Unauthorized
from gateway.server.headers import get_header
from gateway.server.pages import OriginCheck
from gateway.server.strangers import AuthThrottle
from gateway.server.telemetry.observation import set_key_name

_NO_KEY = "You didn't provide an API key. Send it in the header 'Authorization: Bearer YOUR_KEY'."
_NO_SCOPE = "The key '{}' is not for this: it has no scope '{}'."
_NO_ENDPOINT = "The key '{}' may not use the endpoint '{}'."
_NO_MODEL = "The key '{}' may not use the model '{}'."


class Authenticator:
    """Knows the keys only as digests, and finds the one that was shown by its digest, however many there are.

    The time that takes says nothing of the keys: a dict compares only texts of the same 64-bit hash, which is made
    with a secret of the process, so that being nearly right is like being quite wrong; and they are digests, not keys.
    """

    def __init__(self, config: Config, strangers: AuthThrottle) -> None:
        auth, self._pages = config.auth, OriginCheck(config)
        self._keys = {known.get_secret_value(): key for key in auth.keys for known in key.key}
        self._strangers = strangers

    async def admit(self, http: HTTPConnection, scope: Scope = "inference") -> ApiKey | None:
        """Return the client's key; None without keys, where the client must not be a foreign web page.

        Raises Unauthorized, after a while if that happens often; or RateLimited or Forbidden.
        """
        if not self._keys:
            self._pages.check(http)
            self._pages.check_name(http)
            return None
        shown = _shown(http.scope)
        self._strangers.check(http)
        key = self._keys.get(key_digest(shown))
        if not key:
            await self._strangers.hold(http)
            raise Unauthorized(f"Incorrect API key provided: {_masked(shown)}.")
        if scope not in key.scopes:
            raise Forbidden(_NO_SCOPE.format(key.name, scope), code="scope_not_allowed")
        _allow_endpoint(key, http.scope["path"])
        set_key_name(http.scope, key.name)
        return key

    async def tenant(self, http: HTTPConnection) -> str:
        """Return the owner of the client's data: the name of its key, "" without keys."""
        key = await self.admit(http)
        return key.name if key else ""


def may_use_model(key: ApiKey | None, asked: str, model: str) -> bool:
    """True if the key is for the name that was asked for or for the model that it means."""
    return key is None or key.models is None or asked in key.models or model in key.models


def require_model(key: ApiKey | None, asked: str, model: str) -> None:
    """Raise Forbidden if the key is not for this model."""
    if key and not may_use_model(key, asked, model):
        raise Forbidden(_NO_MODEL.format(key.name, asked), code="model_not_allowed", param="model")


def _allow_endpoint(key: ApiKey, path: str) -> None:
    """Raise Forbidden if the key is not for this path: the one that routes are found by, decoded and nothing more."""
    if key.endpoints is not None and not any(f"{path}/".startswith(f"{one}/") for one in key.endpoints):
        raise Forbidden(_NO_ENDPOINT.format(key.name, path), code="endpoint_not_allowed")


def _shown(scope: MutableMapping[str, Any]) -> str:
    """The key in the headers; raises Unauthorized where there is none, and BadRequest where there are two."""
    keys = 0
    for name, _ in scope["headers"]:
        keys += name == b"authorization"
    if keys > 1:
        raise BadRequest("There is more than one 'Authorization' header: send one.", code="invalid_value")
    scheme, _, shown = (get_header(scope, b"authorization") or "").partition(" ")
    shown = shown.strip() if scheme.lower() == "bearer" else get_header(scope, b"api-key") or ""
    if not shown:
        raise Unauthorized(_NO_KEY)
    return shown


def _masked(key: str) -> str:
    return f"{key[:3]}…{key[-4:]}" if len(key) > 16 else "…"
