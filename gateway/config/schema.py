"""Define all configuration keys with their defaults.  An attribute has the name of its key; every section is frozen.

Larger sections have modules of their own: auth.py, backends.py, limits.py, models.py and tools.py.

A key without a value counts as absent.  types.py defines the types of single values.  validation.py checks the links
between sections: a backend that is named but missing, a host that needs keys.
"""

from typing import Annotated, Literal

from pydantic import Field, SecretStr

from gateway.config.auth import AuthSettings
from gateway.config.backends import BackendSettings
from gateway.config.limits import LimitSettings
from gateway.config.models import ModelSettings
from gateway.config.tools import FetchSettings, ToolSettings
from gateway.config.types import (
    Host,
    ModelName,
    Name,
    Network,
    Origin,
    Port,
    Seconds,
    Secret,
    SettingsSection,
    Share,
    StoreUrl,
    Url,
    WholeNumber,
)

ReadyCheck = Literal["any_backend", "all_backends", "store", "redis", "certificate", "extras"]


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
    gen_ai: count by the names of OpenTelemetry as well.
    """

    open: bool = False
    keys: Annotated[WholeNumber, Field(ge=0)] = 0
    gen_ai: bool = False


class InspectorSettings(SettingsSection):
    """The inspector, a page that shows requests.  recordings: it also shows those of `recording.directory`."""

    enabled: bool = False
    recordings: bool = False


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
