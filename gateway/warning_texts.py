"""Describe warnings in words: a title, a sentence, a severity and a remedy for each code, and for frequent subjects.

docs/reference/warnings.md and the pages of the gateway are made from these tables.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from gateway.warnings import WarningCode

Severity = Literal["warn", "info"]


class WarningText(Struct, frozen=True):
    """The description of a warning.

    title: a few words; severity: `warn` if a client or a user may notice the effect, else `info`.
    meaning: what the gateway found and did; action: what to do about it.
    """

    title: str
    severity: Severity
    meaning: str
    action: str = "Nothing."


class WarningDetail(Struct, frozen=True):
    """One warning in words.  entry: as in the header `x-gateway-warnings`; link: a page of the gateway."""

    entry: str
    code: str
    title: str
    severity: Severity
    meaning: str
    action: str
    link: str


# Titles have {} in the place of the subject.
CODES: Mapping[WarningCode, WarningText] = {
    "forwarded": WarningText(
        "{} passed on",
        "info",
        "The API does not know the part, and the gateway passes it on unchanged.",
        "Check its spelling if you expected an effect.",
    ),
    "renamed": WarningText("{} renamed", "info", "The part has another name at the backend."),
    "translated": WarningText("{} translated", "info", "The backend gets the same meaning in another form."),
    "emulated": WarningText(
        "{} done by the gateway",
        "info",
        "The backend cannot do it, and the gateway does it.",
        "Nothing; a retry costs a second round.",
    ),
    "synthesised": WarningText("{} added", "info", "The backend left a required part out, and the gateway made it up."),
    "repaired": WarningText("{} repaired", "warn", "The part was damaged, and the gateway sends what was meant."),
    "estimated": WarningText(
        "{} estimated",
        "info",
        "The backend does not report the number, and the gateway estimates it.",
        "Do not bill by it.",
    ),
    "truncated": WarningText(
        "{} shortened",
        "warn",
        "The part is longer than a limit, or the context, and the gateway left some of it out.",
        "Raise the limit, or shorten the conversation.",
    ),
    "unenforced": WarningText(
        "{} not enforced",
        "warn",
        "The response breaks a demand of the request that the backend does not enforce.",
        "Set `enforce` of the model, or send the request again.",
    ),
    "dropped": WarningText(
        "{} left out",
        "warn",
        "The backend does not support the part, and the gateway leaves it out.",
        "Use another backend, or leave the part out.",
    ),
    "unread": WarningText(
        "{} not read",
        "warn",
        "The text has a tool call in a format that the gateway does not read here, and it stays text.",
        "Set `format` of the model to the named format.",
    ),
    "invalid": WarningText(
        "{} invalid",
        "warn",
        "The arguments of a tool call are beyond repair, and the gateway passes them on unchanged.",
        "Do not run the tool call: return an error as its output.",
    ),
}
# Entries for which the text of their code is too general.
ENTRIES: Mapping[str, WarningText] = {
    "repaired:connection": WarningText(
        "connection opened again",
        "info",
        "The backend had closed an idle connection, and the gateway sent the request again on a new one.",
    ),
    "repaired:tool_calls.function.arguments": WarningText(
        "arguments repaired",
        "warn",
        "The model wrote arguments that are no valid JSON, and the gateway sends the JSON that the model meant.",
    ),
    "repaired:tool_calls.function.name": WarningText(
        "tool name repaired",
        "warn",
        "The model wrote the name of the tool with other characters, and the gateway sends the name of the request.",
    ),
    "translated:model": WarningText(
        "fallback model used",
        "info",
        "No backend of the model could respond, and a model of its `fallback` did.",
        "Look at the overview for the state of the backends.",
    ),
    "emulated:empty": WarningText(
        "empty response retried",
        "info",
        "The model ended its turn without text and tool calls, and the retry helped.",
        "Nothing; each retry costs a second round.",
    ),
    "unenforced:empty": WarningText(
        "response empty",
        "warn",
        "The model ended its turn without text and tool calls, and no retry helped.",
        "Send the request again.",
    ),
    "dropped:store": WarningText(
        "response not stored",
        "warn",
        "The database could not be used, so the response cannot be retrieved later.",
        "Read the log of the gateway for the reason.",
    ),
}
_SUBJECTS: Mapping[str, str] = {
    "tool_calls": "tool call",
    "tool_calls.function.arguments": "arguments",
    "tool_calls.function.name": "tool name",
    "tool_calls.id": "tool call id",
    "messages.reasoning_content": "earlier reasoning",
    "usage.reasoning_tokens": "reasoning tokens",
}
_ALL = "parts"  # the subject of a title for all warnings of a code
_PAGE = "/docs/warnings"  # at the gateway


def code_title(code: WarningCode) -> str:
    """Return the title of all warnings of a code."""
    return CODES[code].title.format(_ALL).capitalize()


def describe(entry: str) -> WarningDetail:
    """Describe an entry of a warning list; one of an unknown code, as an old recording may have, by itself."""
    code, _, subject = entry.partition(":")
    found = ENTRIES.get(entry) or next((text for name, text in CODES.items() if name == code), None)
    if not found:
        return WarningDetail(
            entry, code, entry, "warn", "This version of the gateway does not know the code.", "", _PAGE
        )
    title = found.title.format(_words(subject))
    return WarningDetail(entry, code, title, found.severity, found.meaning, found.action, f"{_PAGE}#{code}")


def _words(subject: str) -> str:
    """Return a subject in words: without the name of a format, and with `+40` as "40 more"."""
    name = subject.partition("=")[0]
    return _SUBJECTS.get(name) or (f"{name[1:]} more" if name.startswith("+") else name)
