"""Which model servers run on this machine: asked on loopback only, all ports at once, in less than a second."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from msgspec import MsgspecError, Struct, json

from gateway.config import ConfigDocument, KindName
from gateway.server import httpx

PORTS: Mapping[int, KindName] = MappingProxyType(
    {11434: "ollama", 8000: "vllm", 8080: "llamacpp", 1234: "lmstudio", 30000: "sglang"}
)
# What a list of models gives away of its server …
_OWNERS: Mapping[str | None, KindName] = MappingProxyType(
    {"llamacpp": "llamacpp", "organization_owner": "lmstudio", "sglang": "sglang", "vllm": "vllm"}
)
# … and else the path that answers with an object, and what is in that, if the server is what its port suggests.
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
    data: list[_ListedEntry] | None  # Ollama says null while it has none


async def discover(
    ports: Mapping[int, KindName] = PORTS, *, skip: Collection[int] = (), seconds: float = 0.9
) -> list[DiscoveredServer]:
    """The model servers on these ports, in their order; one that takes longer is not found, or is of kind openai."""
    async with httpx.AsyncClient(trust_env=False, verify=False) as client:  # TLS is not asked for
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
    """Return the configuration of these servers as an operator would write it; `taken` are other names."""
    backends: dict[str, object] = {}
    for server in found:
        again = server.kind in backends or server.kind in taken
        name = f"{server.kind}-{server.url.rpartition(':')[2]}" if again else server.kind
        backends[name] = {"kind": server.kind, "url": server.url}
    return ConfigDocument("found on this machine", {"backends": backends})


async def _ask(client: "httpx.AsyncClient", url: str, expected: KindName, seconds: float) -> DiscoveredServer | None:
    """Two thirds of the time are for the list of models, one for the tell-tale."""
    answer = await _get(client, f"{url}/v1/models", seconds * 2 / 3)
    models = _entries(answer) if answer else None
    if answer is None or models is None:
        return None
    kind = _given_away(answer, models) or await _likely(client, url, expected, seconds / 3)
    return DiscoveredServer(kind, url, tuple(model.id for model in models))


def _entries(answer: "httpx.Response") -> list[_ListedEntry] | None:
    """The models of a list; None if it is no such list."""
    try:
        return json.decode(answer.content, type=_ModelList).data or []
    except MsgspecError:
        return None


def _given_away(answer: "httpx.Response", models: list[_ListedEntry]) -> KindName | None:
    if answer.headers.get("server") == "llama.cpp":
        return "llamacpp"
    return next((_OWNERS[model.owned_by] for model in models if model.owned_by in _OWNERS), None)


async def _likely(client: "httpx.AsyncClient", url: str, expected: KindName, seconds: float) -> KindName:
    """The kind whose port it is; transformers has that of another by default."""
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
    """The whole answer if it is a good one and comes in time."""
    try:
        async with asyncio.timeout(seconds):
            answer = await client.get(url)
    except (httpx.HTTPError, TimeoutError):
        return None
    return answer if answer.is_success else None
