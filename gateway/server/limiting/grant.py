"""Leave to ask a model."""

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from starlette.types import Message, Send

from gateway.errors import GatewayError

SettleCallback = Callable[[int | None], Awaitable[None]]


class RateLimitPermit:
    """Holds as long as the block lasts.

    headers: what the answer's head tells of the limits.
    used: gives the tokens that were used, when it is over; without it they are those that were expected.
    end: is told how many there were, None: as expected.
    """

    def __init__(self, headers: Mapping[str, str] | None = None, end: SettleCallback | None = None) -> None:
        self.headers = headers or {}
        self.used: Callable[[], int] | None = None
        self._end = end

    def telling(self, send: Send) -> Send:
        """The same, with the headers."""
        if not self.headers:
            return send
        added = [(name.encode(), value.encode()) for name, value in self.headers.items()]

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        return tell

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        failed = isinstance(error, GatewayError)
        if isinstance(error, GatewayError):
            error.headers = {**self.headers, **error.headers}
        if self._end:
            await self._end(self.used() if self.used else 0 if failed else None)
