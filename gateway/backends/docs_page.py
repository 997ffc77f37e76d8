"""Generate docs/reference/backends.md from the tables of the kinds."""

from collections.abc import Callable, Iterable, Iterator

from gateway.backends import KINDS, Kind, extra_fields, request_fields
from gateway.backends.extra_fields import EXTENSIONS
from gateway.backends.field_rules import (
    OPENAI,
    DroppedRule,
    EmulatedRule,
    ExpandedRule,
    FieldRule,
    NoEffectRule,
    PassedRule,
    RejectedRule,
    RenamedRule,
    TranslatedRule,
    UnenforcedRule,
)
from gateway.backends.pass_through import PASS_THROUGH, PassThroughRow
from gateway.backends.request_fields import PARTS

_WORDS = {
    PassedRule: "passed",
    ExpandedRule: "translated: per member",
    DroppedRule: "dropped",
    UnenforcedRule: "unenforced",
    NoEffectRule: "without effect",
}

_HEAD = """\
# Backends

This page shows how the gateway sends each field of a chat completion to each kind of server (`backends.NAME.kind`).
The gateway first converts a request of the Responses API to a chat completion, so the same rules apply to it.
`make regenerate` generates this page.

| | |
|---|---|
| passed | The gateway sends the field unchanged. |
| renamed | The gateway sends the field under the server's name. |
| translated | The gateway sends the same meaning in another form. |
| emulated | The gateway does it. |
| dropped | The gateway omits the field, with the warning `dropped:FIELD` in `x-gateway-warnings`. |
| unenforced | The gateway omits the field, with the warning `unenforced:FIELD`. |
| without effect | The gateway omits the field without a warning: the response is the same. |
| refused | The gateway refuses the request: 400 `unsupported_value`. |

With `x-gateway-strict: 1`, the gateway refuses requests with dropped or unenforced fields.  A dropped field with its
default value causes no warning.  A renamed or translated field causes one only if the field is not part of the API, or
if the gateway changed its value.

`openai` is any server without a kind of its own.  The gateway calls `ollama` by its native API, with the sampling
parameters in `options`.  It calls `anthropic` by the Messages API (`POST /v1/messages`).  A client of that API has its
body sent as it is, with the backend's name of the model.  If the operator sets parameters besides `max_tokens`, the
gateway makes a new body instead, with the rules of this page.

The operator can set fields for a model: `models.NAME.defaults` for requests without the field, and
`models.NAME.overrides` for all requests.  The names and the rules are those of this page; `max_tokens` is the limit of
each API.  A default does not apply if the client sent the field under another name, or another field about the
thought.  Objects are merged by member.  If an override replaces the client's value, the warning is `dropped:FIELD`.
`gateway check` refuses a field that the model's backends do not support.

If a server accepts a field and ignores it, set `ignores: [FIELD]`.  The gateway then handles the field as for a kind
that lacks it.  For `n` it sends one request per choice.  It cuts off further tool calls and text after stop sequences.
A forced tool call becomes a schema of the response, `response_format` becomes a prompt, and other fields are dropped.

A schema of the response is a schema that only a tool call matches; the gateway reads the result as the call.  The
gateway checks the response to a prompt, and all else that must be a tool call or match a schema.
`models.NAME.enforce` sets what it does about a mismatch.  If llama.cpp does not parse (`format` is named), the schema
is sent as a `grammar`.
"""
_PARTS = """\
## Parts of messages

The gateway passes parts on that no kind is known to support, but not to {strict}.
{fetching} get the URL of an image.  The other kinds get the image itself, which the
gateway fetches if `images.fetch` is true; they get other media only as data URLs.  The gateway extracts the text of
files.  In tool outputs, everything except text follows in a message of the user; `anthropic` gets it in the output.
"""
_BEYOND = """\
## Fields beyond the API

Clients may send any field that a server adds to the API.  The gateway passes a field on if the kind supports it, with
the warning `forwarded`.  It renames a field that has another name there, and drops a field that only other kinds
support.  It forwards unknown fields, except to `ollama`, which ignores them, and to `transformers` and `anthropic`,
which refuse the whole request.  If a request sets the same parameter twice, the server's own name takes precedence.
"""
_PASSED = """\
## Endpoints that the gateway passes on

The gateway sends the body as it is, with the backend's name of the model.  The table has the path at a kind if it is
another one, and the fields of a JSON body that have another name there.
"""


def kinds_page() -> str:
    """Return the whole page in Markdown."""
    several = sorted(name for name in EXTENSIONS if len(_takers(name)) != 1 or _elsewhere(name))
    return "\n".join(
        (
            _HEAD,
            "## Fields of the API\n",
            *_table("field", OPENAI, extra_fields.field_rule),
            "",
            _PARTS.format(strict=_names("forwards", "none"), fetching=_names("fetches", True)),
            *_table("part", sorted(PARTS), request_fields.part_rule),
            "",
            _BEYOND,
            *_table("field", several, extra_fields.field_rule),
            "",
            "The gateway passes these to the one kind that supports them:\n",
            *_alone(set(EXTENSIONS) - set(several)),
            "",
            _PASSED,
            *_passed(),
            "",
        )
    )


def _names(member: str, value: object) -> str:
    """Return the names of the kinds with this value, as in "`a`, `b` and `c`"."""
    *names, last = (f"`{name}`" for name, kind in KINDS.items() if getattr(kind, member) == value)
    return f"{', '.join(names)} and {last}"


def _table(what: str, names: Iterable[str], verdict: Callable[[str, Kind], FieldRule]) -> Iterator[str]:
    yield f"| {what} | {' | '.join(KINDS)} |"
    yield "|---" * (len(KINDS) + 1) + "|"
    for name in names:
        yield f"| `{name}` | {' | '.join(_cell(verdict(name, kind)) for kind in KINDS.values())} |"


def _passed() -> Iterator[str]:
    kinds = [kind for kind in KINDS if any(kind in row.kinds for row in PASS_THROUGH)]
    yield f"| endpoint | {' | '.join(kinds)} |"
    yield "|---" * (len(kinds) + 1) + "|"
    for row in PASS_THROUGH:
        yield f"| `{row.path}` | {' | '.join(_endpoint(row, kind) for kind in kinds)} |"


def _endpoint(row: PassThroughRow, kind: str) -> str:
    if not (found := row.kinds.get(kind)):
        return ""
    path = "passed" if found.path == row.path else f"`{found.path}`"
    return ", ".join((path, *(f"`{name}` → `{theirs}`" for name, theirs in found.names.items())))


def _alone(names: Iterable[str]) -> Iterator[str]:
    for word, kind in KINDS.items():
        if own := [f"`{name}`" for name in sorted(names) if name in kind.extensions]:
            yield f"- {word}: {', '.join(own)}"


def _takers(name: str) -> list[str]:
    return [word for word, kind in KINDS.items() if name in kind.extensions]


def _elsewhere(name: str) -> bool:
    """Return True if some kind that does not accept the field has another name or form for it."""
    others = [extra_fields.field_rule(name, kind) for kind in KINDS.values() if name not in kind.extensions]
    return any(not isinstance(other, PassedRule | DroppedRule) for other in others)


def _cell(found: FieldRule) -> str:
    match found:
        case RenamedRule(to=to):
            return f"renamed: `{to}`"
        case TranslatedRule(how=how):
            return f"translated: {how}"
        case EmulatedRule(how=how):
            return f"emulated: {how}"
        case RejectedRule(what=what):
            return f"refused: {what}" if what else "refused"
    return _WORDS[type(found)]
