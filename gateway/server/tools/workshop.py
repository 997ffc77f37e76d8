"""What the gateway can run, whoever asks for it."""

import asyncio
import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from gateway import config
from gateway.endpoints.responses import Hosted, Runs
from gateway.hosted import Unseen
from gateway.hosted.mcp import Server
from gateway.ledger import Ledger
from gateway.server.tools.mcp import McpProvider
from gateway.server.tools.sessions import Session
from gateway.server.tools.target import Target
from gateway.server.tools.toolbox import Provider, Toolbox

_log = logging.getLogger("gateway")
_PACKAGE = "mcp"

Definition = dict[str, Any]


class Workshop:
    """package: the one that speaks with servers."""

    def __init__(self, settings: config.Tools, package: str = _PACKAGE) -> None:
        self._settings, mcp = settings, settings.mcp
        wanted = bool(mcp.servers or mcp.hosts)
        there = wanted and find_spec(package) is not None
        if wanted and not there:
            _log.warning("tools.mcp needs the package %r: pip install 'gateway[mcp]'", package)
        self._sessions = {label: Session(_target(said), mcp) for label, said in mcp.servers.items()} if there else {}
        self._hosts = [host.lower() for host in mcp.hosts] if there else []
        self._there = there

    @property
    def runs(self) -> Runs | None:
        """Whether a tool that a client names can be run here; None: there is nothing that could."""
        return self._runs if self._there else None

    def _runs(self, definition: Definition) -> bool:
        if definition["type"] != "mcp":
            return False
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

    def box(self, hosted: Hosted, ledger: Ledger) -> Toolbox | None:
        """Of what a client asks to be run here."""
        if not (hosted.definitions or hosted.approved):
            return None
        providers = [self._provider(one, hosted.lists, ledger) for one in hosted.definitions]
        return Toolbox(providers, self._settings, hosted.approved, hosted.most)

    def standing(self, ledger: Ledger, model: config.Model) -> Toolbox | None:
        """Of what the operator offers with a model; nobody is asked to approve anything."""
        labels = [label for label in model.mcp if label in self._sessions]
        if not labels:
            return None
        definitions = [{"type": "mcp", "server_label": label, "require_approval": "never"} for label in labels]
        return Toolbox([self._provider(one, {}, ledger) for one in definitions], self._settings, loop=Unseen)

    def _provider(self, definition: Definition, lists: Mapping[str, list[Definition]], ledger: Ledger) -> Provider:
        label, mcp = definition["server_label"], self._settings.mcp
        listed, most = lists.get(label), self._settings.result_bytes
        if url := definition.get("server_url"):
            session = Session(Target(url=url, headers=_headers(definition), guarded=True), mcp)
            return McpProvider(Server(definition), session, listed, ledger, most, own=True)
        for name in ("headers", "authorization"):
            if definition.get(name):
                ledger.note("dropped", f"tools.mcp.{name}")
        said = mcp.servers[label]
        allowed = None if said.allowed_tools is None else frozenset(said.allowed_tools)
        server = Server(definition, allowed, said.require_approval)
        return McpProvider(server, self._sessions[label], listed, ledger, most)

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self._sessions.values()))


def _target(said: config.McpServer) -> Target:
    headers = {name: value.get_secret_value() for name, value in said.headers.items()}
    env = {name: value.get_secret_value() for name, value in said.env.items()}
    return Target(said.url or "", headers, said.transport, said.command, env)


def _headers(definition: Definition) -> dict[str, str]:
    token = definition.get("authorization")
    bearer = {"authorization": f"Bearer {token}"} if token else {}
    return {**{name: str(value) for name, value in (definition.get("headers") or {}).items()}, **bearer}
