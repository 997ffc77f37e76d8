"""What single values may be: texts and numbers, each type with what is said of one that is wrong."""

import re
from ipaddress import ip_network
from typing import Annotated
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SecretStr, ValidationInfo
from pydantic_core import PydanticCustomError

MASK = "**********"


def wrong(text: str) -> PydanticCustomError:
    """A fault in our own words."""
    return PydanticCustomError("wrong", "{text}", {"text": text})


def matching(pattern: str, text: str) -> AfterValidator:
    """Refuses a text that the pattern does not match as a whole, saying what it should be."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise wrong(text)
        return value

    return AfterValidator(check)


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise wrong("should be a number")
    return value


def _secret(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[!-~]+", value.get_secret_value()):
        raise wrong("should be visible ASCII characters, at least one")
    return value


def _optional_secret(value: SecretStr | None) -> SecretStr | None:
    return _secret(value) if value and value.get_secret_value() else None


def _root(value: str) -> str:
    """The root of a server: a trailing `/v1` or `/` is stripped."""
    try:
        parts = urlsplit(value)
        parts.port  # noqa: B018 - reading it checks it
    except ValueError as error:
        raise wrong(f"not a URL: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", value):
        raise wrong("should begin with http:// or https:// and name a host, like http://127.0.0.1:8000")
    if parts.username is not None or parts.query or parts.fragment:
        raise wrong("should have no user, query or fragment; a key goes to api_key")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/").removesuffix("/v1").rstrip("/"), "", ""))


def _store(value: SecretStr) -> SecretStr:
    scheme, _, rest = value.get_secret_value().partition("://")
    database, hosts = scheme.partition("+")[0], re.split("[/?]", rest)[0].rpartition("@")[2]
    if database not in ("sqlite", "postgresql"):
        raise wrong("should begin with sqlite:// or postgresql://")
    if database == "sqlite" and hosts:
        raise wrong("should have three slashes before a relative path, four before an absolute one")
    if not all(re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(:\d+)?", host) for host in hosts.split(",")):
        raise wrong("should name the server as host or host:port")
    return value


def _show_store(value: SecretStr) -> str:
    return re.sub(r"(://[^/@]*?:)[^/]*@", rf"\1{MASK}@", value.get_secret_value())


def _network(value: str) -> str:
    try:
        return str(ip_network(value))
    except ValueError as error:
        raise wrong(f"not a network like 10.1.0.0/16: {error}") from None


def _format(value: str, info: ValidationInfo) -> str:
    known = (info.context or {}).get("formats")
    if known is not None and value not in known:
        raise PydanticCustomError("format", "unknown format")
    return value


Whole = Annotated[int, BeforeValidator(_number)]
Port = Annotated[Whole, Field(ge=0, le=65535)]
Seconds = Annotated[
    float,
    BeforeValidator(_number),
    Field(ge=0, allow_inf_nan=False),
    PlainSerializer(lambda value: int(value) if float(value).is_integer() else value, return_type=int | float),
]
Name = Annotated[str, matching(r"[A-Za-z0-9._-]+", "a name should be letters, digits, dots, dashes and underscores")]
ModelName = Annotated[
    str, matching(r"[^\x00-\x1f\x7f]+", "a model's name should have no control characters, nor be empty")
]
Host = Annotated[str, matching(r"[^\s/\[\]]+", "should be an address or a host's name, like 127.0.0.1 or ::1")]
Origin = Annotated[
    str, matching(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+", "should be scheme://host or scheme://host:port, or * for all")
]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
OptionalSecret = Annotated[SecretStr | None, AfterValidator(_optional_secret)]
Root = Annotated[str, AfterValidator(_root)]
StoreUrl = Annotated[SecretStr, AfterValidator(_store), PlainSerializer(_show_store)]
Network = Annotated[str, AfterValidator(_network)]
Format = Annotated[str, AfterValidator(_format)]
