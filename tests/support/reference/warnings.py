"""Generate docs/reference/warnings.md: the codes of warnings, and the subjects that the source names."""

from typing import get_args

from gateway.code_texts import CODES, ENTRIES
from gateway.warnings import WarningCode
from support.reference import source

_HEAD = """\
# Warnings

The header `x-gateway-warnings` of a response lists each part of the request and of the response that did not pass unchanged, as `code:subject`.
`make regenerate` writes this page.

- A subject is a field, like `tools.strict` or `tool_calls.function.arguments`, and never a value. For `unread`, the name of a format follows:
  `unread:tool_calls=pythonic`.
- If a code has more than 48 entries, the first 16 are named and the others counted: `forwarded:+40`.
- Warnings that arise later in a stream stand in a comment `: gateway-warnings …` before its end. A later `GET` of a stored response has all of them in the
  header.
- `x-gateway-strict: 1` in a request, or `strict: true` of a model, refuses fields that would be dropped or could not be enforced. The gateway then answers 400
  and names the field. It leaves out reasoning of earlier turns without a refusal.
- The metric `gateway_ledger_total` counts warnings by code.
"""
_SEVERITIES = {"warn": "a client or a user may notice it", "info": "for information"}
_TAIL = """
[Troubleshoot](../how-to/troubleshoot.md#warnings) has the remedies for single warnings. [Backends](backends.md) lists the fields of each kind.
"""


def page() -> str:
    """Return the whole page in Markdown."""
    subjects = source.warnings()
    return "\n".join([_HEAD, *(_section(code, subjects.get(code, set())) for code in get_args(WarningCode)), _TAIL[1:]])


def _section(code: WarningCode, subjects: set[str]) -> str:
    text = CODES[code]
    lines = [
        f"## `{code}`\n",
        f"{text.meaning}\n",
        f"- Severity: {_SEVERITIES[text.severity]}",
        f"- What to do: {text.action}",
    ]
    if subjects:
        lines.append(f"- Subjects besides names of fields: {', '.join(f'`{one}`' for one in sorted(subjects))}")
    known = [
        f"- `{entry}`, {one.title}: {one.meaning}" for entry, one in ENTRIES.items() if entry.startswith(f"{code}:")
    ]
    return "\n".join([*lines, *known, ""])
