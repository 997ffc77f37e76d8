"""Find the models that a client's message of a speech session names: some servers change the model by a message."""

from collections.abc import Iterator
from json import JSONDecoder
from typing import Any

from gateway.errors import BadRequest

_MODEL = "model"  # in any letters, as a server in Go reads it
_OTHERS = frozenset(("item", "metadata", "tools", "variables"))  # objects whose members the client names
_BLANKS = " \t\r\n\ufeff"
# As lenient as any server: it reads the first value of a message, and a pair for each member of an object.
_decode = JSONDecoder(object_pairs_hook=tuple, parse_int=str, parse_float=str, strict=False).raw_decode


def session_models(data: bytes) -> set[str]:
    """Return the models that a message names; none for a message that is not JSON.

    Raise BadRequest for one that is nested too deeply.
    """
    if _MODEL.encode() not in data.lower() and b"\\u" not in data:
        return set()
    try:
        message, _ = _decode(data.decode(errors="replace").lstrip(_BLANKS))
        return {*_models(message)}
    except ValueError:
        return set()
    except RecursionError:
        raise BadRequest("The message is nested too deeply. Flatten it.") from None


def _models(value: Any) -> Iterator[str]:  # noqa: ANN401 - decoded JSON
    """Yield the models in a value: an object is a tuple of pairs."""
    if isinstance(value, tuple):
        for name, inner in value:
            if name.lower() == _MODEL and isinstance(inner, str):
                yield inner
            elif name not in _OTHERS:
                yield from _models(inner)
    elif isinstance(value, list):
        for one in value:
            yield from _models(one)
