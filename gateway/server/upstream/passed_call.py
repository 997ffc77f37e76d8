"""Make an upstream call with the request of a client as it is: any method and type, and a body that still arrives."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from msgspec import Struct

from gateway.errors import UpstreamTimeout
from gateway.server.observability.request_record import RequestRecord
from gateway.server.upstream import PendingPost
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.slots import QueueIdentity
from gateway.server.upstream.upstream_call import HttpUpstreamCall

_HEADERS = ("content-length", "content-disposition")


class PassedRequest(Struct, frozen=True):
    """A request for one backend.

    body: the whole body, or a function that returns its pieces; length: of a body in pieces, None if it is unknown.
    recorded: stands for the body in a recording.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes | Callable[[], AsyncGenerator[bytes]]
    recorded: bytes
    length: int | None = None


class PassedCall(HttpUpstreamCall):
    """An upstream call for a request as it is: `upload`, then the steps of every call."""

    def __init__(
        self,
        backend: Backend,
        request: PassedRequest,
        set_content_type: Callable[[str], None],
        identity: QueueIdentity,
        record: RequestRecord,
    ) -> None:
        super().__init__(backend, request.recorded, set_content_type, request.path, identity, record)
        self._request, self.headers = request, request.headers

    async def upload(self) -> None:
        """Send a body that comes in pieces; return early if the backend refuses it.

        The timeouts of the response begin at the end of the body.  Raise UpstreamTimeout if the backend does not read,
        and what the pieces raise.
        """
        body = self._request.body
        if isinstance(body, bytes):
            return
        if not self._slot.is_acquired:
            await self._acquire_slot(float("inf"))
        post = self._post = self._backend.upload(self._path, self._request.length, self._all_headers())
        async with aclosing(body()) as pieces:
            async for piece in pieces:
                await self._send_piece(post, piece)
                if post.response.error or post.response.status not in (0, 200):
                    return
        if self._request.length is None:
            await self._send_piece(post, b"")
        self._start_deadlines()

    @property
    def response_headers(self) -> dict[str, str]:
        """The headers of the response that the client gets."""
        fields = self._response.headers if self._response else {}
        return {name: fields[name] for name in _HEADERS if name in fields}

    def _send(self) -> PendingPost:
        body = self._request.body
        assert isinstance(body, bytes)
        return self._backend.post(self._path, body, self._all_headers(), self._request.method)

    def _all_headers(self) -> dict[str, str]:
        return {**self.headers, **(self._trace_step.headers if self._trace_step else {})}

    async def _send_piece(self, post: PendingPost, piece: bytes) -> None:
        data = piece if self._request.length is not None else b"%x\r\n%b\r\n" % (len(piece), piece)
        if not await post.response.send(data, self._timeouts.idle):
            idle = f"{self._timeouts.idle:g} s (timeouts.idle)"
            raise self._record_and_name(UpstreamTimeout(f"The backend read nothing of the request's body for {idle}."))
