"""Define the findings about one model, and detect the format family of its texts by reading them as each."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct

from gateway.backends import KINDS, Kind
from gateway.backends.ignored_fields import is_known_to_ignore, with_ignored_fields
from gateway.backends.model_metadata import ModelMetadata
from gateway.doctor.probe_requests import QUESTIONS, TOOLS
from gateway.doctor.probe_response import ObservedMessage, ProbeResponse, message_from_events, parameter_schemas
from gateway.events import Finish, TextDelta
from gateway.formats import FORMATS
from gateway.formats.markup import Markup
from gateway.formats.parser import ParseContext
from gateway.formats.selection import FormatChoice, choice_by_template
from gateway.formats.spec import FormatSpec
from gateway.pipeline.normalizer import Normalizer
from gateway.pipeline.tool_calls import ParserSettings
from gateway.warnings import Warnings

VerdictState = Literal["good", "wanting", "unknown"]


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
        left = sum(len(message.text.strip()) for message, _ in read)
        if left < least and any(message.thought or message.calls for message, _ in read):
            calls, thought_open = any(message.calls for message, _ in read), any(opened for _, opened in read)
            best, least = DetectedFormat(name, thought_open, calls), left
    return best


def parse_as(words: ObservedText, row: FormatSpec) -> tuple[ObservedMessage, bool]:
    """The same in a format, and whether it begins inside a thought, as there is an end of one that never began."""
    message = _parsed(words, row, thought_open=False)
    thoughts = [*row.parse.thoughts.values()] if isinstance(row.parse, Markup) else []
    if not any(close in message.text for closes in thoughts[:1] for close in closes):  # a prompt opens the first kind
        return message, False
    return _parsed(words, row, thought_open=True), True


def _parsed(words: ObservedText, row: FormatSpec, *, thought_open: bool) -> ObservedMessage:
    context = ParseContext(parameter_schemas(TOOLS) if words.tools else {}, thought_open)
    normaliser = Normalizer(ParserSettings(row.parse, context, str, Warnings()))
    normaliser.feed(Finish(0, "stop"))
    return message_from_events([*normaliser.feed(TextDelta(0, words.text)), *normaliser.close()])


class Verdict(Struct, frozen=True):
    """`words` say what was seen; `advice` says what to do about it, "" where there is nothing.

    ignored: the field that was asked about was taken, and nothing was done about it.
    """

    state: VerdictState
    words: str
    advice: str = ""
    ignored: bool = False


class Findings(Struct, frozen=True, kw_only=True, dict=True):
    """kind: of the server, a name; ignores: what its configuration says of that.

    heard: by question, as far as they were asked.
    chosen: how the gateway reads the model by itself, going by its name, chat template and rendered prompt.
    known: what the server tells of it.
    responses: the server has /v1/responses itself; None if it did not say.
    """

    kind: str
    probe_responses: Mapping[str, ProbeResponse]
    chosen: FormatChoice
    metadata: ModelMetadata
    responses: bool | None
    ignores: Collection[str] = ()

    @cached_property
    def configured_kind(self) -> Kind:
        """Return the server's kind as the gateway knows it without a probe, once the model has its format."""
        kind = with_ignored_fields(KINDS[self.kind], self.ignores)
        return kind if self.format in (None, "native") else kind.without_parsers()

    def is_known_to_ignore(self, field: str) -> bool:
        """The gateway needs not be told that the server does nothing about this field of the API."""
        kind = self.configured_kind
        return is_known_to_ignore(kind, field) or kind.fields[field] == kind.unparsed.get(field)

    @cached_property
    def reading(self) -> DetectedFormat:
        """Return the reasoning and the calls found in the text."""
        return detect_format([self._words(question) for question in self.probe_responses], FORMATS, self.chosen.format)

    def observed_message(self, question: str) -> ObservedMessage:
        """Return the model's response to a probe, with its markup parsed."""
        message = self.probe_responses[question].message
        if not self.reading.format:
            return message
        found, _ = parse_as(self._words(question), FORMATS[self.reading.format])
        return ObservedMessage(
            found.text, message.thought or found.thought, message.calls + found.calls, message.finish
        )

    @property
    def format(self) -> str | None:
        """The `format` of the model, if enough was seen to tell.

        `native` where the server has found all thoughts and calls; where none may be called, no server looks for them.
        """
        message = {
            question: response.message for question, response in self.probe_responses.items() if question != "none"
        }
        left = any(self.observed_message(question).calls != observed.calls for question, observed in message.items())
        left = left or any(
            self.observed_message(question).thought != observed.thought for question, observed in message.items()
        )
        if not left and any(observed.calls or observed.thought for observed in message.values()):
            return "native"
        return self.reading.format if self.reading.calls else None

    @property
    def thought(self) -> Literal["open", "closed"] | None:
        """The `thought` of the model, where the gateway would take it for another."""
        known, seen = self.chosen.thought_open, self.reading.thought_open
        if known == seen or self.format == "native":
            return None
        plain = self.probe_responses["plain"].message if "plain" in self.probe_responses else ObservedMessage()
        if seen:
            return "open"
        return "closed" if plain.text and plain.finish == "stop" and not plain.thought else None

    def _words(self, question: str) -> ObservedText:
        return ObservedText(self.probe_responses[question].message.text, bool(QUESTIONS[question].request.tools))
