"""Define HTTP responses with a JSON object."""

from typing import Any

from starlette.responses import Response

from gateway.endpoints.responses.shape import encode


class JsonBytesResponse(Response):
    """An object as it is.  The framework's own way of writing one gives up on what is nested deeply."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:  # noqa: ANN401 - of the framework
        return encode(content)
