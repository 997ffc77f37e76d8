"""Serve rerank, tokenize, detokenize and the like: each request is one upstream request, in JSON."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, closing, contextmanager
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from fastapi import APIRouter, Request
from msgspec import DecodeError, Struct
from msgspec.structs import replace
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gateway.api import rerank
from gateway.api.body import Counts
from gateway.api.embeddings import LARGE
from gateway.api.named_models import models_in_fields
from gateway.api.responses.objects import encode
from gateway.api.tokenize import parse_detokenize, parse_tokenize
from gateway.backends.openai.error_mapping import problem_from_error_object
from gateway.backends.openai.usage import estimate_tokens_from_characters
from gateway.backends.services import BackendServices
from gateway.config import ApiKey, Config
from gateway.errors import BadRequest, GatewayError, UpstreamFailed, UpstreamInvalid
from gateway.events import Usage
from gateway.formats.selection import FormatChoice
from gateway.server.handler import ModelRequestHandler
from gateway.server.http.client_connection import CancelOnDisconnect, JsonBytesResponse, JsonPiecesResponse
from gateway.server.http.request_reader import counts_of, read_body, room_of
from gateway.server.limits import RateLimiter, RateLimitPermit
from gateway.server.middleware.auth import BATCH_TENANT, authenticate, may_use_model, require_model
from gateway.server.observability.request_record import record_of
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.server.relay.rounds import gateway_headers, reject_if_strict, strict_route
from gateway.server.routes import openapi
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.model_registry import BackendRoute, ModelRegistry
from gateway.server.upstream.slots import QueueIdentity
from gateway.server.upstream.upstream_call import HttpUpstreamCall
from gateway.server.worker_thread import parse_body, run_in_thread
from gateway.sse import FrameTooLong
from gateway.warnings import Warnings

_MAX = 256 << 20  # bytes of a response: 2048 vectors of 4096 numbers as text
_CHOSEN = FormatChoice("native", "there is no text to parse")


class ServiceRequest(Protocol):
    """A request for a model that is one upstream request."""

    @property
    def service(self) -> str:
        """The service as a verb phrase, for errors."""

    @property
    def problem_param(self) -> str:
        """The parameter that holds the model's input, for errors."""

    @property
    def model(self) -> str:
        """The requested model."""

    @property
    def rest(self) -> Mapping[str, Any]:
        """The fields that a backend may get besides those of the service."""

    def ask(self, services: BackendServices, model: str, ledger: Warnings) -> tuple[str, bytes] | None:
        """Return the path and the body of the upstream request; None if the kind has no such service.

        Raises BadRequest.
        """

    def decode(self, raw: bytes) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the upstream response; raise DecodeError."""

    def answer(self, data: Any, ledger: Warnings) -> tuple[Any, int]:  # noqa: ANN401 - decoded JSON
        """Return the response for the client, and the tokens that the model read; raise UpstreamInvalid."""


_Service = TypeVar("_Service", bound=ServiceRequest)


class ServiceEndpoint(Generic[_Service]):
    """Serve the POST requests of a service.  parse: parses a body."""

    def __init__(self, parse: Callable[[bytes, Counts], _Service]) -> None:
        self._parse = parse

    async def answer(self, http: Request) -> Response:
        """Respond to a request; raises GatewayError."""
        handler: ModelRequestHandler = http.app.state.handler
        config: Config = http.app.state.config
        with handler.acquire_concurrency(), room_of(http) as room:
            key = await authenticate(http)
            body = await read_body(http, config.limits.body_bytes, room)
            return await self._put(http, key, await parse_body(self._parse, body, counts_of(config)), len(body))

    def estimated_tokens(self, put: _Service, size: int) -> int:
        """Return the tokens that count against the limits before a response.  size: the bytes of the body."""
        return estimate_tokens_from_characters(size)

    async def with_files(
        self, http: Request, put: _Service, tenant: str, ledger: Warnings, held: AsyncExitStack
    ) -> _Service:
        """Return the request with the content of the files that it names."""
        return put

    async def for_backend(self, http: Request, put: _Service, backend: Backend, ledger: Warnings) -> _Service:
        """Return the request in a form for a backend; raise BadRequest if it takes none."""
        return put

    def pieces(self, data: Any) -> Iterable[bytes | memoryview]:  # noqa: ANN401 - decoded JSON
        """Yield the JSON of a large response."""
        yield encode(data)

    async def _put(self, http: Request, key: ApiKey | None, put: _Service, size: int) -> Response:
        """Route and respond within the limits of the key.  size: bytes of the body."""
        directory: ModelRegistry = http.app.state.directory
        served = await directory.get(put.model, partial(may_use_model, key))
        record_of(http.scope).model = served.model
        require_model(key, put.model, served.model, models_in_fields(put.rest))
        limits: RateLimiter = http.app.state.limits
        estimate = partial(self.estimated_tokens, put, size)
        grant = await limits.acquire(key, served.model, served.settings, estimate)
        async with grant, AsyncExitStack() as held:
            try:
                ways = RetryPolicy(served, key, faithful=True, spare=BATCH_TENANT in http.scope)
                with CancelOnDisconnect(http.scope, http.receive), _placed(put.problem_param):
                    ledger = Warnings()
                    put = await self.with_files(http, put, key.name if key else "", ledger, held)
                    return await self._first_answer(
                        _Exchange(http, ways.identity, grant, ledger, self.pieces), put, ways
                    )
            except ClientDisconnect:
                return Response()

    async def _first_answer(self, exchange: "_Exchange", put: _Service, ways: RetryPolicy) -> Response:
        """Return the response of the first backend that succeeds; raise the error of the last one that was called.

        Backends that cannot take the request are not called.
        """
        way, mark = ways.first(), exchange.ledger.savepoint()
        failure: GatewayError | None = None
        while True:
            await asyncio.sleep(way.pause)
            exchange.ledger.rollback(mark)
            try:
                fitting = await self.for_backend(exchange.http, put, way.route.backend, exchange.ledger)
                return await exchange.respond(fitting, way.route)
            except BadRequest as error:
                another, failure = ways.skip(), failure or error
            except GatewayError as error:
                another, failure = ways.next(error.problem, error.retry_after), error
            if not another:
                raise failure
            way = another


class _Exchange(Struct, frozen=True):
    """The part of a request that is the same for all backends.

    pieces: encodes a large response.
    """

    http: Request
    identity: QueueIdentity
    grant: RateLimitPermit
    ledger: Warnings
    pieces: Callable[[Any], Iterable[bytes | memoryview]]

    async def respond(self, put: ServiceRequest, route: BackendRoute) -> Response:
        """Return the response of a backend.  Raise BadRequest if it cannot take the request."""
        ledger, record, services = self.ledger, record_of(self.http.scope), route.backend.services
        ask = put.ask(services, route.upstream_model, ledger)
        if not ask:
            raise _unsupported(route, put.service)
        reject_if_strict(strict_route(self.http, route), ledger.entries())
        record.ledger = ledger
        record.set_route(route.model, route.backend.name, "")
        if record.trace:
            record.trace.model = route.upstream_model
        path, body = ask
        try:
            return await self._respond_from(path, body, put, route)
        except UpstreamFailed as error:
            if not (instead := services.path_after(error.problem.message)):
                raise
        return await self._respond_from(instead, body, put, route)

    async def _respond_from(self, path: str, body: bytes, put: ServiceRequest, route: BackendRoute) -> Response:
        record = record_of(self.http.scope)
        with closing(HttpUpstreamCall(route.backend, body, lambda _: None, path, self.identity, record)) as call:
            raw = await _read(call)
            try:
                small = len(raw) < LARGE
                response = self._made(raw, put, route) if small else await run_in_thread(self._made, raw, put, route)
            except GatewayError as error:
                call.report_outcome(error.problem)
                raise
            call.report_outcome(None)
        return response

    def _made(self, raw: bytes, put: ServiceRequest, route: BackendRoute) -> Response:
        """Return the response that a backend's body becomes."""
        data, used = put.answer(_decoded(route.backend, put.decode, raw), self.ledger)
        self.grant.used, record_of(self.http.scope).usage = (lambda: used), (lambda: Usage(used, 0))
        headers = gateway_headers(self.http, route, _CHOSEN, self.ledger)
        headers |= self.grant.headers
        small = len(raw) < LARGE
        return JsonBytesResponse(data, headers=headers) if small else JsonPiecesResponse(self.pieces(data), headers)


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
        data = decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamInvalid(f"Backend '{backend.name}' returned an unreadable response: {error}.") from None
    if isinstance(data, dict) and data.get("error"):
        raise UpstreamFailed(backend.mask_problem(problem_from_error_object(data["error"])))
    return data


async def _read(call: HttpUpstreamCall) -> bytes:
    """Return the body, which grows in place: joining a large one would hold the event loop."""
    whole = bytearray()
    while await call.ready() and (data := call.read()):
        whole += data
        if len(whole) > _MAX:
            raise FrameTooLong("a body", _MAX)
    return whole  # type: ignore[return-value] # all its readers take both


router = APIRouter()
_RERANK = ServiceEndpoint(rerank.parse_rerank)
_TOKENIZE, _DETOKENIZE = ServiceEndpoint(parse_tokenize), ServiceEndpoint(parse_detokenize)


@router.post("/v1/rerank", openapi_extra=openapi.RERANK)
async def rank_documents(request: Request) -> Response:
    """Rank documents by their relevance to a query; with `texts`, in the shape of Text Embeddings Inference."""
    return await _RERANK.answer(request)


@router.post("/v1/tokenize", openapi_extra=openapi.TOKENIZE)
async def tokenize(request: Request) -> Response:
    """Return the tokens of a text."""
    return await _TOKENIZE.answer(request)


@router.post("/v1/detokenize", openapi_extra=openapi.DETOKENIZE)
async def detokenize(request: Request) -> Response:
    """Return the text of tokens."""
    return await _DETOKENIZE.answer(request)
