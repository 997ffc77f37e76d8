"""Define all configuration keys with their defaults.  An attribute has the name of its key; every section is frozen.

A key without a value counts as absent.  types.py defines the types of single values.  validation.py checks the links
between sections: a backend that is named but missing, a host that needs keys.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.config.tools import FetchSettings, ToolSettings
from gateway.config.types import (
    CounterUrl,
    Digests,
    Endpoint,
    Format,
    HeaderName,
    Host,
    ModelName,
    Name,
    Network,
    OptionalSecret,
    Origin,
    Port,
    Root,
    Seconds,
    Secret,
    SettingsSection,
    Share,
    StoreUrl,
    Url,
    WholeNumber,
    config_error,
)

KindName = Literal["openai", "vllm", "llamacpp", "ollama", "lmstudio", "sglang", "transformers", "anthropic"]
Scope = Literal["inference", "admin"]
ReadyCheck = Literal["any_backend", "all_backends", "store", "redis", "certificate", "extras"]
IgnorableField = Literal[
    "frequency_penalty", "logit_bias", "logprobs", "n", "parallel_tool_calls", "presence_penalty", "reasoning_effort",
    "response_format", "seed", "stop", "tool_choice", "top_logprobs",
]  # fmt: skip


class RecordingSettings(SettingsSection):
    """The recording of requests and responses.

    mode: which are recorded: none, failures, a share, those with the header that asks for it, or all.
    directory: the folder for the recordings.
    files, bytes: limits of the folder; the oldest recordings are deleted first.
    exchange_bytes: the limit of one recording; the rest of it is left out.
    content: keep the texts of clients and models.
    """

    mode: Literal["off", "errors", "sample", "header", "all"] = "off"
    share: Share = 0.01
    directory: Annotated[str, Field(min_length=1)] = "recordings"
    files: Annotated[WholeNumber, Field(ge=1)] = 1000
    bytes: Annotated[WholeNumber, Field(ge=1)] = 1 << 30
    exchange_bytes: Annotated[WholeNumber, Field(ge=1)] = 16 << 20
    content: bool = False


class TracingSettings(SettingsSection):
    """Tracing.

    url: the OTLP endpoint for spans, over HTTP; None: the one in the environment, else port 4318 of this machine.
    headers: headers for that endpoint; values may be secrets.
    share: the share of traced requests, if the client does not decide.
    """

    enabled: bool = False
    url: Url | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    share: Share = 1


class TlsSettings(SettingsSection):
    """TLS files in PEM; paths are relative to the configuration file.

    certificate: with its chain.
    password: of the key.
    """

    certificate: Annotated[str, Field(min_length=1)]
    key: Annotated[str, Field(min_length=1)]
    password: SecretStr | None = None


class ServerSettings(SettingsSection):
    """The process and its listening socket.

    ready: what `/ready` requires.
    drain_delay_seconds: after the signal to stop, how long the gateway accepts requests while `/ready` already fails.
    forwarded_allow_ips: proxies whose forwarded headers for client address and scheme are trusted.
    """

    host: Host = "127.0.0.1"
    port: Port = 8900  # 0: any free one
    workers: Annotated[WholeNumber, Field(ge=1)] = 1
    ready: tuple[ReadyCheck, ...] = ("any_backend",)
    drain_seconds: Seconds = 30
    drain_delay_seconds: Seconds = 0
    watch_seconds: Seconds = 2  # between two checks for a changed file; 0: reload on SIGHUP only
    cors: tuple[Origin, ...] = ()
    tls: TlsSettings | None = None
    forwarded_allow_ips: tuple[Network, ...] = ()


class TimeoutSettings(SettingsSection):
    """Timeouts in seconds; 0: none.

    reused: if a reused connection fails within this time, the request is sent again; 0: never.
    """

    connect: Seconds = 5
    reused: Seconds = 0.2
    first_byte: Seconds = 600
    idle: Seconds = 120
    total: Seconds = 0


class QueueSettings(SettingsSection):
    """The queue of a backend: its length, and the maximum wait."""

    length: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=100, description="Maximum length of the queue; beyond it, the gateway answers 503 with retry-after."
    )
    seconds: Seconds = Field(
        default=30, description="Maximum wait in seconds; after it, the gateway answers 503 with retry-after."
    )


class BackendSettings(SettingsSection):
    """A backend.

    ignores: fields that this server ignores without an error, in addition to those known for its kind.
    concurrent: the limit of concurrent requests, over all workers; 0: no limit.
    cache: `auto` sets points of the prompt cache for clients whose API has none; for kind anthropic.
    probe_seconds: the interval of health probes, for a backend that is unhealthy or has alternatives.
    """

    kind: KindName = "openai"
    ignores: tuple[IgnorableField, ...] = ()
    url: Root
    api_key: OptionalSecret = None
    timeouts: TimeoutSettings = TimeoutSettings()
    idle_connections: Annotated[WholeNumber, Field(ge=0)] = 32
    concurrent: Annotated[WholeNumber, Field(ge=0)] = 0
    queue: QueueSettings = QueueSettings()
    cache: Literal["off", "auto"] = "off"
    probe_seconds: Seconds = 10

    @model_validator(mode="after")
    def _of_ollama(self) -> Self:
        if self.kind == "ollama" and self.url.endswith("/api"):
            raise config_error("url should be the root URL of Ollama without /api, like http://127.0.0.1:11434")
        return self


class TargetSettings(SettingsSection):
    """A backend that serves a model.  A bare name is short for it.

    upstream_model: the model's name at this backend; None: the `upstream_model` of the model applies.
    """

    name: Name = Field(description="Name of the backend.")
    weight: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=1, description="The backend's share of the requests of its group."
    )
    priority: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Group of the backend; group 1 serves only if no backend of group 0 is available."
    )
    upstream_model: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"name": data} if isinstance(data, str) else data


class ReasoningSettings(SettingsSection):
    """The reasoning in responses: the field of chat completions, and the carrier in the Responses API."""

    field: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    carrier: Literal["summary", "text", "both", "hidden"] = Field(
        default="summary", validation_alias="as", serialization_alias="as"
    )


class RoleSettings(SettingsSection):
    """The conversion of roles that chat templates do not accept."""

    developer: Literal["system", "native"] = "system"
    late_system: Literal["keep", "user", "merge"] = "user"
    alternate: bool = False


class EnforceSettings(SettingsSection):
    """The policy for a response that breaks a demand: report it, retry once, or refuse it after the retry.

    tool_choice: a forced tool call is missing.
    response_format: the text is not the demanded JSON.
    empty: there is no text and no tool call, although tools are offered.
    arguments: the arguments of a tool call are beyond repair.
    """

    tool_choice: Literal["warn", "retry", "refuse"] = "retry"
    response_format: Literal["warn", "retry", "refuse"] = "warn"
    empty: Literal["warn", "retry"] = "retry"
    arguments: Literal["warn", "retry"] = "warn"


_TokensPerDay = Annotated[
    WholeNumber,
    Field(ge=0, description="Maximum number of tokens of prompts and responses in a UTC day; 0: no limit."),
]
_TokensPerMonth = Annotated[
    WholeNumber,
    Field(ge=0, description="Maximum number of tokens of prompts and responses in a UTC month; 0: no limit."),
]


class RateLimitSettings(SettingsSection):
    """Limits on usage; 0: no limit.  A day and a month begin at midnight UTC."""

    requests_per_minute: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum number of requests in a minute; 0: no limit."
    )
    tokens_per_minute: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum number of tokens of prompts and responses in a minute; 0: no limit."
    )
    tokens_per_day: _TokensPerDay = 0
    tokens_per_month: _TokensPerMonth = 0
    concurrent: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum number of requests at the same time, counted by each gateway; 0: no limit."
    )


class KeyLimitSettings(RateLimitSettings):
    """Limits of a key: on its usage, and on its files; 0: that of the section `limits` applies."""

    file_bytes: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum bytes of a file; 0: limits.file_bytes applies."
    )
    tenant_file_bytes: Annotated[WholeNumber, Field(ge=0)] = Field(
        default=0, description="Maximum bytes of all files of the key; 0: limits.tenant_file_bytes applies."
    )


class GroupSettings(SettingsSection):
    """Budgets that all keys of a group share; 0: none."""

    tokens_per_day: _TokensPerDay = 0
    tokens_per_month: _TokensPerMonth = 0


class FallbackSettings(SettingsSection):
    """A model that stands in for another.  A bare name is short for it.

    when: no backend of the other model is available, or the request is too long for its context.
    """

    model: ModelName = Field(description="Name of the model that stands in.")
    when: tuple[Literal["unavailable", "too_long"], ...] = Field(
        default=("unavailable",),
        min_length=1,
        description="No backend is available (unavailable), or the conversation exceeds the context (too_long).",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"model": data} if isinstance(data, str) else data


class ModelSettings(SettingsSection):
    """A model.

    sticky: requests with the same key from the client, or the same beginning of the prompt, go to the same backend.
    retries: further attempts until there is content for the client, at other backends if there are any.
    hedge_seconds: without content after this time, another backend gets the request as well; 0: never.
    mcp: MCP servers whose tools run at the gateway for chat completions.
    web_search: run a web search for chat completions with `web_search_options`.
    defaults, overrides: parameters of requests, by the names of a chat completion or of the backend's kind.  A default
        applies if the client sends none; an override always applies.
    """

    backends: tuple[TargetSettings, ...] = ()
    upstream_model: Annotated[str, Field(min_length=1)] | None = None  # None: the model's own name
    format: Format = "auto"
    response_template: dict[str, Any] | None = None  # the template that defines the format
    thought: Literal["auto", "open", "closed"] = "auto"
    tools: Literal["native", "prompt"] = "native"
    enforce: EnforceSettings = EnforceSettings()
    reasoning: ReasoningSettings = ReasoningSettings()
    roles: RoleSettings = RoleSettings()
    strict: bool = False
    aliases: tuple[ModelName, ...] = ()
    sticky: Literal["key", "prefix", "none"] = "key"
    retries: Annotated[WholeNumber, Field(ge=0)] = 2
    hedge_seconds: Seconds = 0
    fallback: tuple[FallbackSettings, ...] = ()
    mcp: tuple[Name, ...] = ()
    web_search: bool = False
    defaults: dict[str, Any] = Field(default_factory=dict)
    overrides: dict[str, Any] = Field(default_factory=dict)
    limits: RateLimitSettings = RateLimitSettings()


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
    groups: budgets by the names of groups.
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


class StoreSettings(SettingsSection):
    """The store of responses: its database, retention, size limit and encryption keys."""

    url: StoreUrl = SecretStr("sqlite:///./gateway.db")
    usage: bool = True
    ttl_days: Annotated[WholeNumber, Field(ge=0)] = 30
    max_bytes: Annotated[WholeNumber, Field(ge=0)] = 10 << 30
    sealing_keys: tuple[Secret, ...] = ()

    @property
    def is_named(self) -> bool:
        """True if the configuration names the database; the default one depends on the working directory."""
        return "url" in self.model_fields_set

    @property
    def keeps_usage(self) -> bool:
        """True if the store keeps usage; a default database keeps none."""
        return self.usage and self.is_named


class ResponsesSettings(SettingsSection):
    """The Responses API.

    min_output_tokens: the lower bound of `max_output_tokens`.
    repair_dangling_calls: a tool call without output gets one that says so, instead of an error.
    reasoning_memory: the model gets back the reasoning that clients leave out, in chat completions as well.
    resume_seconds: how long a stored stream runs on without its client, and can be resumed after its end.
    log_bytes: the limit of a response's event log; the oldest events are deleted first.
    websocket: accept requests over a WebSocket.
    """

    min_output_tokens: Annotated[WholeNumber, Field(ge=1)] = 16
    repair_dangling_calls: bool = False
    reasoning_memory: bool = False
    resume_seconds: Annotated[WholeNumber, Field(ge=0)] = 0
    log_bytes: Annotated[WholeNumber, Field(ge=1)] = 64 << 20
    websocket: bool = True


class LimitSettings(SettingsSection):
    """Limits of requests.

    file_bytes: bytes of a stored file; tenant_file_bytes: of all files of a key.
    memory_bytes: memory for all request bodies and stored files in one process; requests beyond it wait or are refused.
    items: messages or items of a request, and an eighth of all values in it.
    parts: parts of one message or item.
    concurrent: concurrent requests in one process; more are refused unread; 0: no limit.
    url: the Redis that counts usage per key and model; None: the store counts it.
    """

    body_bytes: Annotated[WholeNumber, Field(ge=1)] = 32 << 20
    upload_bytes: Annotated[WholeNumber, Field(ge=1)] = 2 << 30
    file_bytes: Annotated[WholeNumber, Field(ge=1)] = 2 << 30
    tenant_file_bytes: Annotated[WholeNumber, Field(ge=1)] = 10 << 30
    frame_bytes: Annotated[WholeNumber, Field(ge=1)] = 8 << 20
    items: Annotated[WholeNumber, Field(ge=1)] = 20_000
    parts: Annotated[WholeNumber, Field(ge=1)] = 2_000
    memory_bytes: Annotated[WholeNumber, Field(ge=1)] = 256 << 20
    concurrent: Annotated[WholeNumber, Field(ge=0)] = 10_000
    url: CounterUrl | None = None


class StreamSettings(SettingsSection):
    """Streams.  client_seconds: how long a client may read nothing before it is disconnected; 0: forever."""

    grace_seconds: Seconds = 10
    keepalive_seconds: Seconds = 15
    client_seconds: Seconds = 60


class LogSettings(SettingsSection):
    """The logs.

    format: of all lines; None: JSON if `requests` is True, else text.
    content: errors show the texts of clients, models and backends.
    requests: log one entry per request; None: on a terminal only.
    """

    format: Literal["text", "json"] | None = None
    content: bool = False
    requests: bool | None = None


class MetricsSettings(SettingsSection):
    """The metrics.

    open: allow access to any client.
    keys: the number of keys whose requests and tokens are counted by the name of the key.
    """

    open: bool = False
    keys: Annotated[WholeNumber, Field(ge=0)] = 0


class InspectorSettings(SettingsSection):
    """The inspector, a page that shows requests."""

    enabled: bool = False


class Config(SettingsSection):
    """A whole configuration.  An empty document is valid."""

    server: ServerSettings = ServerSettings()
    backends: dict[Name, BackendSettings] = Field(default_factory=dict)
    models: dict[ModelName, ModelSettings] = Field(default_factory=dict)
    auth: AuthSettings = AuthSettings()
    store: StoreSettings = StoreSettings()
    responses: ResponsesSettings = ResponsesSettings()
    limits: LimitSettings = LimitSettings()
    stream: StreamSettings = StreamSettings()
    images: FetchSettings = FetchSettings()
    files: FetchSettings = FetchSettings()
    tools: ToolSettings = ToolSettings()
    logs: LogSettings = LogSettings()
    metrics: MetricsSettings = MetricsSettings()
    inspector: InspectorSettings = InspectorSettings()
    recording: RecordingSettings = RecordingSettings()
    tracing: TracingSettings = TracingSettings()
