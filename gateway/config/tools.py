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
    """Limits for URLs in requests.  max_bytes, seconds: for all URLs of a request together.

    max_bytes also limits the stored files of a request.

    ports: allowed ports of public addresses.
    networks: further allowed networks, such as private ones, at any port.
    """

    fetch: bool = False
    max_bytes: Annotated[WholeNumber, Field(ge=1)] = 20 << 20
    seconds: Annotated[WholeNumber, Field(ge=1)] = 10
    ports: tuple[Annotated[Port, Field(ge=1)], ...] = (80, 443)
    networks: tuple[Network, ...] = ()


class McpServerSettings(SettingsSection):
    """An MCP server: a URL, or a program that is run and speaks over standard input and output.

    headers, env: headers of requests, or variables of the program; values may be secrets.
    allowed_tools: names of tools; None: all.
    require_approval: the default for clients; chat completions never ask for approval.
    """

    url: Url | None = Field(default=None, description="URL of the server; either this or `command` is required.")
    transport: Literal["http", "sse"] = "http"
    headers: dict[str, SecretStr] = Field(
        default_factory=dict, description="Headers of each request to the server; secrets are masked."
    )
    command: tuple[str, ...] = Field(
        default=(), description="Command line of a program that uses standard input and output."
    )
    env: dict[str, SecretStr] = Field(
        default_factory=dict, description="Environment variables of the program; secrets are masked."
    )
    allowed_tools: tuple[str, ...] | None = None
    require_approval: Literal["always", "never"] = "always"

    @model_validator(mode="after")
    def _either(self) -> Self:
        if bool(self.url) == bool(self.command):
            raise config_error("should have either url or command")
        return self


class McpSettings(SettingsSection):
    """MCP servers.

    servers: the servers by the labels that clients use.
    hosts: hosts of servers that clients may name by a `server_url`.
    per_request: the limit of servers in one request.
    ports: allowed ports of public addresses.
    networks: further allowed networks, such as private ones, at any port.
    connect_seconds: to connect and to list the tools.
    list_seconds: how long a tool list is cached.
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

    url: Url = Field(description="Address of the page.")
    title: str = Field(default="", description="Title of the page.")
    text: str = Field(default="", description="Text of the page.")


class PageSettings(FetchSettings):
    """Limits for opened pages, each page by itself."""

    max_bytes: Annotated[WholeNumber, Field(ge=1)] = 2 << 20


class WebSearchSettings(SettingsSection):
    """Web search.

    service: the search service; None: no web search.
    url: its root; None: the service's own.
    found: the pages of the service `static`.
    pages: limits for the pages that a model opens.
    """

    service: Literal["searxng", "brave", "tavily", "static"] | None = None
    url: Root | None = None
    api_key: OptionalSecret = None
    found: tuple[StaticSearchResult, ...] = ()
    pages: PageSettings = PageSettings()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.service == "searxng" and not self.url:
            raise config_error("needs url, the address of the SearXNG server")
        if self.service in ("brave", "tavily") and not self.api_key:
            raise config_error(f"needs api_key, the key of {self.service}")
        return self


class FileSearchSettings(SettingsSection):
    """File search.  url: a server that has `/v1/vector_stores/ID/search`; None: no file search."""

    url: Root | None = None
    api_key: OptionalSecret = None


class ToolSettings(SettingsSection):
    """The tools that run at the gateway.

    seconds: for one tool call.
    calls, rounds: limits of one response.
    result_bytes: the limit of a tool's output for the model.
    """

    seconds: Annotated[Seconds, Field(gt=0)] = 60
    calls: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=64,
        description="Maximum number of tool calls in one response; `max_tool_calls` of a request may be lower.",
    )
    rounds: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=16,
        description="Maximum number of rounds with tool calls; after that, the model gets no such tools.",
    )
    result_bytes: Annotated[WholeNumber, Field(ge=1)] = 256 << 10
    mcp: McpSettings = McpSettings()
    web_search: WebSearchSettings = WebSearchSettings()
    file_search: FileSearchSettings = FileSearchSettings()
