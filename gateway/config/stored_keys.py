"""Define API keys that the store holds; they have the fields of keys of the configuration, and a lifetime."""

from math import inf
from typing import Annotated, Any

from pydantic import Field, ValidationError

from gateway.config.auth import ApiKey
from gateway.config.errors import dotted_path
from gateway.config.explanation import explain_schema_error
from gateway.config.types import Name, WholeNumber, pattern_validator

_IN_CONFIG = ("auth", "keys", 0)  # the path of a key in a configuration, whose errors have explanations
_StoredName = Annotated[Name, pattern_validator(r".{1,128}", "should have at most 128 characters")]
_Note = Annotated[str, pattern_validator(r"(?s).{0,1000}", "should have at most 1000 characters")]


class StoredApiKey(ApiKey):
    """An API key in the store.  Times are Unix seconds; None: never.

    key: the digest of the key, and of the one before it until `former_until`.
    owner, note: texts for operators; the gateway shows them only.
    """

    name: _StoredName
    owner: _Note = ""
    note: _Note = ""
    expires_at: Annotated[WholeNumber, Field(ge=0)] | None = None
    created_at: int = 0
    revoked_at: int | None = None
    former_until: int | None = None

    def lifetimes(self) -> dict[str, float]:
        """Return the time at which each digest of the key becomes invalid."""
        current, *former = [digest.get_secret_value() for digest in self.key]
        end = min(_time(self.expires_at), _time(self.revoked_at))
        return {current: end} | {digest: min(end, _time(self.former_until)) for digest in former}

    def is_valid(self, now: float) -> bool:
        """Return True unless the key has expired or is revoked."""
        return now < min(_time(self.expires_at), _time(self.revoked_at))

    def invalidity(self, digest: str, now: float) -> str:
        """Return why a digest of the key is invalid by now."""
        if self.revoked_at is not None:
            return "was revoked"
        return "has expired" if now >= _time(self.expires_at) else "was replaced by a new one"

    def body(self) -> dict[str, Any]:
        """Return the key as JSON for the store, with its digests."""
        return {**self.model_dump(mode="json"), "key": [digest.get_secret_value() for digest in self.key]}

    def shown(self) -> dict[str, Any]:
        """Return the key as JSON for operators, without its digests."""
        return {"object": "key", **self.model_dump(mode="json", exclude={"key"})}


# The fields that an operator sets; the gateway sets the others.
SETTABLE = tuple(
    name for name in StoredApiKey.known_keys() if name not in ("key", "created_at", "revoked_at", "former_until")
)


def key_fault(error: ValidationError) -> tuple[str, str]:
    """Return the first invalid field of a key, and what is wrong with it."""
    detail = error.errors(include_url=False)[0]
    path, text = explain_schema_error({**detail, "loc": (*_IN_CONFIG, *detail["loc"])}, {}, ())
    return dotted_path(path[len(_IN_CONFIG) :]), text


def _time(seconds: int | None) -> float:
    return inf if seconds is None else seconds
