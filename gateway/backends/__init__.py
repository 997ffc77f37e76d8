"""Convert requests to the bodies that backends accept, and their responses to events.

Each kind of server is a row in kinds/: its features, and a rule for each request field (field_rules.py).  A server that
ignores fields of its kind gets adapted rules (ignored_fields.py).  docs/reference/backends.md shows the rows as a
page.  All kinds that respond with chat completions share the decoder in openai/.  `dialect` names the API of a kind:
dialects.py.
"""

from gateway.backends.kind import Kind
from gateway.backends.kinds import KINDS

__all__ = ["KINDS", "Kind"]
