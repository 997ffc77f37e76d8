"""Find the model servers on this machine: on loopback only, all ports at once, in less than a second."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from msgspec import MsgspecError, Struct, json

from gateway.backends.dialects import anthropic_headers
from gateway.backends.kind_row import DiscoverySigns
from gateway.backends.kinds import ROWS
from gateway.config import BackendSettings, ConfigDocument, KindName
from gateway.server import httpx
from gateway.server.upstream.failure_text import failure_text, status_text

_SIGNS: Mapping[KindName, DiscoverySigns] = MappingProxyType({name: row.signs for name, row in ROWS.items()})
PORTS: Mapping[int, KindName] = MappingProxyType({signs.port: kind for kind, signs in _SIGNS.items() if signs.port})
# The `owned_by` of a listed model shows the kind of server, as does the header `server` …
_OWNERS: Mapping[str | None, KindName] = MappingProxyType(
    {signs.owner: kind for kind, signs in _SIGNS.items() if signs.owner}
)
_HEADERS: Mapping[str | None, KindName] = MappingProxyType(
    {signs.server: kind for kind, signs in _SIGNS.items() if signs.server}
)
# … and otherwise the path with a JSON object, and a text in it, that confirms the kind expected from the port.
_TELLTALES: Mapping[KindName, tuple[str, bytes]] = MappingProxyType(
    {kind: (signs.path, signs.mark) for kind, signs in sorted(_SIGNS.items()) if signs.path}
)
_PORTLESS = tuple(kind for kind in _TELLTALES if kind not in PORTS.values())  # their default port is another kind's
SECONDS = 0.9  # for all that a server on this machine is asked
_MODELS, _CHAT, _MESSAGES = "/v1/models", "/v1/chat/completions", "/v1/messages"
_ABSENT = (404, 405)  # statuses of a path that a server lacks
_UNUSABLE = (401, 403, 502, 503, 504)  # statuses of a server that needs an API key, is loading, or is overloaded


class DiscoveredServer(Struct, frozen=True):
    """A server, and the models that it lists; problem: why it lists none, "" for a server that may have none yet."""

    kind: KindName
    url: str
    models: tuple[str, ...]
    problem: str = ""


class _ListedEntry(Struct):
    """An entry of a model list; the Messages API gives it a `type`, other APIs an `object`."""

    id: str
    owned_by: str | None = None
    object: Any = None
    type: Any = None


class _ModelList(Struct):
    data: list[_ListedEntry] | None  # Ollama sends null while it has no models


async def discover(
    ports: Mapping[int, KindName] = PORTS, *, skip: Collection[int] = (), seconds: float | None = None
) -> list[DiscoveredServer]:
    """Return the model servers on these ports, in the order of the ports.  seconds: SECONDS by default.

    A server whose list takes longer than two thirds of `seconds`, that needs an API key or that is loading has a
    problem.  One whose kind is not confirmed in the rest is of kind openai.  A server of the Messages API may take the
    time for its list twice.
    """
    limit = SECONDS if seconds is None else seconds
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:  # no request uses TLS
        items = [
            _ask(client, f"http://127.0.0.1:{port}", kind, limit) for port, kind in ports.items() if port not in skip
        ]
        return [found for found in await asyncio.gather(*items) if found]


async def identify(url: str, headers: Mapping[str, str] = MappingProxyType({}), *, seconds: float = 5) -> KindName:
    """Return the kind of a server at a URL; openai if nothing shows it.  `seconds` for each of a few requests."""
    async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
        response = await _request(client, "GET", url + _MODELS, seconds)
        if kind := _given_away(response) if response else None:
            return kind
        for expected in _TELLTALES:
            if await _confirmed(client, url, expected, seconds):
                return expected
        return await _by_endpoints(client, url, seconds)


def discovered_config(found: Iterable[DiscoveredServer], taken: Collection[str] = ()) -> ConfigDocument:
    """Return the configuration of these servers as an operator would write it.

    taken: the names that other backends have already.
    """
    backends: dict[str, object] = {}
    for server in found:
        again = server.kind in backends or server.kind in taken
        name = f"{server.kind}-{server.url.rpartition(':')[2]}" if again else server.kind
        backends[name] = {"kind": server.kind, "url": server.url}
    return ConfigDocument("found on this machine", {"backends": backends})


async def _ask(client: "httpx.AsyncClient", url: str, expected: KindName, seconds: float) -> DiscoveredServer | None:
    """Return the server at a URL; None without a server.

    The list of models may take two thirds of the time, the confirmation of the kind one third.
    """
    settings, limit = BackendSettings(kind=expected, url=url), seconds * 2 / 3
    try:
        response = await _list(client, url, limit)
    except TimeoutError as error:
        return DiscoveredServer(expected, url, (), failure_text(error, expected, settings, round(limit, 1)))
    if response is None:
        return None
    if response.status_code in _UNUSABLE and _object(response) is not None:
        kind = _given_away(response) or expected
        return DiscoveredServer(kind, url, (), status_text(response.status_code, kind, settings))
    models = _entries(response) if response.is_success else None
    if models is None:
        return None
    kind = _given_away(response) or await _likely(client, url, expected, seconds / 3)
    return DiscoveredServer(kind, url, tuple(model.id for model in models))


async def _list(client: "httpx.AsyncClient", url: str, seconds: float) -> "httpx.Response | None":
    """Return the response to a request for the models; a server of the Messages API is asked in its version.

    Raises TimeoutError.
    """
    response = await _timed_request(client, "GET", url + _MODELS, seconds)
    if response and _is_messages_error(response):
        return await _timed_request(client, "GET", url + _MODELS, seconds, anthropic_headers(""))
    return response


def _entries(response: "httpx.Response") -> list[_ListedEntry] | None:
    """Return the models of a list; None if the response is no such list."""
    try:
        return json.decode(response.content, type=_ModelList).data or []
    except MsgspecError:
        return None


def _given_away(response: "httpx.Response") -> KindName | None:
    """Return the kind that the response to a request for the models shows; None if it shows none."""
    if kind := _HEADERS.get(response.headers.get("server")):
        return kind
    models = (_entries(response) or []) if response.is_success else []
    if _is_messages_error(response) or any(model.type == "model" and not model.object for model in models):
        return "anthropic"
    return next((_OWNERS[model.owned_by] for model in models if model.owned_by in _OWNERS), None)


async def _likely(client: "httpx.AsyncClient", url: str, expected: KindName, seconds: float) -> KindName:
    """Return the kind that a request confirms: the expected one, or one whose default port is another's."""
    kinds: tuple[KindName, ...] = (expected, *_PORTLESS)
    confirmed, other = await asyncio.gather(
        asyncio.gather(*(_confirmed(client, url, kind, seconds) for kind in kinds)), _by_endpoints(client, url, seconds)
    )
    return next((kind for kind, is_it in zip(kinds, confirmed, strict=True) if is_it), other)


async def _confirmed(client: "httpx.AsyncClient", url: str, kind: KindName, seconds: float) -> bool:
    path, mark = _TELLTALES[kind]
    response = await _request(client, "GET", url + path, seconds)
    return response is not None and response.is_success and _object(response) is not None and mark in response.content


async def _by_endpoints(client: "httpx.AsyncClient", url: str, seconds: float) -> KindName:
    """Return `anthropic` for a server that refuses an empty message in the API's form, and lacks chat completions."""
    message, chat = await asyncio.gather(
        *(_request(client, "POST", url + path, seconds) for path in (_MESSAGES, _CHAT))
    )
    speaks = message is not None and _is_messages_error(message)
    return "anthropic" if speaks and chat is not None and chat.status_code in _ABSENT else "openai"


def _is_messages_error(response: "httpx.Response") -> bool:
    """Return True for an error in the form of the Messages API."""
    body = _object(response) if response.is_error else None
    return body is not None and body.get("type") == "error" and isinstance(body.get("error"), dict)


def _object(response: "httpx.Response") -> dict[str, object] | None:
    """Return the JSON object of a response; None if it has none."""
    try:
        return json.decode(response.content, type=dict[str, object])
    except MsgspecError:
        return None


async def _request(client: "httpx.AsyncClient", method: str, url: str, seconds: float) -> "httpx.Response | None":
    """Return the whole response if it arrives in time, else None; a POST has an empty object."""
    with suppress(TimeoutError):
        return await _timed_request(client, method, url, seconds)
    return None


async def _timed_request(
    client: "httpx.AsyncClient",
    method: str,
    url: str,
    seconds: float,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> "httpx.Response | None":
    """Return the whole response, None without one; a POST has an empty object.  Raises TimeoutError."""
    content = b"{}" if method == "POST" else None
    headers = {**headers, "content-type": "application/json"} if content else headers
    try:
        async with asyncio.timeout(seconds):
            return await client.request(method, url, content=content, headers=headers)
    except httpx.HTTPError:
        return None
