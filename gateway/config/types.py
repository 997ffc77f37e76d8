"""Define the types of single values, each with the message for a wrong one, and the base class of all sections."""

import re
from hashlib import sha256
from ipaddress import ip_network
from typing import Annotated
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

MASK = "**********"
_DIGEST = "sha256:"
_LIKE = ", like http://127.0.0.1:8000"
# The paths of APIs, which are no part of a root URL.
_API_PATH = re.compile(
    r"(/v1)?/(chat/completions|completions|responses|messages|embeddings|rerank|models)/?$"
    r"|/api/(chat|generate|tags|show|embed|embeddings|ps|version)/?$"
)
# The version of an API, in the path of its URL.
_VERSION = re.compile(r"/v\d+((alpha|beta)\d*)?(?=/|$)")
_V1, _CHAT = "/v1", "/chat/completions"
_NOT_VISIBLE = "should be visible ASCII characters, at least one"


def config_error(text: str) -> PydanticCustomError:
    """Return a validation error with this text."""
    return PydanticCustomError("wrong", "{text}", {"text": text})


def pattern_validator(pattern: str, text: str) -> AfterValidator:
    """Return a validator that rejects a text which the pattern does not match as a whole; `text` is the error."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise config_error(text)
        return value

    return AfterValidator(check)


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise config_error("should be a number")
    return value


def _secret(value: SecretStr) -> SecretStr:
    if not _visible(value.get_secret_value()):
        raise config_error(_NOT_VISIBLE)
    return value


def _visible(text: str) -> bool:
    return bool(re.fullmatch(r"[!-~]+", text))


def key_digest(key: str) -> str:
    """Return the digest by which the gateway knows an API key.

    There is no salt and no slow hash: keys are too long to be guessed, and each request needs a digest.
    """
    return f"{_DIGEST}{sha256(key.encode()).hexdigest()}"


def parse_digest(written: object) -> str:
    """Return the digest of a key in the configuration, which may be a digest already.  Raises ValueError."""
    if not isinstance(written, str):
        raise config_error("should be a string; write it in quotes")
    if not _visible(written):
        raise config_error(_NOT_VISIBLE)
    if not written.startswith(_DIGEST):
        return key_digest(written)
    if not re.fullmatch(_DIGEST + "[0-9a-fA-F]{64}", written):
        raise config_error(f"should be {_DIGEST} and 64 hexadecimal digits, or a key with another prefix")
    return written.lower()


def _digests(value: object) -> object:
    """Convert a single key to a tuple of digests."""
    return value if isinstance(value, list | tuple) else [parse_digest(value)]


def _optional_secret(value: SecretStr | None) -> SecretStr | None:
    return _secret(value) if value and value.get_secret_value() else None


def _root(value: str, version: str = _V1) -> str:
    """Return the root URL of a server, without a trailing `version` or `/`."""
    parts = urlsplit(_url(value, places="api_key"))
    if "api-version=" in parts.query.lower():
        newer = urlunsplit((parts.scheme, parts.netloc, "/openai/v1", "", ""))
        raise config_error(f"should be the URL of Azure's API without api-version, like {newer}")
    if api := _API_PATH.search(parts.path):
        named = api[0] if version else api[0].removeprefix(_V1)
        root = urlunsplit((parts.scheme, parts.netloc, parts.path.removesuffix(named), "", ""))
        raise config_error(f"should be the root URL of the server without {named}, like {root}")
    if parts.query or parts.fragment:
        raise config_error("should have no user, query or fragment; put a key into api_key")
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/").removesuffix(version).rstrip("/"), "", ""))


def _root_or_api(value: str, info: ValidationInfo) -> str:
    """Return the root URL of a server, or for kind openai the URL of an API whose paths do not begin with `/v1`."""
    if info.data.get("kind") != "openai":
        return _root(value)
    path = urlsplit(_url(value, places="api_key")).path.rstrip("/")
    if _VERSION.search(_API_PATH.sub("", path).removesuffix(_V1)):
        return _root(value, version="")
    if path.endswith(_CHAT) and not path.endswith(_V1 + _CHAT):
        return _root(value.rstrip("/").removesuffix(_CHAT)) + _CHAT
    return _root(value)


def split_api_url(url: str) -> tuple[str, str]:
    """Return the URL before the paths of endpoints, and the beginning that these paths lose there, "" or `/v1`.

    url: of a backend of kind openai, as in its settings.
    """
    if url.endswith(_CHAT):
        return url.removesuffix(_CHAT), _V1
    return url, _V1 if _VERSION.search(urlsplit(url).path) else ""


def _url(value: str, places: str = "api_key or headers") -> str:
    try:
        parts = urlsplit(value)
    except ValueError:
        raise config_error(f"not a URL{_LIKE}; an IPv6 address needs brackets: http://[::1]:8000") from None
    if parts.scheme in ("http", "https") and not _has_valid_port(parts):
        raise config_error(f"the port should be a number from 1 to 65535{_LIKE}")
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", value):
        raise config_error(f"should start with http:// or https:// and name a host{_LIKE}")
    if parts.username is not None:
        raise config_error(f"should have no user; put a key into {places}")
    return value


def _has_valid_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:  # no number, or out of range
        return False


def _host(value: str) -> str:
    if re.fullmatch(r"[^:]+:\d+", value):
        raise config_error("should be an address without a port, like 127.0.0.1; put the port into server.port")
    return value


def _store(value: SecretStr) -> SecretStr:
    scheme, _, rest = value.get_secret_value().partition("://")
    database, hosts = scheme.partition("+")[0], re.split("[/?]", rest)[0].rpartition("@")[2]
    if database not in ("sqlite", "postgresql"):
        raise config_error(
            "should start with sqlite:// or postgresql://, like sqlite:///./gateway.db "
            "or postgresql://user@host/database"
        )
    if database == "sqlite" and hosts:
        raise config_error("should have three slashes before a relative path, four before an absolute one")
    if not all(re.fullmatch(r"(\[[^\]]*\]|[^:\[\]]*)(:\d+)?", host) for host in hosts.split(",")):
        raise config_error("should name the server as host or host:port")
    return value


def _counter(value: SecretStr) -> SecretStr:
    parts = urlsplit(value.get_secret_value())
    if parts.scheme not in ("redis", "rediss") or not parts.hostname or not _has_valid_port(parts):
        raise config_error("should start with redis:// or rediss:// and name a host, like redis://127.0.0.1:6379/0")
    return value


def _show_store(value: SecretStr) -> str:
    return re.sub(r"(://[^/@]*?:)[^/]*@", rf"\1{MASK}@", value.get_secret_value())


def _network(value: str) -> str:
    try:
        return str(ip_network(value))
    except ValueError:
        raise config_error(f"not a network like 10.1.0.0/16 or an address like 10.1.2.3{_meant(value)}") from None


def _meant(value: str) -> str:
    """Return the network that an address with a prefix length is in."""
    try:
        return f"; did you mean {ip_network(value, strict=False)}?"
    except ValueError:
        return ""


def _format(value: str, info: ValidationInfo) -> str:
    known = (info.context or {}).get("formats")
    if known is not None and value not in known:
        raise PydanticCustomError("format", "unknown format")
    return value


WholeNumber = Annotated[int, BeforeValidator(_number)]
Port = Annotated[WholeNumber, Field(ge=0, le=65535)]
_NotNegative = Annotated[
    float,
    BeforeValidator(_number),
    Field(ge=0, allow_inf_nan=False),
    PlainSerializer(lambda value: int(value) if float(value).is_integer() else value, return_type=int | float),
]
Seconds = _NotNegative
Price = _NotNegative
Share = Annotated[Seconds, Field(le=1)]
Name = Annotated[
    str, pattern_validator(r"[A-Za-z0-9._-]+", "a name should consist of letters, digits, dots, dashes and underscores")
]
ModelName = Annotated[
    str,
    pattern_validator(r"[^\x00-\x1f\x7f]+", "a model's name should not be empty and should have no control characters"),
]
Host = Annotated[
    str,
    pattern_validator(r"[^\s/\[\]]+", "should be an address or a host name, like 127.0.0.1 or ::1"),
    AfterValidator(_host),
]
Origin = Annotated[
    str,
    pattern_validator(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+", "should be scheme://host, scheme://host:port, or * for all"),
]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
Digests = Annotated[
    tuple[Annotated[SecretStr, BeforeValidator(parse_digest)], ...], Field(min_length=1), BeforeValidator(_digests)
]
OptionalSecret = Annotated[SecretStr | None, AfterValidator(_optional_secret)]
HeaderName = Annotated[
    str,
    pattern_validator(r"[A-Za-z0-9-]+", "should be the name of a header, like X-Forwarded-User"),
    AfterValidator(str.lower),
]
Endpoint = Annotated[str, pattern_validator(r"(/[^/\s?#%]+)+", "should be a path like /v1/chat/completions")]
Root = Annotated[str, AfterValidator(_root)]
RootOrApi = Annotated[str, AfterValidator(_root_or_api)]
StoreUrl = Annotated[SecretStr, AfterValidator(_store), PlainSerializer(_show_store)]
CounterUrl = Annotated[SecretStr, AfterValidator(_counter), PlainSerializer(_show_store)]
Url = Annotated[str, AfterValidator(_url)]
ServerHost = Annotated[
    str,
    pattern_validator(
        r"\*|(\*\.)?[A-Za-z0-9.-]+", "should be a host name, *.example.com for its subdomains, or * for all"
    ),
]
Network = Annotated[str, AfterValidator(_network)]
Format = Annotated[str, AfterValidator(_format)]


class SettingsSection(BaseModel):
    """A section of the configuration; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _present(cls, data: object) -> object:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None or key not in cls.known_keys()}
        return {} if data is None else data

    @classmethod
    def known_keys(cls) -> list[str]:
        """Return the keys of the section, as they are written in the file."""
        return [field.serialization_alias or name for name, field in cls.model_fields.items()]
