"""Define the findings about one model, and detect the format family of its texts by parsing them as each family."""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Literal

from msgspec import Struct

from gateway.backends import KINDS, Kind
from gateway.backends.ignored_fields import is_known_to_ignore, with_ignored_fields
from gateway.backends.model_metadata import ModelMetadata
from gateway.doctor.probe_requests import PROBE_REQUESTS, TOOLS
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
    """The text of a response.  tools: the request offered tools."""

    text: str
    tools: bool


class DetectedFormat(Struct, frozen=True):
    """The detected format of texts.

    format: the name; "" if no text has a thought or a tool call.
    thought_open: a text begins inside a thought.
    calls: a text has a tool call, which is stronger evidence than a thought.
    """

    format: str = ""
    thought_open: bool = False
    calls: bool = False


def detect_format(texts: Sequence[ObservedText], rows: Mapping[str, FormatSpec], likely: str) -> DetectedFormat:
    """Return the format that leaves the least plain text when it parses all texts.

    A tie goes to the `likely` format, then to the format that the tags in the texts suggest.
    """
    best, least = DetectedFormat(), sum(len(one.text.strip()) for one in texts)
    signed = choice_by_template("".join(one.text for one in texts), rows)
    for name in sorted(rows, key=lambda name: (name != likely, not signed or name != signed.format)):
        different = dict.fromkeys(texts) if rows[name].parse and name != "auto" else {}
        parsed = {one: parse_as(one, rows[name]) for one in different}  # many responses have the same text
        read = [parsed[one] for one in texts if one in parsed]
        left = sum(len(message.text.strip()) for message, _ in read)
        if left < least and any(message.thought or message.calls for message, _ in read):
            calls, thought_open = any(message.calls for message, _ in read), any(opened for _, opened in read)
            best, least = DetectedFormat(name, thought_open, calls), left
    return best


def parse_as(words: ObservedText, row: FormatSpec) -> tuple[ObservedMessage, bool]:
    """Parse a text in a format; True if the text begins inside a thought.

    Such a text has the end of a thought that never began.
    """
    message = _parsed(words, row, thought_open=False)
    thoughts = [*row.parse.thoughts.values()] if isinstance(row.parse, Markup) else []
    if not any(close in message.text for closes in thoughts[:1] for close in closes):  # a prompt opens the first kind
        return message, False
    return _parsed(words, row, thought_open=True), True


def _parsed(words: ObservedText, row: FormatSpec, *, thought_open: bool) -> ObservedMessage:
    context = ParseContext(parameter_schemas(TOOLS) if words.tools else {}, thought_open)
    normalizer = Normalizer(ParserSettings(row.parse, context, str, Warnings()))
    normalizer.feed(Finish(0, "stop"))
    return message_from_events([*normalizer.feed(TextDelta(0, words.text)), *normalizer.close()])


class Verdict(Struct, frozen=True):
    """The verdict of one check.

    words: the observation.
    advice: the remedy, or "".
    ignored: the server accepted the field and ignored it.
    """

    state: VerdictState
    words: str
    advice: str = ""
    ignored: bool = False


class Findings(Struct, frozen=True, kw_only=True, dict=True):
    """The findings about one model.

    kind: the name of the server's kind.
    probe_responses: the responses by name of the probe; skipped probes are missing.
    chosen: the gateway's own choice of the format, by name, chat template and rendered prompt.
    metadata: the server's metadata of the model.
    responses: the server has /v1/responses itself; None: unknown.  messages: likewise, /v1/messages.
    ignores: the ignored fields in the server's configuration.
    """

    kind: str
    probe_responses: Mapping[str, ProbeResponse]
    chosen: FormatChoice
    metadata: ModelMetadata
    responses: bool | None
    messages: bool | None = None
    ignores: Collection[str] = ()

    @cached_property
    def configured_kind(self) -> Kind:
        """The server's kind as the gateway knows it without probes, with the model's detected format."""
        kind = with_ignored_fields(KINDS[self.kind], self.ignores)
        return kind if self.format in (None, "native") else kind.without_parsers()

    def is_known_to_ignore(self, field: str) -> bool:
        """Return True if the gateway already knows that the server ignores this API field."""
        kind = self.configured_kind
        return is_known_to_ignore(kind, field) or kind.fields[field] == kind.unparsed.get(field)

    @cached_property
    def reading(self) -> DetectedFormat:
        """The format detected in the texts of all responses."""
        return detect_format([self._words(probe) for probe in self.probe_responses], FORMATS, self.chosen.format)

    def observed_message(self, probe: str) -> ObservedMessage:
        """Return the response to a probe, with its markup parsed."""
        message = self.probe_responses[probe].message
        if not self.reading.format:
            return message
        found, _ = parse_as(self._words(probe), FORMATS[self.reading.format])
        return ObservedMessage(
            found.text, message.thought or found.thought, message.calls + found.calls, message.finish
        )

    @property
    def format(self) -> str | None:
        """The `format` setting for the model; None if the findings do not show it.

        The value is `native` if the server itself parsed all thoughts and tool calls.  The probe without tool choice
        does not count: servers do not look for tool calls there.
        """
        message = {probe: response.message for probe, response in self.probe_responses.items() if probe != "none"}
        left = any(self.observed_message(probe).calls != observed.calls for probe, observed in message.items())
        left = left or any(
            self.observed_message(probe).thought != observed.thought for probe, observed in message.items()
        )
        if not left and any(observed.calls or observed.thought for observed in message.values()):
            return "native"
        return self.reading.format if self.reading.calls else None

    @property
    def thought(self) -> Literal["open", "closed"] | None:
        """The `thought` setting for the model, if the gateway's own choice is wrong; else None."""
        known, seen = self.chosen.thought_open, self.reading.thought_open
        if known == seen or self.format == "native":
            return None
        plain = self.probe_responses["plain"].message if "plain" in self.probe_responses else ObservedMessage()
        if seen:
            return "open"
        return "closed" if plain.text and plain.finish == "stop" and not plain.thought else None

    def _words(self, probe: str) -> ObservedText:
        return ObservedText(self.probe_responses[probe].message.text, bool(PROBE_REQUESTS[probe].request.tools))
