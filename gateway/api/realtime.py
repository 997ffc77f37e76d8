"""Find the models that a client's message of a speech session names: some servers change the model by a message."""

from json import JSONDecoder

from gateway.api.named_models import named_models
from gateway.errors import BadRequest

_BLANKS = " \t\r\n\ufeff"
# As lenient as any server: it reads the first value of a message, and a pair for each member of an object.
_decode = JSONDecoder(object_pairs_hook=tuple, parse_int=str, parse_float=str, strict=False).raw_decode


def session_models(data: bytes) -> set[str]:
    """Return the models that a message names; none for a message that is not JSON.

    Raise BadRequest for one that is nested too deeply.
    """
    if b"model" not in data.lower() and b"\\u" not in data:
        return set()
    try:
        message, _ = _decode(data.decode(errors="replace").lstrip(_BLANKS))
        return {*named_models(message)}
    except ValueError:
        return set()
    except RecursionError:
        raise BadRequest("The message is nested too deeply. Flatten it.") from None
