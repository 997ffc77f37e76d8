"""Run one response for a WebSocket: as over HTTP, but its events are messages."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from msgspec import Struct
from starlette.requests import Request as HttpRequest
from starlette.types import Message

from gateway.api.responses import event_stream
from gateway.config import ApiKey
from gateway.errors import STOPPED, GatewayError, Problem
from gateway.server.handler import IncomingRequest, ModelRequestHandler
from gateway.server.http.request_reader import get_header
from gateway.server.ids import new_id
from gateway.server.middleware import error_responses
from gateway.server.observability.request_record import RESPONSES, set_current_record, set_record
from gateway.server.observability.request_recorder import tee_send
from gateway.server.relay.model_request import ModelRequest
from gateway.server.relay.request_parser import RequestParser
from gateway.server.relay.responder import Responder
from gateway.server.websocket.messages import CreateMessage, event_messages, warnings_message
from gateway.server.websocket.recent_responses import ConnectionContext, RecentResponses

_WARNINGS = b"x-gateway-warnings"
_CUT = Problem(
    503, "The events of this response are incomplete. Retrieve the response by its id.", "server_is_overloaded"
)

SendText = Callable[[str], Awaitable[None]]
Authenticate = Callable[[], Awaitable[ApiKey | None]]  # raises a GatewayError for a key that was revoked meanwhile


class WebSocketClient(Struct, frozen=True):
    """The client of a connection.

    http: the handshake as a request; recent: the responses that are not stored.
    """

    http: HttpRequest
    authenticate: Authenticate
    recent: RecentResponses

    @property
    def debugs(self) -> bool:
        """True if the client wants warnings as messages."""
        return get_header(self.http.scope, b"x-gateway-debug") == "1"


class ResponseTask:
    """Run one response.  tell: sends a message to the client."""

    def __init__(
        self, handler: ModelRequestHandler, client: WebSocketClient, create: CreateMessage, tell: SendText
    ) -> None:
        self._handler, self._client, self._create, self._tell = handler, client, create, tell
        self._whole = False  # all events have been sent
        self._record = handler.telemetry.begin(new_id("req_"), RESPONSES, client.http.scope["headers"])

    async def run(self) -> Problem | None:
        """Run the response; return a problem that its events have not reported, else None."""
        set_current_record(self._record)
        problem: Problem | None = STOPPED  # until the response has ended by itself
        try:
            well, problem = await self._answered()
        finally:
            self._end(problem)
        if not well:
            self._client.recent.forget(self._create.stream_id, self._create.previous)
        return problem

    async def _answered(self) -> tuple[bool, Problem | None]:
        """Return whether the response ended well, and a problem that the client does not know yet."""
        try:
            key = await self._client.authenticate()
            ask = IncomingRequest(self._request(key), self._create.body, key)
            recorder = self._record.recorder
            send = tee_send(self._send, recorder) if recorder else self._send
            with self._handler.acquire_concurrency():
                well = await self._handler.handle(ask, self._read, Responder, send)
        except GatewayError as error:
            return False, error.problem
        except Exception as error:  # noqa: BLE001 - the last place that can send the client an error
            return False, error_responses.internal_error(self._record.id, error)
        return well, None if self._whole else _CUT

    def _request(self, key: ApiKey | None) -> HttpRequest:
        """Return a request for this response alone, with a record of its own."""
        http, record = self._client.http, self._record

        async def receive() -> Message:
            message = await http.receive()
            record.left = True
            return message

        scope = {**http.scope}
        set_record(scope, record)
        record.key, record.received = key.name if key else "", len(self._create.body)
        return HttpRequest(scope, receive)

    def _end(self, problem: Problem | None) -> None:
        record = self._record
        record.left = record.left and record.is_last_holder
        record.status, record.problem = 200, record.problem or (None if record.left else problem)
        record.release()

    def _read(self, reader: RequestParser, raw: bytes, tenant: str, held: AsyncExitStack) -> Awaitable[ModelRequest]:
        state = ConnectionContext(reader.store, tenant, reader.pasts, self._client.recent, self._create.stream_id)
        return reader.response_in_context(state, raw, held)

    async def _send(self, message: Message) -> None:
        """Send an ASGI message as messages of the connection."""
        if message["type"] == "http.response.start":
            items = [value.decode() for name, value in message["headers"] if name == _WARNINGS]
            await self._warn([entry for entries in items for entry in entries.split(", ")])
            return
        data, stream_id = message["body"], self._create.stream_id
        self._record.sent += len(data)
        await self._warn(event_stream.warning_comments(data))
        for event in event_messages(data, stream_id):
            await self._tell(event)
        self._whole = self._whole or data.endswith(event_stream.DONE)

    async def _warn(self, entries: list[str]) -> None:
        """Send warnings as a message if the client wants it, as other clients may not know it."""
        if entries and self._client.debugs:
            await self._tell(warnings_message(entries, self._create.stream_id))
