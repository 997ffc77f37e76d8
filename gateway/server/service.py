"""Relay requests that a backend answers in one JSON body: embeddings, ranks, tokens."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Protocol

from fastapi import FastAPI, Request
from msgspec import DecodeError
from msgspec.structs import replace
from starlette.responses import Response

from gateway.backends.openai.failures import problem_from_error_object
from gateway.backends.services import BackendServices
from gateway.config import ApiKey, Config
from gateway.endpoints.counts import Counts
from gateway.errors import BadRequest, GatewayError, UpstreamFailed, UpstreamInvalid
from gateway.events import Usage
from gateway.formats.chosen import FormatChoice
from gateway.framing import BodyBuffer
from gateway.ledger import Warnings
from gateway.server import heads
from gateway.server.admission import QueueIdentity
from gateway.server.apart import parsed
from gateway.server.auth import Authenticator, require_model
from gateway.server.backend import Backend
from gateway.server.body import counts_of, read_body, room_of
from gateway.server.call import HttpUpstreamCall
from gateway.server.directory import BackendRoute, ModelRegistry
from gateway.server.json import JsonBytesResponse
from gateway.server.limiting import RateLimiter, RateLimitPermit
from gateway.server.presence import CancelOnDisconnect
from gateway.server.telemetry.observation import record_of
from gateway.server.ways import RetryPolicy
from gateway.upstream import estimate_tokens_from_characters

_MOST = 256 << 20  # bytes of an answer: 2048 vectors of 4096 numbers, written out
_LARGE = 1 << 20  # bytes of one that keeps everybody waiting for more than a few milliseconds: thousands of vectors
_CHOSEN = FormatChoice("native", "there is no text to parse")


class ServiceRequest(Protocol):
    """A question for a model that is one request of a backend.

    does: what the model would do for it; place: the parameter that the model reads.
    ask: where to put what, None where the kind has no such service; raises BadRequest.
    decode: reads what the backend said; raises a DecodeError.
    answer: what the client gets for that; raises UpstreamInvalid.
    """

    @property
    def does(self) -> str: ...
    @property
    def place(self) -> str: ...
    @property
    def model(self) -> str: ...
    def ask(self, services: BackendServices, model: str, ledger: Warnings) -> tuple[str, bytes] | None: ...
    def decode(self, raw: bytes) -> Any: ...  # noqa: ANN401 - decoded JSON
    def answer(self, said: Any, ledger: Warnings) -> dict[str, Any]: ...  # noqa: ANN401 - decoded JSON


class ServiceEndpoint:
    """Answers POST requests; `parse` makes a question of a body."""

    def __init__(
        self, app: FastAPI, config: Config, door: Authenticator, parse: Callable[[bytes, Counts], ServiceRequest]
    ) -> None:
        self._app, self._config, self._door, self._parse = app, config, door, parse

    async def answer(self, http: Request) -> Response:
        key = await self._door.admit(http)
        with room_of(http, self._config) as room:
            return await self._put(http, key, await read_body(http, self._config.limits.body_bytes, room))

    async def _put(self, http: Request, key: ApiKey | None, body: bytes) -> Response:
        put = await parsed(self._parse, body, counts_of(self._config))
        directory: ModelRegistry = self._app.state.directory
        served = await directory.find(put.model)
        record_of(http.scope).model = served.model
        require_model(key, put.model, served.model)
        limits: RateLimiter = self._app.state.limits
        grant = (
            await limits.admit(key, served.model, served.settings, partial(estimate_tokens_from_characters, len(body)))
            or RateLimitPermit()
        )
        async with grant:
            with CancelOnDisconnect(http.receive), _placed(put.place):
                return await self._first_answer(http, put, RetryPolicy(served, key, faithful=True), grant)
        return Response()  # the client has left

    async def _first_answer(
        self, http: Request, put: ServiceRequest, ways: RetryPolicy, grant: RateLimitPermit
    ) -> Response:
        """Of the backends that are asked one after another; raises what the last one failed with."""
        way = ways.first()
        while True:
            await asyncio.sleep(way.pause)
            try:
                return await _answered(http, put, way.route, ways.asker, grant)
            except GatewayError as error:
                if not (another := ways.another(error.problem, error.retry_after)):
                    raise
                way = another


async def _answered(
    http: Request, put: ServiceRequest, route: BackendRoute, asker: QueueIdentity, grant: RateLimitPermit
) -> Response:
    ledger, seen = Warnings(), record_of(http.scope)
    ask = put.ask(route.backend.services, route.upstream_model, ledger)
    if not ask:
        raise _unsupported(route, put.does)
    heads.reject_if_strict(heads.strict_route(http, route), ledger.entries())
    seen.ledger = ledger
    seen.put(route.model, route.backend.name, "")
    if seen.trace:
        seen.trace.model = route.upstream_model

    def respond(raw: bytes) -> Response:
        said = put.answer(_decoded(route.backend, put.decode, raw), ledger)
        used = said.get("usage", {}).get("total_tokens", 0)
        grant.used, seen.spent = (lambda: used), (lambda: Usage(used, 0))
        return JsonBytesResponse(said, headers={**heads.gateway_headers(http, route, _CHOSEN, ledger), **grant.headers})

    path, body = ask
    with closing(HttpUpstreamCall(route.backend, body, lambda _: None, path, asker, seen)) as call:
        raw = await _read(call)
        try:
            response = respond(raw) if len(raw) < _LARGE else await asyncio.to_thread(respond, raw)
        except GatewayError as error:
            call.judge(error.problem)
            raise
        call.judge(None)
    return response


def _unsupported(route: BackendRoute, what: str) -> BadRequest:
    message = f"The model '{route.model}' cannot {what}: its backend '{route.backend.name}' has no endpoint for that."
    return BadRequest(message, code="unsupported_value", param="model")


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Give errors of the request the path `place`."""
    try:
        yield
    except UpstreamFailed as error:
        if error.problem.param == "messages":
            error.problem = replace(error.problem, param=place)
        raise


def _decoded(backend: Backend, decode: Callable[[bytes], Any], raw: bytes) -> Any:  # noqa: ANN401 - decoded JSON
    try:
        said = decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamInvalid(f"The backend '{backend.name}' gave an answer that cannot be read: {error}.") from None
    if isinstance(said, dict) and said.get("error"):
        raise UpstreamFailed(backend.discreet(problem_from_error_object(said["error"])))
    return said


async def _read(call: HttpUpstreamCall) -> bytes:
    whole = BodyBuffer(_MOST)
    while await call.ready() and (data := call.read()):
        whole.keep(data)
    return whole.close()
