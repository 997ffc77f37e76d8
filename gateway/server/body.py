"""The body of a request: its bytes, or its fields where there are few."""

from typing import Any

from fastapi import Request

from gateway.config import Config
from gateway.endpoints.body import decoded
from gateway.endpoints.checks import Check
from gateway.errors import TooLarge, Unsupported


async def read_fields(request: Request, config: Config, check: Check) -> dict[str, Any]:
    """The body as an object that passes a check; nothing at all is an empty one."""
    body = decoded(await read_body(request, config.limits.body_bytes) or b"{}")
    check(body, "")
    return body


async def read_body(request: Request, limit: int) -> bytes:
    """The body, if it is no larger than allowed and not encoded."""
    if (encoding := request.headers.get("content-encoding", "identity")).lower() != "identity":
        message = f"The content encoding '{encoding}' is not supported: send the body as it is."
        raise Unsupported(message, code="unsupported_content_encoding")
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise TooLarge(f"The request body is larger than {limit} bytes.")
    return b"".join(pieces)
