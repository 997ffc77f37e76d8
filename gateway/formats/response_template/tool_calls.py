"""The field `tool_calls` of a response template: how the calls of its models are read."""

import re
from collections.abc import Mapping

from gateway.formats.dialect import MARKS
from gateway.formats.format import CallParser
from gateway.formats.markers import END_TOKENS
from gateway.formats.response_template.calls import ArgumentCalls, CallNaming, CallOpening, ObjectCalls, PairCalls
from gateway.formats.response_template.pattern import PatternPart, PatternPiece, PatternTexts
from gateway.formats.response_template.place import TemplateNode
from gateway.formats.schema import JSON, STRING
from gateway.formats.tagged import TaggedCall

_JSON_ARGS = ("unquoted_keys", "string_delims", "allow_non_json", "strip")
_XML_ARGS = ("tag_pattern", "value_parser", "merge_duplicates")
_DELIMITERS = [[mark, mark] for mark in (*MARKS, '"', "'")]
_TYPES = {
    "text": STRING,
    "json": JSON,
    "int": frozenset({"integer"}),
    "float": frozenset({"number"}),
    "bool": frozenset({"boolean"}),
}
_PLACEHOLDER, _MEMBER = re.compile(r"\{(\w+)\}"), re.compile(r"\{content\.(\w+)\}")
_TAG_SHAPES = (["", "key", "", "value", ""], ["", "key", "", "", "value", ""])
_TRIMMED = re.compile(r"\\s[*+]\??\(\?P?<value>")
_ELEMENT = re.compile(r"<([\w:.-]+)")
_TAG = "should be tags around a key and a value, like <arg name=(?P<key>[^>]+)>(?P<value>.*?)</arg>"
_SHAPE = 'should be like {"function": {"name": "{name}", "arguments": "{content}"}}'


def compile_tool_calls(place: TemplateNode) -> tuple[dict[str, CallParser], tuple[str, ...]]:
    """Opening tag → what reads on behind it; and the closing tags."""
    pieces, closes = place.pieces("open"), place.texts("close")
    if not place.has("open"):
        place.fault("is missing; it tells a call from other text", "open")
    if not pieces:
        return {}, ()
    first, *rest = pieces
    if not isinstance(first, PatternTexts) or "" in first.options:
        place.fault("should begin with literal text that may not be missing", "open_pattern")
        return {}, ()
    after = tuple(dict.fromkeys((*closes, *_closing(pieces))))
    bare = (close.removesuffix(token) for close in closes for token in END_TOKENS)  # the server may have taken it
    call = _ToolCallsField(place, first.options, rest, tuple(dict.fromkeys((*after, *filter(None, bare))))).call()
    return dict.fromkeys(first.options, call) if call else {}, after


def _closing(pieces: tuple[PatternPiece, ...]) -> list[str]:
    """Return the tags that close the elements of an opening: templates leave out all but the last."""
    texts = [text for piece in pieces if isinstance(piece, PatternTexts) for text in piece.options]
    return [f"</{name}>" for text in texts for name in _ELEMENT.findall(text)]


class _ToolCallsField:
    """The field `tool_calls`: the tags that open it, the pieces of the pattern behind them, and its ends."""

    def __init__(
        self, place: TemplateNode, tags: tuple[str, ...], rest: list[PatternPiece], ends: tuple[str, ...]
    ) -> None:
        self._place, self._tags, self._rest, self._ends = place, tags, rest, ends
        self._parts = {piece.name for piece in rest if isinstance(piece, PatternPart) and piece.name}

    def call(self) -> CallParser | None:
        """Return the parser behind a tag; None if anything is wrong."""
        kind, origin = self._place.data.get("content", "text"), self._origin()
        if kind == "xml-inline":
            return self._pairs(origin)
        if kind in ("json", "text"):
            return self._json(origin)
        self._place.fault("should be json, text or xml-inline", "content")
        return None

    def _origin(self) -> CallNaming | Mapping[str, str]:
        """Where a call's name and id come from; or, for objects that have them inside, their keys → our words."""
        words = self._words()
        each = self._place.data.get("transform_each") is True
        inner = _PLACEHOLDER if each else _MEMBER
        keys = {found[1]: word for word, text in words.items() if (found := inner.fullmatch(text))}
        if len(keys) == len(words):
            return keys
        if each or words["arguments"] != "{content}":
            self._place.fault(_SHAPE, "transform")
            return {}
        fixed = "{" not in words["name"]
        return CallNaming(words["name"] if fixed else self._part(words["name"]), self._part(words.get("id", "")), fixed)

    def _words(self) -> Mapping[str, str]:
        """Our words → what the template's transform has for them; nothing if the content is a whole call."""
        transform = self._place.data.get("transform")
        function = transform.get("function", transform) if isinstance(transform, Mapping) else transform
        if function in (None, "{content}"):
            return {}
        if isinstance(transform, Mapping) and isinstance(function, Mapping):
            given = {**transform, **function}
            words = {word: given[word] for word in ("name", "arguments", "id") if isinstance(given.get(word), str)}
            if "name" in words and "arguments" in words:
                return words
        self._place.fault(_SHAPE, "transform")
        return {}

    def _part(self, text: str) -> str:
        """Return the group of the opening pattern that a text like `{name}` refers to; "" if it refers to none."""
        found = _PLACEHOLDER.fullmatch(text)
        if found and found[1] in self._parts:
            return found[1]
        if text:
            self._place.fault(f"{text} should be a group of open_pattern, like {{name}} for (?P<name>…)", "transform")
        return ""

    def _json(self, origin: CallNaming | Mapping[str, str]) -> CallParser:
        args = self._place.inside("content_args", _JSON_ARGS)
        pairs = args.data.get("string_delims") or ()
        if not isinstance(pairs, list | tuple) or not all(pair in _DELIMITERS for pair in pairs):
            args.fault(f"should be a list of any of these pairs: {', '.join(map(str, _DELIMITERS))}", "string_delims")
        if isinstance(origin, CallNaming):
            lax = bool(pairs or args.data.get("unquoted_keys"))
            return ArgumentCalls(CallOpening(self._rest, ("{", '"', *self._ends)), origin, self._ends, lax)
        if pairs or args.data.get("unquoted_keys"):
            args.fault("is read only where the content is nothing but arguments: take the name from open_pattern")
        return ObjectCalls(CallOpening(self._rest, ("{", "[", "```")), origin)

    def _pairs(self, origin: CallNaming | Mapping[str, str]) -> CallParser | None:
        args = self._place.inside("content_args", _XML_ARGS)
        if not isinstance(origin, CallNaming):
            self._place.fault(_SHAPE, "transform")
            return None
        if not self._ends:
            self._place.fault("is missing; where values are text, only a tag can tell that a call has ended", "close")
            return None
        tags = self._tagged(args)
        return PairCalls(CallOpening(self._rest, (tags.key, "{", *self._ends)), origin, tags) if tags else None

    def _tagged(self, args: TemplateNode) -> TaggedCall | None:
        """The tags of a call's arguments."""
        if args.data.get("merge_duplicates"):
            args.fault("a key that is there twice cannot be merged into a list; leave it out", "merge_duplicates")
        value = args.inside("value_parser", ("name", "args"))
        kind = value.data.get("name", "text")
        if not isinstance(kind, str) or kind not in _TYPES:
            value.fault(f"should be one of: {', '.join(_TYPES)}", "name")
            return None
        pieces = args.pattern("tag_pattern")
        texts = [piece.options for piece in pieces if isinstance(piece, PatternTexts)]
        shape = [piece.name if isinstance(piece, PatternPart) else "" for piece in pieces]
        if shape not in _TAG_SHAPES or any(len(options) > 1 for options in texts[:-1]):
            if pieces:
                args.fault(_TAG, "tag_pattern")
            return None
        (key, *_), (key_end, *_), *between, value_ends = texts
        quote = key[-1] if key[-1] in "\"'" else ""
        return TaggedCall(
            key=key.removesuffix(quote),
            key_end=key_end.removeprefix(quote),
            value=between[0][0] if between else "",
            value_ends=value_ends,
            call_ends=self._ends,
            next=(*self._tags, *self._ends),
            unknown=_TYPES[kind],
            trim=bool(_TRIMMED.search(args.data["tag_pattern"])),
        )
