"""The end of a gateway: what runs has some time, and who listens is told how it ended.

The server tells its connections that it stops, and the application only when they are gone; so they pass it on.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

STOPPING = "stopping"  # an event, in the state that the application's lifespan gives to its server


class Http(HttpToolsProtocol):
    def shutdown(self) -> None:
        _pass_on(self.app_state)
        super().shutdown()


def _pass_on(state: dict[str, asyncio.Event]) -> None:
    state[STOPPING].set()
