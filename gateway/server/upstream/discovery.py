"""Find the model servers on this machine: on loopback only, all ports at once, in less than a second."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from msgspec import MsgspecError, Struct, json

from gateway.config import ConfigDocument, KindName
from gateway.server import httpx

PORTS: Mapping[int, KindName] = MappingProxyType(
    {11434: "ollama", 8000: "vllm", 8080: "llamacpp", 1234: "lmstudio", 30000: "sglang"}
)
# The `owned_by` of a listed model shows the kind of server …
_OWNERS: Mapping[str | None, KindName] = MappingProxyType(
    {"llamacpp": "llamacpp", "organization_owner": "lmstudio", "sglang": "sglang", "vllm": "vllm"}
)
# … and otherwise the path with a JSON object, and a text in it, that confirms the kind expected from the port.
_TELLTALES: Mapping[KindName, tuple[str, bytes]] = MappingProxyType(
    {
        "llamacpp": ("/props", b""),
        "lmstudio": ("/api/v0/models", b""),
        "ollama": ("/api/version", b""),
        "sglang": ("/get_server_info", b""),
        "vllm": ("/version", b""),
        "transformers": ("/openapi.json", b'"/load_model"'),
    }
)


class DiscoveredServer(Struct, frozen=True):
    """A server, and the models that it lists."""

    kind: KindName
    url: str
    models: tuple[str, ...]


class _ListedEntry(Struct):
    id: str
    owned_by: str | None = None


class _ModelList(Struct):
    data: list[_ListedEntry] | None  # Ollama sends null while it has no models


async def discover(
    ports: Mapping[int, KindName] = PORTS, *, skip: Collection[int] = (), seconds: float = 0.9
) -> list[DiscoveredServer]:
    """Return the model servers on these ports, in the order of the ports.

    A server whose list takes longer than two thirds of `seconds` is not found.  One whose kind is not confirmed in the
    rest is of kind openai.
    """
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:  # no request uses TLS
        items = [
            _ask(client, f"http://127.0.0.1:{port}", kind, seconds) for port, kind in ports.items() if port not in skip
        ]
        return [found for found in await asyncio.gather(*items) if found]


async def identify(url: str, headers: Mapping[str, str] = MappingProxyType({}), *, seconds: float = 5) -> KindName:
    """Return the kind of a server at a URL; openai if nothing shows it.  `seconds` for each of a few requests."""
    async with httpx.AsyncClient(trust_env=False, headers=headers) as client:
        answer = await _get(client, f"{url}/v1/models", seconds)
        kind = _given_away(answer, _entries(answer) or []) if answer else None
        for expected in _TELLTALES if not kind else ():
            if await _confirmed(client, url, expected, seconds):
                return expected
        return kind or "openai"


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
    answer = await _get(client, f"{url}/v1/models", seconds * 2 / 3)
    models = _entries(answer) if answer else None
    if answer is None or models is None:
        return None
    kind = _given_away(answer, models) or await _likely(client, url, expected, seconds / 3)
    return DiscoveredServer(kind, url, tuple(model.id for model in models))


def _entries(answer: "httpx.Response") -> list[_ListedEntry] | None:
    """Return the models of a list; None if the response is no such list."""
    try:
        return json.decode(answer.content, type=_ModelList).data or []
    except MsgspecError:
        return None


def _given_away(answer: "httpx.Response", models: list[_ListedEntry]) -> KindName | None:
    if answer.headers.get("server") == "llama.cpp":
        return "llamacpp"
    return next((_OWNERS[model.owned_by] for model in models if model.owned_by in _OWNERS), None)


async def _likely(client: "httpx.AsyncClient", url: str, expected: KindName, seconds: float) -> KindName:
    """Return the kind that a request confirms: the expected one, or transformers, whose default port is another's."""
    kinds: tuple[KindName, ...] = (expected, "transformers")
    confirmed = await asyncio.gather(*(_confirmed(client, url, kind, seconds) for kind in kinds))
    return next((kind for kind, is_it in zip(kinds, confirmed, strict=True) if is_it), "openai")


async def _confirmed(client: "httpx.AsyncClient", url: str, kind: KindName, seconds: float) -> bool:
    path, mark = _TELLTALES[kind]
    answer = await _get(client, url + path, seconds)
    data = answer.content if answer else b""
    try:
        json.decode(data, type=dict[str, object])
    except MsgspecError:
        return False
    return mark in data


async def _get(client: "httpx.AsyncClient", url: str, seconds: float) -> "httpx.Response | None":
    """Return the whole response if it is successful and arrives in time, else None."""
    try:
        async with asyncio.timeout(seconds):
            answer = await client.get(url)
    except (httpx.HTTPError, TimeoutError):
        return None
    return answer if answer.is_success else None
