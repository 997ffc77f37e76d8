"""Define the configuration of the tools that run at the gateway, and of fetched URLs."""

from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from gateway.config.types import (
    Name,
    Network,
    OptionalSecret,
    Port,
    Root,
    Seconds,
    ServerHost,
    SettingsSection,
    Url,
    WholeNumber,
    config_error,
)


class FetchSettings(SettingsSection):
    """Limits for URLs in requests.  max_bytes, seconds: for all of a request.

    ports: of public addresses; networks: may be fetched from as well, at any port.
    """

    fetch: bool = False
    max_bytes: Annotated[WholeNumber, Field(ge=1)] = 20 << 20
    seconds: Annotated[WholeNumber, Field(ge=1)] = 10
    ports: tuple[Annotated[Port, Field(ge=1)], ...] = (80, 443)
    networks: tuple[Network, ...] = ()


class McpServerSettings(SettingsSection):
    """One by its url, or a program that speaks over its own standard input and output.

    headers, env: what it is sent, or started with; they may be secrets.
    allowed_tools: by name; None: all.  require_approval: the default for clients; chat completions never ask.
    """

    url: Url | None = None
    transport: Literal["http", "sse"] = "http"
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    command: tuple[str, ...] = ()
    env: dict[str, SecretStr] = Field(default_factory=dict)
    allowed_tools: tuple[str, ...] | None = None
    require_approval: Literal["always", "never"] = "always"

    @model_validator(mode="after")
    def _either(self) -> Self:
        if bool(self.url) == bool(self.command):
            raise config_error("should have either a url or a command")
        return self


class McpSettings(SettingsSection):
    """servers: by the label that clients name them by; hosts: of servers that clients may name by a `server_url`.

    per_request: servers, at most.
    ports: of public addresses; networks: may be asked as well, at any port.
    connect_seconds: to connect and to list; list_seconds: a list is as good as new.
    """

    servers: dict[Name, McpServerSettings] = Field(default_factory=dict)
    hosts: tuple[ServerHost, ...] = ()
    per_request: Annotated[WholeNumber, Field(ge=1)] = 16
    ports: tuple[Annotated[Port, Field(ge=1)], ...] = (80, 443)
    networks: tuple[Network, ...] = ()
    connect_seconds: Annotated[Seconds, Field(gt=0)] = 10
    list_seconds: Seconds = 300


class StaticSearchResult(SettingsSection):
    """A result of the service `static`, which finds pages that share a word with the query."""

    url: Url
    title: str = ""
    text: str = ""


class PageSettings(FetchSettings):
    """Each of them within these limits."""

    max_bytes: Annotated[WholeNumber, Field(ge=1)] = 2 << 20


class WebSearchSettings(SettingsSection):
    """service: what is asked; None: there is no search.  url: None: the service's own.  found: by `static`.

    pages: that may be opened.
    """

    service: Literal["searxng", "brave", "tavily", "static"] | None = None
    url: Root | None = None
    api_key: OptionalSecret = None
    found: tuple[StaticSearchResult, ...] = ()
    pages: PageSettings = PageSettings()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.service == "searxng" and not self.url:
            raise config_error("needs the url of the SearXNG server")
        if self.service in ("brave", "tavily") and not self.api_key:
            raise config_error(f"needs the api_key of {self.service}")
        return self


class FileSearchSettings(SettingsSection):
    """url: of a server that has `/v1/vector_stores/ID/search`; None: there is no search."""

    url: Root | None = None
    api_key: OptionalSecret = None


class ToolSettings(SettingsSection):
    """seconds: of a call; calls, rounds: of an answer; result_bytes: of what the model is told of a call."""

    seconds: Annotated[Seconds, Field(gt=0)] = 60
    calls: Annotated[WholeNumber, Field(ge=1)] = 64
    rounds: Annotated[WholeNumber, Field(ge=1)] = 16
    result_bytes: Annotated[WholeNumber, Field(ge=1)] = 256 << 10
    mcp: McpSettings = McpSettings()
    web_search: WebSearchSettings = WebSearchSettings()
    file_search: FileSearchSettings = FileSearchSettings()
