"""Hold the tools that the gateway can run, and make the toolset of a request."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from gateway import config
from gateway.api.responses import BuiltinToolFilter, BuiltinToolParams, namespace_of
from gateway.builtin_tools import HiddenToolLoop, PausingToolLoop, Sources, ToolLoop, file_search, web_search
from gateway.builtin_tools.mcp import McpServerDefinition
from gateway.errors import BadRequest
from gateway.installation import install_command
from gateway.request import Request
from gateway.server.fetch.pdf_reader import Pdfs
from gateway.server.tools.mcp_session import McpProvider, McpSession
from gateway.server.tools.search_tools import FileSearchProvider, ProviderContext, WebSearchProvider
from gateway.server.tools.search_tools import file_search_client as files_of
from gateway.server.tools.search_tools import make_web_services as web_of
from gateway.server.tools.tool_server import ToolServer
from gateway.server.tools.toolset import ToolProvider, Toolset, ToolsetOptions
from gateway.warnings import Warnings

_log = logging.getLogger("gateway")
_PACKAGE = "mcp"
_OPTIONS = "web_search_options"  # of a chat completion

Definition = dict[str, Any]


class ToolRegistry:
    """The tools that the gateway can run.

    pdfs: reads PDFs of clients and of the web; package: the name of the MCP SDK's package.
    """

    def __init__(self, settings: config.ToolSettings, package: str = _PACKAGE) -> None:
        self._settings, mcp, self.pdfs = settings, settings.mcp, Pdfs()
        wanted = bool(mcp.servers or mcp.hosts)
        there = wanted and find_spec(package) is not None
        if wanted and not there:
            command = install_command("gateway[mcp]")
            _log.warning("tools.mcp needs the package %r, which is not installed; run: %s", package, command)
        self._sessions = (
            {label: McpSession(_target(server, settings.seconds), mcp) for label, server in mcp.servers.items()}
            if there
            else {}
        )
        self._hosts = [host.lower() for host in mcp.hosts] if there else []
        self._web, self._files = web_of(settings.web_search, self.pdfs), files_of(settings.file_search)
        self._there = bool(there or self._web or self._files)

    @property
    def builtin_tool_filter(self) -> BuiltinToolFilter | None:
        """The filter of tools that can run here; None if there are none."""
        return self._runs if self._there else None

    def _runs(self, definition: Definition) -> bool:
        if definition["type"] != "mcp":
            return {web_search.NAMESPACE: self._web, file_search.NAMESPACE: self._files}.get(
                namespace_of(definition)
            ) is not None
        if url := definition.get("server_url"):
            return self._allows(url)
        return definition["server_label"] in self._sessions

    def _allows(self, url: str) -> bool:
        try:
            parts = urlsplit(url)
        except ValueError:
            return False
        host = parts.hostname or ""
        return parts.scheme in ("http", "https") and any(fnmatchcase(host, allowed) for allowed in self._hosts)

    def toolset_for(self, hosted: BuiltinToolParams, request: Request, ledger: Warnings) -> Toolset | None:
        """Return the toolset of the built-in tools that a client requests; None without any.

        Raises BadRequest for more MCP servers than allowed.
        """
        if not (hosted.definitions or hosted.approved):
            return None
        servers, most = sum(one["type"] == "mcp" for one in hosted.definitions), self._settings.mcp.per_request
        if servers > most:
            message = f"Invalid 'tools': {servers} MCP servers exceed the limit of {most} (tools.mcp.per_request)."
            raise BadRequest(message, code="invalid_value", param="tools")
        beside = self._beside(request, ledger, hosted.cited)
        providers = [self._provider(one, hosted.lists, beside) for one in hosted.definitions]
        loop = PausingToolLoop if hosted.pauses else ToolLoop
        terms = ToolsetOptions(hosted.approved, hosted.max_calls, hosted.max_uses, loop, beside.sources)
        return Toolset(providers, self._settings, terms)

    def default_toolset(self, request: Request, ledger: Warnings, model: config.ModelSettings) -> Toolset | None:
        """Return the toolset that the operator offers with a model in a chat; no call needs approval."""
        labels = [label for label in model.mcp if label in self._sessions]
        options = request.rest.get(_OPTIONS) if model.web_search and self._web else None
        if request.n > 1 or not (labels or options is not None):  # each choice would need tool rounds of its own
            if labels:
                ledger.add("dropped", "tools.mcp")
            return None
        definitions = [{"type": "mcp", "server_label": label, "require_approval": "never"} for label in labels]
        searches = [] if options is None else [{"type": web_search.NAMESPACE, **options}]
        beside = self._beside(request, ledger)
        providers = [self._provider(one, {}, beside) for one in (*definitions, *searches)]
        served = frozenset() if options is None else frozenset((_OPTIONS,))
        return Toolset(
            providers, self._settings, ToolsetOptions(loop=HiddenToolLoop, sources=beside.sources, served=served)
        )

    def _beside(self, request: Request, ledger: Warnings, cited: Sequence[Any] = ()) -> ProviderContext:
        return ProviderContext(Sources(), ledger, request.messages, self._settings.result_bytes, cited)

    def _provider(
        self, definition: Definition, lists: Mapping[str, list[Definition]], beside: ProviderContext
    ) -> ToolProvider:
        if definition["type"] == "mcp":
            return self._server(definition, lists, beside.ledger)
        if namespace_of(definition) == web_search.NAMESPACE:
            assert self._web
            return WebSearchProvider(web_search.SearchScope(definition), *self._web, beside)
        assert self._files
        return FileSearchProvider(definition, self._files, beside)

    def _server(self, definition: Definition, lists: Mapping[str, list[Definition]], ledger: Warnings) -> ToolProvider:
        label, mcp = definition["server_label"], self._settings.mcp
        listed, most = lists.get(label), self._settings.result_bytes
        if url := definition.get("server_url"):
            target = ToolServer(url=url, headers=_headers(definition), guarded=True, seconds=self._settings.seconds)
            session = McpSession(target, mcp)
            return McpProvider(McpServerDefinition(definition), session, listed, ledger, most, own=True)
        for name in ("headers", "authorization"):
            if definition.get(name):
                ledger.add("dropped", f"tools.mcp.{name}")
        settings = mcp.servers[label]
        allowed = None if settings.allowed_tools is None else frozenset(settings.allowed_tools)
        server = McpServerDefinition(definition, allowed, settings.require_approval)
        return McpProvider(server, self._sessions[label], listed, ledger, most)

    async def close(self) -> None:
        """Close the sessions and clients of all configured servers."""
        lasting = [*self._sessions.values(), *(self._web or ())[:1], *filter(None, (self._files,))]
        await asyncio.gather(*(one.close() for one in lasting))


def _target(settings: config.McpServerSettings, seconds: float) -> ToolServer:
    headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
    env = {name: value.get_secret_value() for name, value in settings.env.items()}
    return ToolServer(settings.url or "", headers, settings.transport, settings.command, env, seconds=seconds)


def _headers(definition: Definition) -> dict[str, str]:
    token = definition.get("authorization")
    bearer = {"authorization": f"Bearer {token}"} if token else {}
    return {**{name: str(value) for name, value in (definition.get("headers") or {}).items()}, **bearer}
