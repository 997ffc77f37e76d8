"""What is asked of a backend once and answered in one JSON body: embeddings, ranks, tokens."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Protocol

from fastapi import FastAPI, Request
from msgspec import DecodeError
from msgspec.structs import replace
from starlette.responses import Response

from gateway.backends.openai.failures import stated_problem
from gateway.backends.services import Services
from gateway.config import Config
from gateway.errors import BadRequest, UpstreamFailed, UpstreamInvalid
from gateway.formats.chosen import Chosen
from gateway.framing import Whole
from gateway.ledger import Ledger
from gateway.server import heads
from gateway.server.auth import Doorkeeper, allow_model
from gateway.server.backend import Backend
from gateway.server.body import read_body
from gateway.server.call import Call
from gateway.server.directory import Directory, Route
from gateway.server.json import Json
from gateway.server.presence import present

_MOST = 256 << 20  # bytes of an answer: 2048 vectors of 4096 numbers, written out
_LARGE = 1 << 20  # bytes of one that keeps everybody waiting for more than a few milliseconds: thousands of vectors
_CHOSEN = Chosen("native", "there is no text to parse")


class Put(Protocol):
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
    def ask(self, services: Services, model: str, ledger: Ledger) -> tuple[str, bytes] | None: ...
    def decode(self, raw: bytes) -> Any: ...  # noqa: ANN401 - decoded JSON
    def answer(self, said: Any, ledger: Ledger) -> dict[str, Any]: ...  # noqa: ANN401 - decoded JSON


class Service:
    """Answers POST requests; `parse` makes a question of a body."""

    def __init__(self, app: FastAPI, config: Config, door: Doorkeeper, parse: Callable[[bytes], Put]) -> None:
        self._app, self._config, self._door, self._parse = app, config, door, parse

    async def answer(self, http: Request) -> Response:
        key = self._door.admit(http.headers)
        put, ledger = self._parse(await read_body(http, self._config.limits.body_bytes)), Ledger()
        directory: Directory = self._app.state.directory
        route = await directory.find(put.model)
        allow_model(key, put.model, route.model)
        ask = put.ask(route.backend.services, route.upstream_model, ledger)
        if not ask:
            raise _unsupported(route, put.does)
        heads.check(heads.strictly(http, route), ledger)

        def respond(raw: bytes) -> Response:
            said = put.answer(_decoded(route.backend, put.decode, raw), ledger)
            return Json(said, headers=heads.told(http, route, _CHOSEN, ledger))

        async with present(http.receive):
            with _placed(put.place):
                raw = await _read(route.backend, *ask)
                return respond(raw) if len(raw) < _LARGE else await asyncio.to_thread(respond, raw)
        return Response()  # the client has left


def _unsupported(route: Route, what: str) -> BadRequest:
    message = f"The model '{route.model}' cannot {what}: its backend '{route.backend.name}' has no endpoint for that."
    return BadRequest(message, code="unsupported_value", param="model")


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """What is wrong with the request is wrong at its `place`."""
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
        raise UpstreamFailed(stated_problem(said["error"]))
    return said


async def _read(backend: Backend, path: str, body: bytes) -> bytes:
    whole = Whole(_MOST)
    with closing(Call(backend, body, lambda _: None, path)) as call:
        while await call.ready() and (data := await call.read()):
            [*whole.feed(data)]
    return b"".join(whole.close())
