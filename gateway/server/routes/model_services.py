"""Serve embeddings, rerank, tokenize and detokenize: each request is one upstream request, in JSON."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Protocol

from fastapi import APIRouter, Request
from msgspec import DecodeError
from msgspec.structs import replace
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gateway.api import embeddings, rerank
from gateway.api.body import Counts
from gateway.api.tokenize import parse_detokenize, parse_tokenize
from gateway.backends.openai.error_mapping import problem_from_error_object
from gateway.backends.openai.usage import estimate_tokens_from_characters
from gateway.backends.services import BackendServices
from gateway.config import ApiKey
from gateway.errors import BadRequest, GatewayError, UpstreamFailed, UpstreamInvalid
from gateway.events import Usage
from gateway.formats.selection import FormatChoice
from gateway.server.http.disconnect import CancelOnDisconnect
from gateway.server.http.request_reader import counts_of, read_body, room_of
from gateway.server.http.response_writer import JsonBytesResponse
from gateway.server.limits import RateLimiter, RateLimitPermit
from gateway.server.middleware.auth import BATCH_TENANT, authenticate, may_use_model, require_model
from gateway.server.observability.request_record import record_of
from gateway.server.relay import response_headers
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.server.routes import openapi
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.model_registry import BackendRoute, ModelRegistry
from gateway.server.upstream.slots import QueueIdentity
from gateway.server.upstream.upstream_call import HttpUpstreamCall
from gateway.server.worker_thread import parsed
from gateway.sse import BodyBuffer
from gateway.warnings import Warnings

_MAX = 256 << 20  # bytes of a response: 2048 vectors of 4096 numbers as text
_LARGE = 1 << 20  # bytes of a response (thousands of vectors) that blocks the event loop for more than a few ms
_CHOSEN = FormatChoice("native", "there is no text to parse")
router = APIRouter()


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

    def ask(self, services: BackendServices, model: str, ledger: Warnings) -> tuple[str, bytes] | None:
        """Return the path and the body of the upstream request; None if the kind has no such service.

        Raises BadRequest.
        """

    def decode(self, raw: bytes) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the upstream response; raise DecodeError."""

    def answer(self, data: Any, ledger: Warnings) -> tuple[Any, int]:  # noqa: ANN401 - decoded JSON
        """Return the response for the client, and the tokens that the model read; raise UpstreamInvalid."""


async def serve(http: Request, parse: Callable[[bytes, Counts], ServiceRequest]) -> Response:
    """Respond to a POST request of a service; raises GatewayError.  parse: parses its body."""
    key, config = await authenticate(http), http.app.state.config
    with room_of(http) as room:
        body = await read_body(http, config.limits.body_bytes, room)
        return await _put(http, key, await parsed(parse, body, counts_of(config)), len(body))


async def _put(http: Request, key: ApiKey | None, put: ServiceRequest, size: int) -> Response:
    """Route and respond within the limits of the key.  size: bytes of the body."""
    directory: ModelRegistry = http.app.state.directory
    served = await directory.get(put.model, partial(may_use_model, key))
    record_of(http.scope).model = served.model
    require_model(key, put.model, served.model)
    limits: RateLimiter = http.app.state.limits
    estimate = partial(estimate_tokens_from_characters, size)
    async with await limits.acquire(key, served.model, served.settings, estimate) or RateLimitPermit() as grant:
        try:
            ways = RetryPolicy(served, key, faithful=True, spare=BATCH_TENANT in http.scope)
            with CancelOnDisconnect(http.scope, http.receive), _placed(put.problem_param):
                return await _first_answer(http, put, ways, grant)
        except ClientDisconnect:
            return Response()


async def _first_answer(http: Request, put: ServiceRequest, ways: RetryPolicy, grant: RateLimitPermit) -> Response:
    """Return the response of the first backend that succeeds; raise the error of the last one."""
    way = ways.first()
    while True:
        await asyncio.sleep(way.pause)
        try:
            return await _answered(http, put, way.route, ways.identity, grant)
        except GatewayError as error:
            if not (another := ways.next(error.problem, error.retry_after)):
                raise
            way = another


async def _answered(
    http: Request, put: ServiceRequest, route: BackendRoute, identity: QueueIdentity, grant: RateLimitPermit
) -> Response:
    ledger, record = Warnings(), record_of(http.scope)
    ask = put.ask(route.backend.services, route.upstream_model, ledger)
    if not ask:
        raise _unsupported(route, put.service)
    response_headers.reject_if_strict(response_headers.strict_route(http, route), ledger.entries())
    record.ledger = ledger
    record.set_route(route.model, route.backend.name, "")
    if record.trace:
        record.trace.model = route.upstream_model

    def respond(raw: bytes) -> Response:
        data, used = put.answer(_decoded(route.backend, put.decode, raw), ledger)
        grant.used, record.usage = (lambda: used), (lambda: Usage(used, 0))
        return JsonBytesResponse(
            data, headers={**response_headers.gateway_headers(http, route, _CHOSEN, ledger), **grant.headers}
        )

    path, body = ask
    with closing(HttpUpstreamCall(route.backend, body, lambda _: None, path, identity, record)) as call:
        raw = await _read(call)
        try:
            response = respond(raw) if len(raw) < _LARGE else await asyncio.to_thread(respond, raw)
        except GatewayError as error:
            call.report_outcome(error.problem)
            raise
        call.report_outcome(None)
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
        data = decode(raw)
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamInvalid(f"Backend '{backend.name}' returned an unreadable response: {error}.") from None
    if isinstance(data, dict) and data.get("error"):
        raise UpstreamFailed(backend.mask_problem(problem_from_error_object(data["error"])))
    return data


async def _read(call: HttpUpstreamCall) -> bytes:
    whole = BodyBuffer(_MAX)
    while await call.ready() and (data := call.read()):
        whole.append(data)
    return whole.close()


@router.post("/v1/embeddings", openapi_extra=openapi.EMBEDDINGS)
async def create_embeddings(request: Request) -> Response:
    """Return the embedding vectors of texts."""
    return await serve(request, embeddings.parse_embeddings)


@router.post("/v1/rerank", openapi_extra=openapi.RERANK)
async def rank_documents(request: Request) -> Response:
    """Rank documents by their relevance to a query; with `texts`, in the shape of Text Embeddings Inference."""
    return await serve(request, rerank.parse_rerank)


@router.post("/v1/tokenize", openapi_extra=openapi.TOKENIZE)
async def tokenize(request: Request) -> Response:
    """Return the tokens of a text."""
    return await serve(request, parse_tokenize)


@router.post("/v1/detokenize", openapi_extra=openapi.DETOKENIZE)
async def detokenize(request: Request) -> Response:
    """Return the text of tokens."""
    return await serve(request, parse_detokenize)
