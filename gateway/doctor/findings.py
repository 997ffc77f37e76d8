"""Define the findings about one model, and the type of a verdict."""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Literal

from msgspec import Struct

from gateway.backends import KINDS, Kind
from gateway.backends.ignores import is_known_to_ignore, with_ignored_fields
from gateway.backends.knowledge import ModelMetadata
from gateway.doctor.heard import ObservedMessage, ProbeResponse
from gateway.doctor.questions import QUESTIONS
from gateway.doctor.reading import DetectedFormat, ObservedText, detect_format, parse_as
from gateway.formats import FORMATS
from gateway.formats.chosen import FormatChoice

VerdictState = Literal["good", "wanting", "unknown"]


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
    heard: Mapping[str, ProbeResponse]
    chosen: FormatChoice
    known: ModelMetadata
    responses: bool | None
    ignores: Collection[str] = ()

    @cached_property
    def configured(self) -> Kind:
        """Return the server's kind as the gateway knows it without a probe, once the model has its format."""
        kind = with_ignored_fields(KINDS[self.kind], self.ignores)
        return kind if self.format in (None, "native") else kind.parsing_nothing()

    def known_to_ignore(self, field: str) -> bool:
        """The gateway needs not be told that the server does nothing about this field of the API."""
        kind = self.configured
        return is_known_to_ignore(kind, field) or kind.fields[field] == kind.unparsed.get(field)

    @cached_property
    def reading(self) -> DetectedFormat:
        """Return the reasoning and the calls found in the text."""
        return detect_format([self._words(question) for question in self.heard], FORMATS, self.chosen.format)

    def said(self, question: str) -> ObservedMessage:
        """Return the model's response to a probe, with its markup parsed."""
        said = self.heard[question].said
        if not self.reading.format:
            return said
        found, _ = parse_as(self._words(question), FORMATS[self.reading.format])
        return ObservedMessage(found.text, said.thought or found.thought, said.calls + found.calls, said.finish)

    @property
    def format(self) -> str | None:
        """The `format` of the model, if enough was seen to tell.

        `native` where the server has found all thoughts and calls; where none may be called, no server looks for them.
        """
        heard = {question: heard.said for question, heard in self.heard.items() if question != "none"}
        left = any(self.said(question).calls != said.calls for question, said in heard.items())
        left = left or any(self.said(question).thought != said.thought for question, said in heard.items())
        if not left and any(said.calls or said.thought for said in heard.values()):
            return "native"
        return self.reading.format if self.reading.calls else None

    @property
    def thought(self) -> Literal["open", "closed"] | None:
        """The `thought` of the model, where the gateway would take it for another."""
        known, seen = self.chosen.thought_open, self.reading.thought_open
        if known == seen or self.format == "native":
            return None
        plain = self.heard["plain"].said if "plain" in self.heard else ObservedMessage()
        if seen:
            return "open"
        return "closed" if plain.text and plain.finish == "stop" and not plain.thought else None

    def _words(self, question: str) -> ObservedText:
        return ObservedText(self.heard[question].said.text, bool(QUESTIONS[question].request.tools))
