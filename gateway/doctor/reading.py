"""Which family of formats a model's texts are of, by reading them as each."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.calls import ParserSettings
from gateway.doctor.heard import ObservedMessage, message_from_events, parameter_schemas
from gateway.doctor.lessons import TOOLS
from gateway.events import Finish, TextDelta
from gateway.formats.chosen import choice_by_template
from gateway.formats.format import ParseContext
from gateway.formats.markup import Markup
from gateway.formats.row import FormatSpec
from gateway.ledger import Warnings
from gateway.normaliser import Normalizer


class ObservedText(Struct, frozen=True):
    """A text as it came.  `tools`: the lessons' were offered."""

    text: str
    tools: bool


class DetectedFormat(Struct, frozen=True):
    """How texts are to be read: `format` is "" where there is no thought and no call in any of them.

    thought_open: one begins inside a thought; calls: there is a call in one, which tells more than a thought.
    """

    format: str = ""
    thought_open: bool = False
    calls: bool = False


def detect_format(texts: Sequence[ObservedText], rows: Mapping[str, FormatSpec], likely: str) -> DetectedFormat:
    """The format that leaves the least of all texts as plain text.

    Of several it is the `likely` one, or else the one that their tags are signs of.
    """
    best, least = DetectedFormat(), sum(len(one.text.strip()) for one in texts)
    signed = choice_by_template("".join(one.text for one in texts), rows)
    for name in sorted(rows, key=lambda name: (name != likely, not signed or name != signed.format)):
        read = [parse_as(one, rows[name]) for one in texts] if rows[name].parse and name != "auto" else []
        left = sum(len(said.text.strip()) for said, _ in read)
        if left < least and any(said.thought or said.calls for said, _ in read):
            calls, thought_open = any(said.calls for said, _ in read), any(opened for _, opened in read)
            best, least = DetectedFormat(name, thought_open, calls), left
    return best


def parse_as(words: ObservedText, row: FormatSpec) -> tuple[ObservedMessage, bool]:
    """The same in a format, and whether it begins inside a thought, as there is an end of one that never began."""
    said = _parsed(words, row, thought_open=False)
    thoughts = [*row.parse.thoughts.values()] if isinstance(row.parse, Markup) else []
    if not any(close in said.text for closes in thoughts[:1] for close in closes):  # a prompt opens the first kind
        return said, False
    return _parsed(words, row, thought_open=True), True


def _parsed(words: ObservedText, row: FormatSpec, *, thought_open: bool) -> ObservedMessage:
    context = ParseContext(parameter_schemas(TOOLS) if words.tools else {}, thought_open)
    normaliser = Normalizer(ParserSettings(row.parse, context, str, Warnings()))
    normaliser.feed(Finish(0, "stop"))
    return message_from_events([*normaliser.feed(TextDelta(0, words.text)), *normaliser.close()])
