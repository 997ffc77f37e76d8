"""Speak the dialects of backends: a request becomes an upstream body, and an answer becomes events.

A kind of server is a row in kinds/: its features, and a rule for each field of a request (field_rules.py).  A server
that does less than its kind has another (ignored_fields.py).  The rows as a page are docs/backends.md.  All kinds that
answer with chat completions share the decoder in openai/; `dialect` is the API of a kind, see dialects.py.
"""

from gateway.backends.kind import Kind
from gateway.backends.kinds import KINDS

__all__ = ["KINDS", "Kind"]
