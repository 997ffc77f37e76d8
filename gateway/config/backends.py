"""Define the section `backends` of the configuration."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from gateway.backends import KINDS
from gateway.config.types import (
    OptionalSecret,
    RootOrApi,
    Seconds,
    SettingsSection,
    WholeNumber,
    config_error,
    split_api_url,
)

if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS)]  # the files of backends/kinds

IgnorableField = Literal[
    "frequency_penalty", "logit_bias", "logprobs", "n", "parallel_tool_calls", "presence_penalty", "reasoning_effort",
    "response_format", "seed", "stop", "tool_choice", "top_logprobs",
]  # fmt: skip


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
    url: RootOrApi
    api_key: OptionalSecret = None
    timeouts: TimeoutSettings = TimeoutSettings()
    idle_connections: Annotated[WholeNumber, Field(ge=0)] = 32
    concurrent: Annotated[WholeNumber, Field(ge=0)] = 0
    queue: QueueSettings = QueueSettings()
    cache: Literal["off", "auto"] = "off"
    probe_seconds: Seconds = 10

    @property
    def root(self) -> str:
        """The URL before the paths of endpoints."""
        return self._split_url()[0]

    @property
    def unused_version(self) -> str:
        """`/v1` if paths of endpoints do not begin with it below `root`, because `url` names an API itself; else ""."""
        return self._split_url()[1]

    def path_of(self, endpoint: str) -> str:
        """Return the path of an endpoint like `/v1/models` below `root`."""
        return endpoint.removeprefix(self.unused_version)

    def _split_url(self) -> tuple[str, str]:
        return split_api_url(self.url) if self.kind == "openai" else (self.url, "")

    @model_validator(mode="after")
    def _of_ollama(self) -> Self:
        if self.kind == "ollama" and self.url.endswith("/api"):
            raise config_error("url should be the root URL of Ollama without /api, like http://127.0.0.1:11434")
        return self
