"""Answer a model request with a relay, or count the tokens of its prompt."""

import asyncio
from collections.abc import Mapping
from contextlib import closing

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.types import Send

from gateway import config
from gateway.errors import CANCELLED, STOPPED
from gateway.server.fetch import attachments
from gateway.server.http.disconnect import LEFT, CancelOnDisconnect
from gateway.server.http.response_writer import EventStreamWriter, send_json
from gateway.server.relay import response_headers
from gateway.server.relay.attempts import Attempts
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.relay import Relay
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.server.relay.round_builder import build_round
from gateway.server.relay.rounds import count_input_tokens


class Responder(Struct, frozen=True):
    """The answer to one question.

    run: True if it came to a good end; raises a GatewayError for everything that has a status of its own.
    """

    http: HttpRequest
    question: ModelRequest
    targets: RetryPolicy
    settings: config.Config

    async def run(self, send: Send) -> bool:
        http, question, memory = self.http, self.question, self.question.memory
        with CancelOnDisconnect(http.receive):
            attempts = Attempts(http, question, self.targets, self.settings)
            await attempts.begin(self.targets.first())
            accepted = question.on_accepted and await question.on_accepted(attempts.response_headers)
            turn, streamed = await attempts.open_pipeline(), question.request.stream
            attempts.seen.streamed = streamed
            with closing(Relay(turn, attempts, self.settings.stream, question.kept)) as exchange:
                first = await (exchange.until_first_content() if streamed else exchange.whole())
                await memory.save()
                headers = {} if accepted else attempts.response_headers()
                if not streamed:
                    await send_json(first, headers, send)
                    return True
                await self._stream(exchange, first, headers, send)
            return not turn.problem
        return False  # the client has left

    async def _stream(self, exchange: Relay, first: bytes, headers: Mapping[str, str], send: Send) -> None:
        stream = EventStreamWriter(send)
        outlet = self.question.memory.flush_before(stream)
        try:
            await stream.begin(headers)
            if first and not outlet.now(first):
                await outlet.write(first)
            # A task of its own, as a chunk wakes all that waits in a task, up to where the request came in.
            await asyncio.create_task(exchange.stream(outlet))
            await exchange.end(outlet)
        except asyncio.CancelledError as reason:  # the client may be there all the same
            await exchange.abort(CANCELLED if reason.args == (LEFT,) else STOPPED, outlet)
            raise


class TokenCounting(Struct, frozen=True):
    """A count of the tokens of a request, without a response."""

    http: HttpRequest
    question: ModelRequest
    targets: RetryPolicy
    settings: config.Config

    async def run(self, send: Send) -> bool:
        http, ledger, route = self.http, self.question.ledger, self.targets.first().route
        request = await self.question.without_files(self.settings.files, self.targets.asker.tenant)
        request = await attachments.inline_request_images(request, route.backend.kind, self.settings.images, ledger)
        round = await build_round(request, route, ledger, self.settings.limits.frame_bytes)
        response_headers.reject_if_strict(response_headers.strict_route(http, route), ledger.entries())
        fields = {"object": "response.input_tokens", "input_tokens": await count_input_tokens(round, ledger)}
        response = JSONResponse(fields, headers=response_headers.gateway_headers(http, route, round.chosen, ledger))
        await response(http.scope, http.receive, send)
        return True
