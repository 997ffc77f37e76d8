r"""Compile a format of the user's own: the response template of a checkpoint, from its tokenizer_config.json.

    {"fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": "<tool_call>\\s*<function=(?P<name>[^>]+)>", "close": "</tool_call>",
            "content": "xml-inline",
            "content_args": {"tag_pattern": "<parameter=(?P<key>[^>]+)>(?P<value>.*?)</parameter>"},
            "transform": {"function": {"name": "{name}", "arguments": "{content}"}}},
        "content": {"close": "<|im_end|>"}}}

The template is compiled once, to the tags and grammars of the families of this package.  So malformed text is handled
as in their formats, and values get the types of the tools' schemas.  Anything that a template does not mention is text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.formats.markers import END_TOKENS, EndTokens
from gateway.formats.markup import Markup
from gateway.formats.response_template.node import FIELD, NodePath, TemplateNode
from gateway.formats.response_template.pattern import PatternTexts
from gateway.formats.response_template.tool_calls import compile_tool_calls

_TEMPLATE = ("version", "defaults", "fields", "start_anchor", "start_anchor_pattern")
_THOUGHTS = ("thinking", "reasoning_content", "reasoning")
_FIELDS = ("content", *_THOUGHTS, "tool_calls")


class TemplateError(Exception):
    """A template that cannot be used.

    faults: each faulty path in it, with the requirement that it does not meet.
    """

    def __init__(self, faults: Sequence[tuple[NodePath, str]]) -> None:
        super().__init__("\n".join(": ".join(filter(None, (".".join(path), text))) for path, text in faults))
        self.faults = tuple(faults)


def compile_template(template: Mapping[str, Any]) -> Markup:
    """Return the format that a template describes.

    Raises TemplateError with all faults of the template.
    """
    root = TemplateNode(template, (), _TEMPLATE, [])
    if root.data.get("version", 1) != 1:
        root.add_error("should be 1", "version")
    fields = root.inside("fields", _FIELDS)
    if not fields.data:
        fields.add_error(f"should have at least one of: {', '.join(_FIELDS)}")
    thoughts = _thoughts(fields)
    silent, ends = _content(root, fields)
    calls, after = compile_tool_calls(fields.inside("tool_calls", FIELD)) if "tool_calls" in fields.data else ({}, ())
    for tag in sorted(({*thoughts} & {*silent}) | ({*thoughts, *silent} & {*calls})):
        fields.add_error(f"{tag!r} opens more than one field; use different tags")
    if root.faults:
        raise TemplateError(root.faults)
    others = {*silent, *(close for closes in thoughts.values() for close in closes)}
    return Markup(
        thoughts=thoughts,
        calls=calls,
        after=tuple(tag for tag in after if tag not in others),
        silent=silent,
        ends=EndTokens(*(token for token in END_TOKENS if token not in after), *ends),
    )


def find_template(data: object) -> Mapping[str, Any]:
    """Return the template in a decoded file, which holds it alone or in a tokenizer's configuration.

    Raises TemplateError without one.
    """
    held = data if isinstance(data, Mapping) else {}
    for template in (held.get("response_template"), held.get("response_schema"), held):
        if isinstance(template, Mapping) and "fields" in template:
            return template
    if "response_schema" in held:
        older = "has the older form with x-regex; a template needs `fields`, as of transformers 5.13"
        raise TemplateError([((), f"response_schema {older}")])
    raise TemplateError([((), "contains neither response_template nor the `fields` of one")])


def _thoughts(fields: TemplateNode) -> dict[str, tuple[str, ...]]:
    """Return the opening tags of reasoning, each with its closing tags."""
    thoughts: dict[str, tuple[str, ...]] = {}
    for name in _THOUGHTS:
        if name in fields.data:
            place = _text(fields, name)
            opens, closes = _tags(place), place.texts("close")
            thoughts |= dict.fromkeys(opens, closes)
    return thoughts


def _content(root: TemplateNode, fields: TemplateNode) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the tags around the content, and those that only end it."""
    place = _text(fields, "content")
    closes = place.texts("close")
    if not place.has("open"):
        return (), closes
    anchors = [anchor for anchor in root.texts("start_anchor") if not anchor[0].isalnum()]  # the model may repeat it
    return (*_tags(place), *closes, *anchors), ()


def _text(fields: TemplateNode, name: str) -> TemplateNode:
    """Return the node of a field that is plain text."""
    place = fields.inside(name, FIELD)
    place.inside("content_args", ("strip",))
    if place.data.get("content", "text") != "text":
        place.add_error("should be text", "content")
    if place.data.get("transform") is not None:
        place.add_error("does not apply to text; remove it", "transform")
    return place


def _tags(place: TemplateNode) -> tuple[str, ...]:
    """Return the tags that open reasoning or content."""
    pieces = place.pieces("open")
    if len(pieces) == 1 and isinstance(pieces[0], PatternTexts) and "" not in pieces[0].options:
        return pieces[0].options
    if pieces:
        place.add_error("should be literal text in one piece, like (?:a|b)c", "open_pattern")
    elif not place.has("open"):
        place.add_error("is missing; if the prompt opens the thought, use the tag of the prompt", "open")
    return ()
