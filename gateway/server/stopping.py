"""The end of a gateway: what runs has some time, and who listens is told how it ended.

The server tells its connections that it stops, and the application only when they are gone; so they pass it on.
"""

import asyncio

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

STOPPING = "stopping"  # an event, in the state that the application's lifespan gives to its server


class Http(HttpToolsProtocol):
    def shutdown(self) -> None:
        _pass_on(self.app_state)
        super().shutdown()


class WebSocket(WebSocketsSansIOProtocol):
    """The application closes it, after the turns that run in it."""

    def shutdown(self) -> None:
        _pass_on(self.app_state)

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.close_sent:  # a refusal is an end as well, which the server takes for a fault
            self.handshake_complete = True


def _pass_on(state: dict[str, asyncio.Event]) -> None:
    state[STOPPING].set()
