"""Everything an operator can write, with its defaults.  An attribute has the name of its key; every section is frozen.

A key without a value counts as left out.  What a section means as a whole (a backend that is named but missing, who
may listen where) is in check.py.
"""

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

MASK = "**********"

Kind = Literal["openai", "vllm", "llamacpp", "ollama", "lmstudio", "sglang", "transformers"]
Scope = Literal["inference", "admin"]


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


class Section(BaseModel):
    """A mapping of the file; a key that it does not have is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _present(cls, data: object) -> object:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None or key not in cls.known()}
        return {} if data is None else data

    @classmethod
    def known(cls) -> list[str]:
        """The keys that may be written here."""
        return [field.serialization_alias or name for name, field in cls.model_fields.items()]


class Server(Section):
    host: Host = "127.0.0.1"
    port: Port = 8900  # 0: any free one
    workers: Annotated[Whole, Field(ge=1)] = 1
    drain_seconds: Seconds = 30
    cors: tuple[Origin, ...] = ()


class Timeouts(Section):
    """Seconds; 0 is none."""

    connect: Seconds = 5
    first_byte: Seconds = 600
    idle: Seconds = 120
    total: Seconds = 0


class Backend(Section):
    kind: Kind = "openai"
    url: Annotated[str, AfterValidator(_root)]
    api_key: Annotated[SecretStr | None, AfterValidator(_optional_secret)] = None
    timeouts: Timeouts = Timeouts()
    idle_connections: Annotated[Whole, Field(ge=0)] = 32


class Target(Section):
    """A backend that serves a model; the bare name of one is short for it."""

    name: Name
    weight: Annotated[Whole, Field(ge=1)] = 1
    priority: Annotated[Whole, Field(ge=0)] = 0

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"name": data} if isinstance(data, str) else data


class Reasoning(Section):
    field: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    carrier: Literal["summary", "text", "both", "hidden"] = Field(
        default="summary", validation_alias="as", serialization_alias="as"
    )


class Roles(Section):
    developer: Literal["system", "native"] = "system"
    late_system: Literal["keep", "user", "merge"] = "user"
    alternate: bool = False


class Model(Section):
    backends: tuple[Target, ...] = ()
    upstream_model: Annotated[str, Field(min_length=1)] | None = None  # None: the model's own name
    format: Annotated[str, AfterValidator(_format)] = "auto"
    response_template: dict[str, Any] | None = None  # what the format of that name is
    thought: Literal["auto", "open", "closed"] = "auto"
    tools: Literal["native", "prompt"] = "native"
    reasoning: Reasoning = Reasoning()
    roles: Roles = Roles()
    strict: bool = False
    aliases: tuple[ModelName, ...] = ()


class KeyLimits(Section):
    """What one key may use; 0 is no limit."""

    requests_per_minute: Annotated[Whole, Field(ge=0)] = 0
    tokens_per_minute: Annotated[Whole, Field(ge=0)] = 0
    tokens_per_day: Annotated[Whole, Field(ge=0)] = 0
    concurrent: Annotated[Whole, Field(ge=0)] = 0


class Key(Section):
    """Who may come in.  The tenant is the name; `models` None means all of them."""

    name: Name
    key: Secret
    models: Annotated[tuple[ModelName, ...], Field(min_length=1)] | None = None
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)] = ("inference",)
    limits: KeyLimits = KeyLimits()


class Auth(Section):
    """Without keys everybody may come in, and then only on a loopback address unless `open`.

    A bare string is a key of both scopes; its name is that of its place, `key1` for the first.
    """

    keys: tuple[Key, ...] = ()
    open: bool = False

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
    def _once(cls, keys: tuple[Key, ...]) -> tuple[Key, ...]:
        names = [key.name for key in keys]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise wrong(f"each key needs a name of its own; twice: {', '.join(twice)}")
        if len({key.key.get_secret_value() for key in keys}) < len(keys):
            raise wrong("the same key is there twice")
        return keys

    @model_validator(mode="after")
    def _either(self) -> Self:
        if self.open and self.keys:
            raise wrong("open: true contradicts the keys; take one of them away")
        return self


class Store(Section):
    url: Annotated[SecretStr, AfterValidator(_store), PlainSerializer(_show_store)] = SecretStr(
        "sqlite:///./gateway.db"
    )
    ttl_days: Annotated[Whole, Field(ge=0)] = 30
    max_bytes: Annotated[Whole, Field(ge=0)] = 10 << 30
    sealing_keys: tuple[Secret, ...] = ()


class Responses(Section):
    """min_output_tokens: the least that `max_output_tokens` may be.

    repair_dangling_calls: a call whose output is missing gets one that says so, instead of an error.
    reasoning_memory: the model gets back the reasoning that clients do not send, those of chat completions included.
    resume_seconds: a stored stream goes on for so long without its client, and can be resumed so long after its end.
    log_bytes: of a response's events; beyond that the oldest are forgotten.
    websocket: clients may ask over a WebSocket as well.
    """

    min_output_tokens: Annotated[Whole, Field(ge=1)] = 16
    repair_dangling_calls: bool = False
    reasoning_memory: bool = False
    resume_seconds: Annotated[Whole, Field(ge=0)] = 0
    log_bytes: Annotated[Whole, Field(ge=1)] = 64 << 20
    websocket: bool = True


class Limits(Section):
    body_bytes: Annotated[Whole, Field(ge=1)] = 32 << 20
    frame_bytes: Annotated[Whole, Field(ge=1)] = 8 << 20


class Stream(Section):
    grace_seconds: Seconds = 10
    keepalive_seconds: Seconds = 15


class Images(Section):
    fetch: bool = False


class Metrics(Section):
    open: bool = False


class Inspector(Section):
    enabled: bool = False


class Config(Section):
    """One gateway.  An empty document is one, too."""

    server: Server = Server()
    backends: dict[Name, Backend] = {}
    models: dict[ModelName, Model] = {}
    auth: Auth = Auth()
    store: Store = Store()
    responses: Responses = Responses()
    limits: Limits = Limits()
    stream: Stream = Stream()
    images: Images = Images()
    metrics: Metrics = Metrics()
    inspector: Inspector = Inspector()
