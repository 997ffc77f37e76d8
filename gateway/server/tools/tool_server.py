"""Call the tool servers that an operator names: their addresses, and a client for JSON over HTTP."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from msgspec import DecodeError, Struct, json

from gateway import __version__
from gateway.builtin_tools.search_engines import SearchRequest
from gateway.server import httpx

_INTERNAL = -32603  # JSON-RPC's own code
_MOST = 8 << 20  # bytes of one answer
_IDENTITY = {"accept": "application/json", "accept-encoding": "identity", "user-agent": f"gateway/{__version__}"}


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


class ToolServerClient:
    """name: in what is said of it; headers: with its key.  Connections are kept."""

    def __init__(self, name: str, root: str, headers: Mapping[str, str]) -> None:
        self._name, self._root, self._headers = name, root, headers
        self._used = False

    async def ask(self, ask: SearchRequest) -> Any:  # noqa: ANN401 - decoded JSON
        """Raises ToolServerError."""
        self._used = True
        method, url = "GET" if ask.json is None else "POST", f"{self._root}{ask.path}"
        try:
            async with self._http.stream(method, url, params=ask.params, json=ask.json) as answer:
                return json.decode(await self._whole(answer))
        except (httpx.HTTPError, httpx.InvalidURL, OSError):
            raise ToolServerError(f"The {self._name} cannot be reached.") from None
        except (DecodeError, UnicodeDecodeError, RecursionError):
            raise ToolServerError(f"The {self._name} did not answer in JSON.") from None

    async def close(self) -> None:
        if self._used:
            await self._http.aclose()

    async def _whole(self, answer: "httpx.Response") -> bytes:
        """Return the whole body.  A body that is still packed is not unpacked, and so is no JSON."""
        if answer.status_code != 200:
            raise ToolServerError(f"The {self._name} refused: status {answer.status_code}.")
        data = bytearray()
        async for piece in answer.aiter_raw():
            data += piece
            if len(data) > _MOST:
                raise ToolServerError(f"The answer of the {self._name} is too long.")
        return bytes(data)

    @cached_property
    def _http(self) -> "httpx.AsyncClient":
        """Takes long to make."""
        timeout = httpx.Timeout(None, connect=10)  # how long a whole call may take the toolbox knows
        return httpx.AsyncClient(headers={**_IDENTITY, **self._headers}, timeout=timeout, trust_env=False)
