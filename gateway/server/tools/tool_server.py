"""Call the tool servers that an operator configures: their addresses, and a client for JSON over HTTP."""

from collections.abc import Mapping
from functools import cached_property
from http import HTTPStatus
from typing import Any, Literal

from msgspec import DecodeError, Struct, json

from gateway import __version__
from gateway.builtin_tools.search_engines import SearchRequest
from gateway.server import httpx

_INTERNAL = -32603  # internal error of JSON-RPC
_MAX = 8 << 20  # bytes of one response
_IDENTITY = {"accept": "application/json", "accept-encoding": "identity", "user-agent": f"gateway/{__version__}"}


class ToolServer(Struct, frozen=True):
    """The address of a tool server.

    guarded: the client of the gateway named it, so the SSRF guard checks its addresses.
    seconds: timeout of a tool call.
    """

    url: str
    headers: dict[str, str] = {}
    transport: Literal["http", "sse"] = "http"
    command: tuple[str, ...] = ()
    env: dict[str, str] = {}
    guarded: bool = False
    seconds: float = 60


class ToolServerError(Exception):
    """The server cannot be reached or has failed; the message is for the model and the client.

    code: of JSON-RPC.  reason: the error code of the Messages API; "": none that is known.
    """

    def __init__(self, message: str, code: int = _INTERNAL, reason: str = "") -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class ToolServerClient:
    """A client for JSON over HTTP that keeps its connections.

    name: of the service, for errors; headers: sent with every request, including the key.
    """

    def __init__(self, name: str, root: str, headers: Mapping[str, str]) -> None:
        self._name, self._root, self._headers = name, root, headers
        self._used = False

    async def ask(self, ask: SearchRequest) -> Any:  # noqa: ANN401 - decoded JSON
        """Return the JSON of the response; raise ToolServerError."""
        self._used = True
        method, url = "GET" if ask.json is None else "POST", f"{self._root}{ask.path}"
        try:
            async with self._http.stream(method, url, params=ask.params, json=ask.json) as answer:
                return json.decode(await self._whole(answer))
        except (httpx.HTTPError, httpx.InvalidURL, OSError):
            raise ToolServerError(f"The {self._name} cannot be reached.") from None
        except (DecodeError, UnicodeDecodeError, RecursionError):
            raise ToolServerError(f"The {self._name} did not return JSON.") from None

    async def close(self) -> None:
        """Close the connections."""
        if self._used:
            await self._http.aclose()

    async def _whole(self, answer: "httpx.Response") -> bytes:
        """Return the whole body.  A compressed body is not decompressed, and so is invalid JSON."""
        if answer.status_code != 200:
            reason = "too_many_requests" if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS else ""
            raise ToolServerError(f"The {self._name} returned HTTP {answer.status_code}.", reason=reason)
        data = bytearray()
        async for piece in answer.aiter_raw():
            data += piece
            if len(data) > _MAX:
                raise ToolServerError(f"The response of the {self._name} is larger than {_MAX} bytes.")
        return bytes(data)

    @cached_property
    def _http(self) -> "httpx.AsyncClient":
        """The httpx client, created at its first use, as that takes long."""
        timeout = httpx.Timeout(None, connect=10)  # no limit for the whole call, as Toolset has one
        return httpx.AsyncClient(headers={**_IDENTITY, **self._headers}, timeout=timeout, trust_env=False)
