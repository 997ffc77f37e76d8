"""The names of all kinds of servers, as messages list them."""

from gateway.backends import KINDS

*_FIRST, _LAST = map(repr, KINDS)
ONE_OF_THE_KINDS = f"one of: {', '.join(_FIRST)} or {_LAST}"
