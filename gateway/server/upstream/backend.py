"""One backend at run time: its kind, its connections, and the models that it lists."""

import asyncio
import time
from collections.abc import Callable, Mapping
from copy import copy
from math import inf
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway import config
from gateway.backends import KINDS, Kind
from gateway.backends.dialects import DIALECTS, Dialect
from gateway.backends.ignored_fields import services_with_ignored_fields, with_ignored_fields
from gateway.backends.kinds import ROWS
from gateway.backends.model_metadata import context_length_of_entry
from gateway.errors import GatewayError, Problem, UpstreamUnreachable
from gateway.server import httpx
from gateway.server.upstream import ConnectionPool
from gateway.server.upstream.failure_text import end_sentence, failure_text, status_text
from gateway.server.upstream.model_metadata import MetadataCache
from gateway.server.upstream.slots import BackendLimiter

_LIST_SECONDS = 5.0  # timeout of the list of models; only the first request of a model waits for it
_FRESH_SECONDS = 10.0  # a list this young is not requested again …
_SOON_SECONDS = 1.0  # … nor this young by a request for a model that it lacks: the server may just have loaded it
_COUNT_SECONDS = 10.0  # timeout for counting the tokens of a prompt
_LISTS = ("data", "models")  # the names of lists of models
_OUT_OF_ORDER = (502, 503, 504)
_JSON = {"content-type": "application/json"}


class ListedModel(Struct, frozen=True):
    """A model in a backend's own list; `created` in Unix seconds."""

    id: str
    created: int = 0
    root: str = ""  # the model's name at its source, such as a Hugging Face repository
    window: int | None = None  # context length in tokens


class BackendTimeouts(Struct, frozen=True):
    """Seconds for the whole response, for its first byte, and between two reads; infinite for no limit."""

    total: float
    first_byte: float
    idle: float


class Backend:
    """A configured model server.

    workers: processes that share its concurrency limit.
    clock: seconds.
    failed: called after a failed attempt with its problem.
    """

    def __init__(
        self,
        name: str,
        settings: config.BackendSettings,
        workers: int = 1,
        clock: Callable[[], float] = time.monotonic,
        failed: Callable[[Problem], None] = lambda _: None,
    ) -> None:
        self.name, self.settings, self.failed = name, settings, failed
        times = settings.timeouts  # as floats: Python adds those of one type at once
        self.timeouts = BackendTimeouts(*(float(limit) or inf for limit in (times.total, times.first_byte, times.idle)))
        concurrent = max(1, settings.concurrent // workers) if settings.concurrent else 0
        self.limiter, self.probe_seconds = BackendLimiter(name, concurrent, settings.queue), settings.probe_seconds
        self.kind: Kind = with_ignored_fields(KINDS[settings.kind], settings.ignores)
        self.unparsed = self.kind.without_parsers()  # for models whose text the gateway parses
        self.dialect, self.services = (
            DIALECTS[self.kind.dialect],
            services_with_ignored_fields(ROWS[settings.kind].services, settings.ignores),
        )
        self.default_start, self.default_tag = ROWS[settings.kind].default_start, ROWS[settings.kind].default_tag
        self._headers = auth_headers(settings)
        idle = settings.idle_connections
        self._pool = ConnectionPool(
            settings.root, connect=times.connect, idle_connections=idle, reused=times.reused, headers=self._headers,
            without=settings.unused_version,
        )  # fmt: skip
        self.post, self.upload, self.tls = self._pool.post, self._pool.upload, self._pool.tls
        self._http: httpx.AsyncClient | None = None
        self._opening = asyncio.Lock()
        self.metadata_cache = MetadataCache(self._http_client, settings.kind)
        self._key = settings.api_key.get_secret_value().encode() if settings.api_key else b""
        self._clock = clock
        self.listed: dict[str, ListedModel] | None = None  # of the last list, by their ids; None once it is outdated
        self._last_models: dict[str, ListedModel] | None = None  # the same, also if it is outdated
        self._problem: GatewayError | None = None
        self._listed_at = float("-inf")
        self._refresh_task: asyncio.Task[None] | None = None  # reads the list

    async def count(self, body: bytes, headers: Mapping[str, str]) -> int | None:
        """Return the tokens of the prompt in this request body; None if the server does not count or fails.

        headers: those of the client that the server gets.
        """
        if not (counter := self.kind.counter):
            return None
        try:
            http = await self._http_client()
            response = await http.post(
                counter.path, content=counter.body(body), headers={**_JSON, **headers}, timeout=_COUNT_SECONDS
            )
            response.raise_for_status()
            count = response.json()[counter.field]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None
        return count if isinstance(count, int) else None

    async def models(self) -> list[ListedModel]:
        """Return the backend's list of models, at most ten seconds old or, while requests for it fail, the last one.

        A caller that is cancelled does not stop the request: the next one has its list.  Raises UpstreamUnreachable if
        the backend never gave a list.
        """
        await asyncio.shield(self._refreshing(_FRESH_SECONDS))
        if self.listed is None and self._problem:
            raise copy(self._problem)  # a raise would add its frames to the kept error, and so keep the request
        return self.last_list()

    def read_list_soon(self) -> None:
        """Begin to read the list, unless it was read within the last second, or a request for it has just failed."""
        self._refreshing(_FRESH_SECONDS if self._problem else _SOON_SECONDS)

    def _refreshing(self, seconds: float) -> asyncio.Task[None]:
        """Return the task that reads the list unless it is younger than this; callers share one."""
        if self._refresh_task is None or self._refresh_task.done():
            self._refresh_task = asyncio.create_task(self._refresh(seconds))
        return self._refresh_task

    def last_list(self) -> list[ListedModel]:
        """Return the models of the last list, without a request."""
        return [*(self.listed or {}).values()]

    async def _refresh(self, seconds: float) -> None:
        if self._clock() - self._listed_at > seconds:
            listed, self._problem = await self._list()
            if listed is not None:
                self._last_models = {one.id: one for one in listed}
            self.listed = self._last_models
            self._listed_at = self._clock()

    def doubt_list(self) -> None:
        """Have the list read again, unless it is young, because the server lacks a model that it listed."""
        if self._clock() - self._listed_at > _FRESH_SECONDS:
            self.listed = None

    def lists_model(self, model: str) -> bool:
        """Return True if the last list has the model."""
        return model in (self.listed or ())

    def listed_window(self, model: str) -> int | None:
        """Return the context length in tokens from the last list; None if unknown."""
        listed = self.listed.get(model) if self.listed else None
        return listed.window if listed else None

    async def alive(self) -> bool:
        """Return True for any HTTP response but 502, 503 or 504."""
        try:
            response = await (await self._http_client()).get(self.settings.path_of(self.dialect.models))
        except httpx.HTTPError:
            return False
        return response.status_code not in _OUT_OF_ORDER

    def mask_key(self, data: bytes) -> bytes:
        """Replace the backend's API key in the data: some servers repeat it when they reject it."""
        return data.replace(self._key, b"...") if self._key else data

    def mask_problem(self, problem: Problem) -> Problem:
        """Return the problem with the backend's API key masked in its message."""
        return replace(problem, message=self.mask_key(problem.message.encode()).decode())

    async def close(self) -> None:
        """Close all connections and stop the requests for the list and the metadata."""
        await self._pool.close()
        await self.metadata_cache.close()
        if self._refresh_task:
            self._refresh_task.cancel()
            await asyncio.wait([self._refresh_task])
        if self._http:
            await self._http.aclose()

    async def _http_client(self) -> "httpx.AsyncClient":
        """Return the httpx client, for all but model responses.

        A thread creates it, as importing httpx and reading certificates would block the event loop.
        """
        async with self._opening:
            if not self._http:
                self._http = await asyncio.to_thread(self._new_http_client)
            return self._http

    def _new_http_client(self) -> "httpx.AsyncClient":
        """Return the client, which follows no redirects."""
        url = self.settings.root
        encrypted = not url.startswith("http:")  # reading the trusted certificates takes 0.02 s and 3 MB
        return httpx.AsyncClient(
            base_url=url, headers=self._headers, timeout=_LIST_SECONDS, trust_env=False, verify=encrypted
        )

    async def _list(self) -> tuple[list[ListedModel] | None, GatewayError | None]:
        try:
            response = await (await self._http_client()).get(self.settings.path_of(self.dialect.models))
            response.raise_for_status()
            return listed_models(response.json()) or [], None
        except httpx.HTTPStatusError as error:
            failed = error.response
            why = status_text(failed.status_code, self.name, self.settings, failed.headers.get("location", ""))
        except (httpx.HTTPError, ValueError) as error:
            why = failure_text(error, self.name, self.settings, _LIST_SECONDS)
        return None, UpstreamUnreachable(f"Backend '{self.name}' did not list its models: {end_sentence(why)}")


def auth_headers(settings: config.BackendSettings) -> dict[str, str]:
    """Return the headers of all requests to the backend, which hold its API key."""
    key = settings.api_key.get_secret_value() if settings.api_key else ""
    return {**backend_dialect(settings).headers(key)}


def backend_dialect(settings: config.BackendSettings) -> Dialect:
    """Return the chat API of the backend."""
    return DIALECTS[KINDS[settings.kind].dialect]


def listed_models(body: Any) -> list[ListedModel] | None:  # noqa: ANN401 - decoded JSON
    """Return the models in a list of models, in any of the forms that servers use; None if it is no list.

    Together has the entries alone, other servers have them as `models`, each with a `name`.  Ollama sends null while it
    has no models.
    """
    if isinstance(body, dict) and (name := next((name for name in _LISTS if name in body), None)):
        body = body[name] or []
    return [*map(_listed_model, filter(_is_named, body))] if isinstance(body, list) else None


def _is_named(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("id", entry.get("name")), str)


def _listed_model(entry: dict[str, Any]) -> ListedModel:
    created, root = entry.get("created"), entry.get("root")
    created = created if isinstance(created, int) else 0
    name = entry.get("id", entry.get("name", ""))
    return ListedModel(name, created, root if isinstance(root, str) else "", context_length_of_entry(entry))
