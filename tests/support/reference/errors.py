"""Generate docs/reference/errors.md: the codes of errors, with their statuses and remedies."""

from gateway.code_texts import CLIENT_ERRORS, SERVER_ERRORS, ErrorRow
from support.reference import source

_HEAD = """\
# Errors

Errors of `/v1` have OpenAI's shape: `{"error": {"message": …, "type": …, "param": …, "code": …}}`. Errors of `/v1/messages` have Anthropic's shape.
The message says what happened and what to do, and `param` names the field. `make regenerate` writes this page.

- Until the first content, the status of the response is that of the error. After it, the stream has a last event, `data: {"error": …}`, and no `[DONE]`.
- `type` is `invalid_request_error` below 500, `rate_limit_error` for 429, and `server_error` otherwise.
- `retry-after` says when another attempt can succeed. `x-should-retry: false` stands in errors of a backend that another attempt would get as well.
- An error that a backend explains keeps the backend's message, and its code if there is one.
- `x-request-id` is in every response, and in the log.

"""


def page() -> str:
    """Return the whole page in Markdown.  Raises ValueError for a code of the source that has no row."""
    known = {code for _, code, _ in (*CLIENT_ERRORS, *SERVER_ERRORS)}
    if missing := source.error_codes() - known:
        raise ValueError(f"add rows for these codes to gateway/code_texts.py: {', '.join(sorted(missing))}")
    return "".join(
        [_HEAD, *_table("Errors of requests", CLIENT_ERRORS), "\n", *_table("Errors of servers", SERVER_ERRORS), _TAIL]
    )


_TAIL = """
[Troubleshoot](../how-to/troubleshoot.md) explains single messages. [Faults](faults.md) shows the error of each fault of a backend, a client or the
gateway.
"""


def _table(title: str, rows: tuple[ErrorRow, ...]) -> list[str]:
    lines = [f"| {status} | `{code}` | {meaning} |\n" for status, code, meaning in rows]
    return [f"## {title}\n\n| status | code | meaning |\n|---|---|---|\n", *lines]
