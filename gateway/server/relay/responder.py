"""Respond to a model request with a relay, or count the tokens of its prompt."""

import asyncio
from collections.abc import Mapping

from msgspec import Struct
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.types import Send

from gateway import config
from gateway.errors import CANCELLED, STOPPED
from gateway.server.fetch import attachments
from gateway.server.http.client_connection import CLIENT_DISCONNECTED, CancelOnDisconnect, EventStreamWriter, send_json
from gateway.server.relay.attempts import Attempts
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.relay import Relay, open_relay
from gateway.server.relay.retry_policy import RetryPolicy
from gateway.server.relay.round_builder import build_round, goes_as_sent
from gateway.server.relay.rounds import count_input_tokens, gateway_headers, reject_if_strict, strict_route


class Responder(Struct, frozen=True):
    """The response to one model request."""

    http: HttpRequest
    request: ModelRequest
    targets: RetryPolicy
    settings: config.Config

    async def run(self, send: Send) -> bool:
        """Send the response; return True at a good end.  Raise a GatewayError for all that has a status of its own."""
        try:
            with CancelOnDisconnect(self.http.scope, self.http.receive):
                return await self._respond(send)
        except ClientDisconnect:
            return False

    async def _respond(self, send: Send) -> bool:
        attempts = Attempts(self.http, self.request, self.targets, self.settings)
        await attempts.begin(self.targets.first())
        accepting = self.request.accept(attempts.response_headers)
        accepted = accepting is not None and await accepting
        if not accepted:
            self.request.ledger.expect_header()
        if self.request.compaction:
            await attempts.plan_summary(self.request.compaction)
        pipeline, memory = attempts.open_pipeline(), self.request.memory
        streamed = attempts.record.streamed = self.request.request.stream
        relay = open_relay(pipeline, attempts, self.settings.stream, self.request.store_or_warn)
        try:
            first = await (relay.until_first_content() if streamed else relay.whole())
            if memory.reads_messages:
                await memory.save()
            headers = {} if accepted else attempts.response_headers()
            if streamed:
                await self._stream(relay, first, headers, send)
            else:
                await send_json(first, headers, send)
        finally:
            relay.close()
        return not pipeline.problem

    async def _stream(self, relay: Relay, first: bytes, headers: Mapping[str, str], send: Send) -> None:
        stream = EventStreamWriter(send)
        writer = self.request.memory.flush_before(stream)
        try:
            await stream.begin(headers)
            if relay.ended:  # a short response: all of it is one write
                await writer.end(first)
                return
            if first and not writer.try_write(first):
                await writer.write(first)
            # A task of its own: a chunk wakes all frames of a task, up to where the request came in.
            await asyncio.create_task(relay.stream(writer))
            await relay.end(writer)
        except asyncio.CancelledError as reason:  # the client may still be connected
            await relay.abort(CANCELLED if reason.args == (CLIENT_DISCONNECTED,) else STOPPED, writer)
            raise


class TokenCounting(Struct, frozen=True):
    """A count of the tokens of a request, without a response."""

    http: HttpRequest
    request: ModelRequest
    targets: RetryPolicy
    settings: config.Config

    async def run(self, send: Send) -> bool:
        """Send the count; return True.  Raise a GatewayError for all that has a status of its own."""
        http, ledger, route = self.http, self.request.ledger, self.targets.first().route
        request, names = self.request.with_parameters(self.request.request, route.settings, ledger)
        mark = ledger.savepoint()
        if not goes_as_sent(request, route):
            request = await self.request.without_files(request, self.settings.files, self.targets.identity.tenant)
        images, room = self.settings.images, self.request.room
        if not route.backend.kind.fetches:
            request = await attachments.inline_request_images(request, images, ledger, room)
        round = await build_round(request, route, ledger, self.settings.limits.frame_bytes)
        ledger.discard(mark, names)
        reject_if_strict(strict_route(http, route), ledger.entries())
        count = self.request.token_count(await count_input_tokens(round, ledger))
        response = JSONResponse(count, headers=gateway_headers(http, route, round.chosen, ledger))
        await response(http.scope, http.receive, send)
        return True
