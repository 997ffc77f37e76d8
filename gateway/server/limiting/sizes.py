"""How many tokens a request may take, before anybody has counted them."""

from typing import Any

from gateway.request import Request
from gateway.upstream import CHARACTERS_PER_TOKEN, estimate_tokens_from_characters


def estimate_tokens(request: Request) -> int:
    """Return the tokens of the prompt and the longest response that the request allows; 0 for an unlimited one."""
    tools = [tool.definition for tool in request.callable_tools]
    return (
        estimate_tokens_from_characters(_size(request.messages) + _size(tools)) + (request.max_tokens or 0) * request.n
    )


def _size(said: Any) -> int:  # noqa: ANN401 - decoded JSON
    """Characters.  A number is a token of a prompt that is given as such; a file in the message is no text."""
    match said:
        case str():
            return 0 if said.startswith("data:") else len(said)
        case dict():
            return sum(map(_size, said.values()))
        case list() | tuple():
            return sum(map(_size, said))
        case int():
            return CHARACTERS_PER_TOKEN
    return 0
