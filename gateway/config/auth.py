"""Define the section `auth` of the configuration."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from gateway.config.limits import GroupSettings, KeyLimitSettings
from gateway.config.types import (
    Digests,
    Endpoint,
    HeaderName,
    ModelName,
    Name,
    SettingsSection,
    config_error,
)

Scope = Literal["inference", "admin"]


class ApiKey(SettingsSection):
    """An API key.  The tenant is its name; `models` and `endpoints` None mean all of them.

    key: the digests of all accepted keys; a plain key in the file is converted to its digest.
    endpoints: paths, each with all paths below it.
    group: a name of `auth.groups`, whose budgets apply as well.
    priority: the order in which requests that wait for a backend proceed.
    """

    name: Name = Field(description="Name of the key.  It is the tenant: the owner of what is stored.")
    key: Digests
    models: Annotated[tuple[ModelName, ...], Field(min_length=1)] | None = None
    endpoints: Annotated[tuple[Endpoint, ...], Field(min_length=1)] | None = None
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)] = ("inference",)
    limits: KeyLimitSettings = KeyLimitSettings()
    group: Name | None = None
    priority: Literal["high", "normal", "low"] = "normal"


class HeaderSettings(SettingsSection):
    """Users whom a trusted proxy has signed in.

    user, groups: names of headers; groups are separated by commas.
    scopes: the scopes of each group; `*` stands for all users.
    """

    user: HeaderName = "x-forwarded-user"
    groups: HeaderName = "x-forwarded-groups"
    scopes: Annotated[dict[str, tuple[Scope, ...]], Field(min_length=1)]


class AuthSettings(SettingsSection):
    """The API keys.  Without keys any client has access, and a host that is no loopback address needs `open`.

    A bare string is a key with both scopes; its name comes from its position, `key1` for the first.
    groups: budgets by the names of groups, also those of `header`.
    stored_keys: the store has keys as well; each request needs a key, even before the first one exists.
    header: users of a proxy need no key.
    """

    keys: tuple[ApiKey, ...] = ()
    groups: dict[Name, GroupSettings] = Field(default_factory=dict)
    stored_keys: bool = False
    header: HeaderSettings | None = None
    open: bool = False

    @property
    def needs_key(self) -> bool:
        """True if each request needs a key, or a user of a proxy."""
        return bool(self.keys) or self.stored_keys or self.header is not None

    @field_validator("keys", mode="before")
    @classmethod
    def _bare(cls, data: object) -> object:
        if not isinstance(data, list):
            return data
        return [
            {"name": f"key{place}", "key": entry, "scopes": ["inference", "admin"]} if isinstance(entry, str) else entry
            for place, entry in enumerate(data, 1)
        ]

    @field_validator("keys")
    @classmethod
    def _once(cls, keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
        names = [key.name for key in keys]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise config_error(f"each key needs a unique name; used twice: {', '.join(twice)}")
        digests = [digest for key in keys for digest in key.key]
        if len(set(digests)) < len(digests):
            raise config_error("the same key is listed twice")
        return keys

    @model_validator(mode="after")
    def _either(self) -> Self:
        if self.open and self.needs_key:
            other = "keys" if self.keys else "stored_keys" if self.stored_keys else "header"
            raise config_error(f"open: true contradicts {other}; remove one of them")
        return self
