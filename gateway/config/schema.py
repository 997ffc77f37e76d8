"""Define all configuration keys with their defaults.  An attribute has the name of its key; every section is frozen.

A key without a value counts as absent.  types.py defines the types of single values.  validation.py checks what links
sections: a backend that is named but missing, a host that needs keys.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from gateway.config.tools import FetchSettings, ToolSettings
from gateway.config.types import (
    CounterUrl,
    Digests,
    Endpoint,
    Format,
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

KindName = Literal["openai", "vllm", "llamacpp", "ollama", "lmstudio", "sglang", "transformers"]
Scope = Literal["inference", "admin"]
IgnorableField = Literal[
    "frequency_penalty", "logit_bias", "logprobs", "n", "parallel_tool_calls", "presence_penalty", "reasoning_effort",
    "response_format", "seed", "stop", "tool_choice", "top_logprobs",
]  # fmt: skip


class RecordingSettings(SettingsSection):
    """mode: which exchanges are written: those that fail, a share of all, those that ask for it by a header, or all.

    directory: where to; the oldest go when there are more than `files`, or than `bytes` in all.
    exchange_bytes: of one; what is beyond that is left out.  content: what clients and models say stays in it.
    """

    mode: Literal["off", "errors", "sample", "header", "all"] = "off"
    share: Share = 0.01
    directory: Annotated[str, Field(min_length=1)] = "recordings"
    files: Annotated[WholeNumber, Field(ge=1)] = 1000
    bytes: Annotated[WholeNumber, Field(ge=1)] = 1 << 30
    exchange_bytes: Annotated[WholeNumber, Field(ge=1)] = 16 << 20
    content: bool = False


class TracingSettings(SettingsSection):
    """url: where spans are sent, as OTLP over HTTP; None: as the environment says, else this machine's port 4318.

    headers: that go with them; they may be secrets.  share: of the requests whose client does not say.
    """

    enabled: bool = False
    url: Url | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    share: Share = 1


class TlsSettings(SettingsSection):
    """PEM files; paths are relative to the configuration's.  certificate: with its chain; password: of the key."""

    certificate: Annotated[str, Field(min_length=1)]
    key: Annotated[str, Field(min_length=1)]
    password: SecretStr | None = None


class ServerSettings(SettingsSection):
    """drain_delay_seconds: how long it goes on as before once it is told to stop, but for `/ready`, which says so.

    forwarded_allow_ips: proxies that are believed whom they ask for, and how they were asked.
    """

    host: Host = "127.0.0.1"
    port: Port = 8900  # 0: any free one
    workers: Annotated[WholeNumber, Field(ge=1)] = 1
    drain_seconds: Seconds = 30
    drain_delay_seconds: Seconds = 0
    watch_seconds: Seconds = 2  # between two looks at whether the file has changed; 0: SIGHUP alone makes it read again
    cors: tuple[Origin, ...] = ()
    tls: TlsSettings | None = None
    forwarded_allow_ips: tuple[Network, ...] = ()


class TimeoutSettings(SettingsSection):
    """Seconds; 0 is none.

    reused: how soon a kept connection has to turn out to be closed for its request to be sent again; 0: never.
    """

    connect: Seconds = 5
    reused: Seconds = 0.2
    first_byte: Seconds = 600
    idle: Seconds = 120
    total: Seconds = 0


class QueueSettings(SettingsSection):
    """The queue of a backend: its length, and the longest wait."""

    length: Annotated[WholeNumber, Field(ge=0)] = 100
    seconds: Seconds = 30


class BackendSettings(SettingsSection):
    """ignores: fields that this server takes without a word and does nothing about, whatever is known of its kind.

    concurrent: requests at a time, of all workers together; 0: no limit.
    probe_seconds: how often it is asked whether it is well, while it is not or where there are others in its place.
    """

    kind: KindName = "openai"
    ignores: tuple[IgnorableField, ...] = ()
    url: Root
    api_key: OptionalSecret = None
    timeouts: TimeoutSettings = TimeoutSettings()
    idle_connections: Annotated[WholeNumber, Field(ge=0)] = 32
    concurrent: Annotated[WholeNumber, Field(ge=0)] = 0
    queue: QueueSettings = QueueSettings()
    probe_seconds: Seconds = 10


class TargetSettings(SettingsSection):
    """A backend that serves a model; the bare name of one is short for it.

    upstream_model: what the model is called there; None: as the model's own key of that name says.
    """

    name: Name
    weight: Annotated[WholeNumber, Field(ge=1)] = 1
    priority: Annotated[WholeNumber, Field(ge=0)] = 0
    upstream_model: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"name": data} if isinstance(data, str) else data


class ReasoningSettings(SettingsSection):
    field: Literal["reasoning_content", "reasoning", "both"] = "reasoning_content"
    carrier: Literal["summary", "text", "both", "hidden"] = Field(
        default="summary", validation_alias="as", serialization_alias="as"
    )


class RoleSettings(SettingsSection):
    developer: Literal["system", "native"] = "system"
    late_system: Literal["keep", "user", "merge"] = "user"
    alternate: bool = False


class EnforceSettings(SettingsSection):
    """The policy for a response that breaks a demand: report it, ask once more, or refuse it after that.

    tool_choice: of a call that is forced; response_format: of JSON.  empty: of a turn without text and calls, where
    tools are offered.  arguments: of calls whose arguments are beyond repair.
    """

    tool_choice: Literal["warn", "retry", "refuse"] = "retry"
    response_format: Literal["warn", "retry", "refuse"] = "warn"
    empty: Literal["warn", "retry"] = "retry"
    arguments: Literal["warn", "retry"] = "warn"


class RateLimitSettings(SettingsSection):
    """Limits on usage; 0 is no limit.  A day is one of UTC."""

    requests_per_minute: Annotated[WholeNumber, Field(ge=0)] = 0
    tokens_per_minute: Annotated[WholeNumber, Field(ge=0)] = 0
    tokens_per_day: Annotated[WholeNumber, Field(ge=0)] = 0
    concurrent: Annotated[WholeNumber, Field(ge=0)] = 0


class FallbackSettings(SettingsSection):
    """A model that answers in another's place; the bare name of one is short for it.

    when: no backend of that one can answer, or its context is too short for the request.
    """

    model: ModelName
    when: Annotated[tuple[Literal["unavailable", "too_long"], ...], Field(min_length=1)] = ("unavailable",)

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: object) -> object:
        return {"model": data} if isinstance(data, str) else data


class ModelSettings(SettingsSection):
    """sticky: what makes requests go to the same backend: a key that the client names, the beginning of the prompt.

    retries: further attempts, at other backends as long as there are any, until there is content for the client.
    hedge_seconds: without content after so long another backend is asked as well; 0: never.
    mcp: servers whose tools are offered in chat completions and run here.
    web_search: chat completions with `web_search_options` are answered with a search that runs here.
    """

    backends: tuple[TargetSettings, ...] = ()
    upstream_model: Annotated[str, Field(min_length=1)] | None = None  # None: the model's own name
    format: Format = "auto"
    response_template: dict[str, Any] | None = None  # what the format of that name is
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
    limits: RateLimitSettings = RateLimitSettings()


class ApiKey(SettingsSection):
    """An API key.  The tenant is its name; `models` and `endpoints` None mean all of them.

    key: the digests of all that are accepted, whether they were written as such or not.
    endpoints: paths, each with all that is below it.
    priority: who goes first where requests wait for a backend.
    """

    name: Name
    key: Digests
    models: Annotated[tuple[ModelName, ...], Field(min_length=1)] | None = None
    endpoints: Annotated[tuple[Endpoint, ...], Field(min_length=1)] | None = None
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)] = ("inference",)
    limits: RateLimitSettings = RateLimitSettings()
    priority: Literal["high", "normal", "low"] = "normal"


class AuthSettings(SettingsSection):
    """Without keys everybody may come in, and then only on a loopback address unless `open`.

    A bare string is a key of both scopes; its name is that of its place, `key1` for the first.
    """

    keys: tuple[ApiKey, ...] = ()
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
    def _once(cls, keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
        names = [key.name for key in keys]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise config_error(f"each key needs a name of its own; twice: {', '.join(twice)}")
        digests = [digest for key in keys for digest in key.key]
        if len(set(digests)) < len(digests):
            raise config_error("the same key is there twice")
        return keys

    @model_validator(mode="after")
    def _either(self) -> Self:
        if self.open and self.keys:
            raise config_error("open: true contradicts the keys; take one of them away")
        return self


class StoreSettings(SettingsSection):
    url: StoreUrl = SecretStr("sqlite:///./gateway.db")
    ttl_days: Annotated[WholeNumber, Field(ge=0)] = 30
    max_bytes: Annotated[WholeNumber, Field(ge=0)] = 10 << 30
    sealing_keys: tuple[Secret, ...] = ()


class ResponsesSettings(SettingsSection):
    """min_output_tokens: the least that `max_output_tokens` may be.

    repair_dangling_calls: a call whose output is missing gets one that says so, instead of an error.
    reasoning_memory: the model gets back the reasoning that clients do not send, those of chat completions included.
    resume_seconds: a stored stream goes on for so long without its client, and can be resumed so long after its end.
    log_bytes: of a response's events; beyond that the oldest are forgotten.
    websocket: clients may ask over a WebSocket as well.
    """

    min_output_tokens: Annotated[WholeNumber, Field(ge=1)] = 16
    repair_dangling_calls: bool = False
    reasoning_memory: bool = False
    resume_seconds: Annotated[WholeNumber, Field(ge=0)] = 0
    log_bytes: Annotated[WholeNumber, Field(ge=1)] = 64 << 20
    websocket: bool = True


class LimitSettings(SettingsSection):
    """memory_bytes: that all bodies in one process may take; what is beyond waits, or is refused.

    items: messages or items of a request, and an eighth of all values in it; parts: of one of them.

    concurrent: requests at a time in one process, beyond which they are refused unread; 0: no limit.

    url: of the Redis that counts what keys and models use; None: the store does.
    """

    body_bytes: Annotated[WholeNumber, Field(ge=1)] = 32 << 20
    frame_bytes: Annotated[WholeNumber, Field(ge=1)] = 8 << 20
    items: Annotated[WholeNumber, Field(ge=1)] = 20_000
    parts: Annotated[WholeNumber, Field(ge=1)] = 2_000
    memory_bytes: Annotated[WholeNumber, Field(ge=1)] = 256 << 20
    concurrent: Annotated[WholeNumber, Field(ge=0)] = 10_000
    url: CounterUrl | None = None


class StreamSettings(SettingsSection):
    """client_seconds: how long a client may leave unread what it was sent, before it is cut off; 0: for ever."""

    grace_seconds: Seconds = 10
    keepalive_seconds: Seconds = 15
    client_seconds: Seconds = 60


class LogSettings(SettingsSection):
    """content: what clients, models and backends say is shown where it tells what went wrong.

    requests: there is a line for each.
    """

    content: bool = False
    requests: bool = False


class MetricsSettings(SettingsSection):
    """open: any client may use them."""

    open: bool = False


class InspectorSettings(SettingsSection):
    enabled: bool = False


class Config(SettingsSection):
    """One gateway.  An empty document is one, too."""

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
