"""/v1/responses: a body in, response.* events or one Response out."""

from gateway.endpoints.responses.asked import Asked
from gateway.endpoints.responses.request import Settings, parse

__all__ = ["Asked", "Settings", "parse"]
