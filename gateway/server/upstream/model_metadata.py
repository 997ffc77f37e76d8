"""Query servers for metadata of their models, and cache the results: see backends/model_metadata.py.

A request uses a cached result of any age.  Without one it waits for a limited time.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import reduce
from math import inf
from operator import or_
from typing import Any, TypeVar

from msgspec import Struct, json

from gateway.backends.kinds import ROWS
from gateway.backends.model_metadata import (
    MetadataByModel,
    MetadataQuery,
    ModelMetadata,
    TemplateSettings,
)
from gateway.server import httpx

_WAIT = 1.0  # seconds that a request waits for a result …
_LONG_WAIT = 5.0  # … and for one that decides how the model's text is read
_SECONDS = 5.0  # timeout of a query; its result is cached even if no request waits any more
_AGAIN_SECONDS = 30.0  # seconds until a failed query is repeated
_MAX = 256  # cached results
_NONE = float("-inf"), None
_NO_SETTINGS: TemplateSettings = {}
_Found = TypeVar("_Found")
_Key = tuple[str, bytes]  # path, and the parameters as JSON


class LearnedMetadata(Struct, frozen=True):
    """A cached result for one model: path and `fields`, the parameters as JSON, identify the query."""

    path: str
    fields: str
    found: ModelMetadata | str | bool


class MetadataCache:
    """The metadata of the models of one server.

    http: returns the client for queries; kind: of the backend; clock: seconds.
    """

    def __init__(
        self, http: Callable[[], Awaitable["httpx.AsyncClient"]], kind: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._http, self._queries, self._clock = http, ROWS[kind].metadata, clock
        self._results: dict[_Key, tuple[float, Any]] = {}  # each with the time at which it expires
        self._running: dict[_Key, asyncio.Task[None]] = {}

    async def metadata_of(self, model: str) -> ModelMetadata:
        """Return the server's metadata of a model."""
        return _of(model, await self._query(self._queries.models, model, seconds=_WAIT))

    def known_metadata(self, model: str) -> ModelMetadata:
        """Return the cached metadata of a model, without querying the server."""
        keys = [_key(query, model, _NO_SETTINGS) for query in self._queries.models]
        return _of(model, [result for key in keys if (result := self._result(key)) is not None])

    async def chat_template(self, model: str) -> str | None:
        """Return the chat template; None if the server does not show it."""
        queries = [query] if (query := self._queries.template) else []
        return _of(model, await self._query(queries, model, seconds=_LONG_WAIT)).template

    async def rendered_prompt(self, model: str, settings: TemplateSettings) -> str | None:
        """Return the prompt of a request up to the beginning of the response; None if the server does not render it."""
        queries = [query] if (query := self._queries.prompt) else []
        return next(iter(await self._query(queries, model, settings, seconds=_LONG_WAIT)), None)

    async def continues_messages(self, model: str) -> bool:
        """Return whether a response continues its prefill; True if the server does not show it."""
        queries = [query] if (query := self._queries.continues) else []
        items: list[bool] = await self._query(queries, model, seconds=_LONG_WAIT)
        return all(items)

    def cached_metadata(self, model: str) -> list[LearnedMetadata]:
        """Return the cached results for a model, for `remember`."""
        known = ((path, fields, _found(model, fields, found)) for (path, fields), (_, found) in self._results.items())
        return [LearnedMetadata(path, fields.decode(), found) for path, fields, found in known if found is not None]

    def remember(self, learned: Iterable[LearnedMetadata]) -> None:
        """Cache these results without expiry."""
        for one in learned:
            found = {"": one.found} if isinstance(one.found, ModelMetadata) else one.found
            self._results[one.path, one.fields.encode()] = inf, found

    async def close(self) -> None:
        """Cancel running queries."""
        running = [*self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _query(
        self,
        queries: Sequence[MetadataQuery[_Found]],
        model: str,
        settings: TemplateSettings = _NO_SETTINGS,
        *,
        seconds: float,
    ) -> list[_Found]:
        """Return the results that exist after at most `seconds`."""
        keys = [self._refreshed(query, model, settings) for query in queries]
        awaited = [self._running[key] for key in keys if key in self._running and self._result(key) is None]
        if awaited:
            await asyncio.wait(awaited, timeout=seconds)
        return [result for key in keys if (result := self._result(key)) is not None]

    def _result(self, key: _Key) -> Any:  # noqa: ANN401 - of the query's own type
        return self._results.get(key, _NONE)[1]

    def _refreshed(self, query: MetadataQuery[Any], model: str, settings: TemplateSettings) -> _Key:
        """Start the query, unless a valid result or a running query exists; return its key."""
        key, fields = _key(query, model, settings), query.fields(model, settings)
        if self._clock() >= self._results.get(key, _NONE)[0] and key not in self._running:
            self._running[key] = task = asyncio.create_task(self._learn(query, fields, key))
            task.add_done_callback(lambda _: self._running.pop(key))
        return key

    async def _learn(self, query: MetadataQuery[Any], fields: Mapping[str, Any], key: _Key) -> None:
        if len(self._results) >= _MAX:
            self._results.clear()
        found = await self._request(query, fields)
        seconds = _AGAIN_SECONDS if found is None else query.seconds
        self._results[key] = self._clock() + seconds, self._result(key) if found is None else found

    async def _request(self, query: MetadataQuery[_Found], fields: Mapping[str, Any]) -> _Found | None:
        """Return the result; None if the request fails or its response cannot be read."""
        params, body = (fields or None, None) if query.method == "GET" else (None, fields)
        try:
            http = await self._http()
            response = await http.request(query.method, query.path, params=params, json=body, timeout=_SECONDS)
            response.raise_for_status()
            return query.read(response.json())
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
            return None


def _key(query: MetadataQuery[Any], model: str, settings: TemplateSettings) -> _Key:
    return query.path, json.encode(query.fields(model, settings))


def _found(model: str, fields: bytes, result: Any) -> ModelMetadata | str | bool | None:  # noqa: ANN401 - as above
    if json.decode(fields).get("model", model) != model:
        return None
    found: ModelMetadata | str | bool | None = _of(model, [result]) if isinstance(result, Mapping) else result
    return found


def _of(model: str, items: Sequence[MetadataByModel]) -> ModelMetadata:
    return reduce(or_, (result.get("") or result.get(model) or ModelMetadata() for result in items), ModelMetadata())
