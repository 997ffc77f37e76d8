"""Servers of the Model Context Protocol, as far as nothing has to be known of how one speaks with them."""

from typing import Literal

from msgspec import Struct

_INTERNAL = -32603  # JSON-RPC's own code


class ToolServer(Struct, frozen=True):
    """The address of a server; guarded: a client named it, so the guard checks its addresses.

    seconds: that it may take for a call.
    """

    url: str
    headers: dict[str, str] = {}
    transport: Literal["http", "sse"] = "http"
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    guarded: bool = False
    seconds: float = 60


class ToolServerError(Exception):
    """The server is not there, or has said that it cannot; the text is for the model, and for the client."""

    def __init__(self, message: str, code: int = _INTERNAL) -> None:
        super().__init__(message)
        self.code = code
