"""Generate docs/backends.md from the tables of the kinds."""

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
from gateway.backends.request_fields import PARTS

_WORDS = {
    PassedRule: "passed",
    ExpandedRule: "translated: member by member",
    DroppedRule: "dropped",
    UnenforcedRule: "unenforced",
    NoEffectRule: "without effect",
}

_HEAD = """\
# Backends

What becomes of each field of a chat completion at each kind of server (`backends.NAME.kind`).  A request to the
Responses API is made one of chat completions first, so the same holds for it.  This page is generated
by `make regenerate`.

| | |
|---|---|
| passed | It is sent as it came. |
| renamed | It is sent under the server's name for it. |
| translated | The same is said in another way. |
| emulated | The gateway does it. |
| dropped | It is left out, and listed: `dropped:FIELD` in `x-gateway-warnings`. |
| unenforced | It is left out, and listed as `unenforced:FIELD`. |
| without effect | The gateway leaves it out without a warning: the response is the same. |
| refused | The request is: 400 `unsupported_value`. |

`x-gateway-strict: 1` refuses what would be dropped or unenforced.  The default of a field that is dropped is not
listed.  What is renamed or translated is listed where the field is not the API's, or its value had to be changed.

`openai` is any server that nothing else is known of.  `ollama` is asked by its own API: what says how to sample is in
`options` there.

Of a server that takes a field without a word and does nothing about it, `ignores: [FIELD]` says so.  The field then
fares as at a kind that lacks it: `n` is a request for each choice, further calls and what follows a stop sequence are
cut off, a forced call is a form of the answer, `response_format` is asked for in words, the others are dropped.

A form of the answer is a schema that only a call fits, which is then read as one.  What was asked for in words, and
whatever else had to be a call or to fit a schema, is looked at in the end: `models.NAME.enforce` says what is done
where it is not what it had to be.  To a llama.cpp that parses nothing (a `format` is named) the form is a `grammar`.
"""
_PARTS = """\
## Parts of messages

What no kind is known to take is passed, but not to `ollama` and `transformers`.  The URL of an image goes to `openai`,
`vllm` and `sglang`; the other kinds are sent the image itself, which is fetched if `images.fetch` is true, and get
other media as data URLs only.  The text of a file is read here.  In the outputs of tools all but text follows in a
message of the user.
"""
_BEYOND = """\
## Fields beyond the API

A client may send the extra fields of a server to any kind of backend.  The gateway passes a field that the kind takes,
and lists it as `forwarded`.  It renames a field that has another name there.  It drops a field that only other kinds
know.  It forwards an unknown field, except to `ollama`, which ignores it, and to `transformers`, which refuses the
request.  If a request has the same setting under two names, the server's own name wins.
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
            _PARTS,
            *_table("part", sorted(PARTS), request_fields.part_rule),
            "",
            _BEYOND,
            *_table("field", several, extra_fields.field_rule),
            "",
            "These are passed to the one kind that takes them:\n",
            *_alone(set(EXTENSIONS) - set(several)),
            "",
        )
    )


def _table(what: str, names: Iterable[str], verdict: Callable[[str, Kind], FieldRule]) -> Iterator[str]:
    yield f"| {what} | {' | '.join(KINDS)} |"
    yield "|---" * (len(KINDS) + 1) + "|"
    for name in names:
        yield f"| `{name}` | {' | '.join(_cell(verdict(name, kind)) for kind in KINDS.values())} |"


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
