"""Define the tags of a model family, and the markers to stop at in each part of a text."""

from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType

from msgspec import Struct

from gateway.formats.grammars.json_calls import FENCE
from gateway.formats.markers import ENDS, EndTokens, Markers
from gateway.formats.parser import CallInReasoning, CallParser, Format

THINK: Mapping[str, tuple[str, ...]] = MappingProxyType({"<think>": ("</think>",)})

# Around reasoning that the backend sends in a field of its own; no model writes these tags.
APART, APART_END = "\0thought", "\0end of thought"

CITATIONS = ("<co>", "<co:", "</co>", "</co:")
_BRACKETS = 3  # characters at most of a beginning of JSON or code that is no tag
_JSON = ("{", "[{", "[ ", "[\n")  # beginnings of JSON that may be calls


class MarkupTags(Struct, frozen=True, kw_only=True, dict=True):
    """The tags of a family.

    thoughts: opening tag of reasoning → its closing tags.  The first opening tag is the one that a prompt may have
        opened.
    calls: opening tag → the parser of the text behind it.
    before: tags that have a meaning only if a call, or another of them, follows.
    words: tags of calls that begin like words of ordinary text, so that a beginning which the token limit left is text.
    after: closing tags of calls.
    silent: tags around plain text.
    answer: tags around the response text.  They are dropped if the text begins with the opening tag.  A closing tag
        alone is dropped at the end of the text, as servers may remove the opening tag.
    citations: tags around cited text, or the beginning of a tag with sources up to its ">".
    first: beginning of the text → the format that reads all of it, if no text and no call precedes it.
    in_thought: the treatment of a call's tag inside reasoning, see `ParseContext`.
    ends: tokens that are removed at the end of a turn.
    """

    thoughts: Mapping[str, tuple[str, ...]] = THINK
    calls: Mapping[str, CallParser] = MappingProxyType({})
    before: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    answer: Mapping[str, str] = MappingProxyType({})
    citations: tuple[str, ...] = ()
    first: Mapping[str, Format] = MappingProxyType({})
    in_thought: CallInReasoning = "end"
    ends: EndTokens = ENDS

    @cached_property
    def call_openings(self) -> tuple[str, ...]:
        """The texts that may announce a call."""
        return (*self.before, *self.calls, *self.fences)

    @cached_property
    def call_tags(self) -> tuple[str, ...]:
        """The texts that announce a call and nothing else; brackets and fences begin other text as well."""
        return tuple(tag for tag in (*self.before, *self.calls) if len(tag) > _BRACKETS)

    @cached_property
    def fences(self) -> tuple[str, ...]:
        """The code fences that may stand around calls."""
        return (FENCE,) if self.calls and FENCE not in self.calls else ()

    @cached_property
    def blocks(self) -> tuple[str, ...]:
        """The beginnings of a block of JSON that may be calls, with a fence or without; () if `calls` has them."""
        if FENCE in self.calls:
            return ()
        return (FENCE,) if {"{", "["} & {*self.calls} else (FENCE, *_JSON)

    @cached_property
    def reasoning_closings(self) -> frozenset[str]:
        """The tags that close reasoning and have no other meaning."""
        return frozenset(close for closes in self.thoughts.values() for close in closes) - {*self.silent}

    @cached_property
    def text_markers(self) -> Markers | None:
        """The tags of text in which no calls are looked for."""
        tags = (*self.thoughts, *self.reasoning_closings, *self._quiet)
        return Markers(*tags) if tags else None

    @cached_property
    def unopened(self) -> Markers:
        """The tags of text in which no calls are looked for, if a closing tag alone may end reasoning.

        They include code fences, as a closing tag inside a code block is text.
        """
        return Markers(*self.thoughts, *self.reasoning_closings, *self._quiet, FENCE)

    @cached_property
    def text_or_call_markers(self) -> Markers:
        """The tags of text in which calls are looked for."""
        return Markers(*self.thoughts, *self.reasoning_closings, *self._quiet, *self.call_openings, *self.after)

    @cached_property
    def thought(self) -> Mapping[str, Markers]:
        """Opening tag → the tags inside reasoning in which no calls are looked for."""
        return {tag: Markers(tag, *closes, *self.citations) for tag, closes in self.thoughts.items()}

    @cached_property
    def reasoning_or_call_markers(self) -> Mapping[str, Markers]:
        """Opening tag → the tags inside reasoning in which calls are looked for."""
        return {
            tag: Markers(tag, *closes, *self.citations, *self.call_openings) for tag, closes in self.thoughts.items()
        }

    @cached_property
    def first_without_calls(self) -> Mapping[str, Format]:
        """The entries of `first` that do not begin a call, for requests without tools."""
        return {tag: format for tag, format in self.first.items() if not _calls(tag, format)}

    @property
    def _quiet(self) -> tuple[str, ...]:
        """The tags that may stand in the text of a response."""
        return (*self.silent, *self.answer, *self.answer.values(), *self.citations)


def _calls(tag: str, format: Format) -> bool:
    """Return True if a tag begins a call of the format."""
    return isinstance(format, MarkupTags) and tag.strip().startswith(tuple(format.calls))
