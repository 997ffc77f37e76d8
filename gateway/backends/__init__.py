"""Dialects in: how a request is put to a server, and how its answer becomes events.

A kind of server is a row in kinds/: what it is like, and what it makes of each field of a request (verdicts.py); a
server that does less than its kind has another (ignores.py).  The rows as a page are docs/backends.md.  Everything
that answers with chat completions shares the decoder in openai/; `dialect` is the way in which a kind is asked and
answers, see dialects.py.
"""

from gateway.backends.kind import Kind
from gateway.backends.kinds import KINDS

__all__ = ["KINDS", "Kind"]
