"""Recognize reasoning and calls of an unknown format by the tags of any family.

This format is also applied behind a backend that parses by itself but lets markup through.  Brackets and words, which
are no unique marks, count at the beginning only.  Tags that also occur in HTML do not count.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from gateway.formats.grammars.headed import HeadedCall
from gateway.formats.grammars.json_calls import tagged_calls
from gateway.formats.markup import Markup
from gateway.formats.markup_tags import THINK
from gateway.formats.parser import CallParser, Format, by_next_token
from gateway.formats.spec import FormatSpec

_Value = TypeVar("_Value")


_FUNCTION_CALL = "function call<|role_sep|>"  # GigaChat's tag, whose second half occurs in no other text


def auto_format(rows: Mapping[str, FormatSpec]) -> Format:
    """Return the format of text that any of the rows may have written.

    If a row's `first` text hands the response to it, that row has no end tokens of its own.
    """
    first = {tag: row.parse for row in rows.values() for tag in row.first if row.parse}
    return replace(_net(rows), first=first)


def _net(rows: Mapping[str, FormatSpec]) -> Markup:
    """Combine all tags in one Markup.

    If families share a tag, the text behind it decides, else the first of these families.
    """
    markups = [row.parse for row in rows.values() if isinstance(row.parse, Markup)]
    calls = _first((tag, call) for markup in markups for tag, call in markup.calls.items())
    calls |= _shared(rows, {tag: call for tag, call in calls.items() if tag.endswith("=")})
    before = _first((tag, tag) for markup in markups for tag in markup.before)
    silent = _first((tag, tag) for markup in markups for tag in markup.silent)
    return Markup(
        thoughts={**THINK, **_first(pair for markup in markups for pair in markup.thoughts.items())},
        calls=calls,
        before=tuple(tag for tag in before if tag not in calls),
        after=tuple(_first((tag, tag) for markup in markups for tag in markup.after)),
        silent=tuple(tag for tag in silent if tag.startswith("<|") and tag not in calls),
    )


def _shared(rows: Mapping[str, FormatSpec], elements: Mapping[str, CallParser]) -> dict[str, CallParser]:
    """Return the parsers of tags that several families share; the text behind a tag decides."""
    kimi, solar = "<|tool_call_begin|>", "<|tool_call:begin|>"
    invoke = {"<invoke name=": elements["<invoke name="]}
    either = _either(_call(rows["kimi_k2"], kimi), _call(rows["deepseek_v3"], kimi))
    options: dict[str, CallParser] = {"{": tagged_calls, "[": tagged_calls, **elements}
    options["<tool_call>"] = by_next_token(options, _call(rows["glm47_xml"], "<tool_call>"))
    return {
        kimi: either,
        "<tool_call>": options["<tool_call>"],
        "<tool_calls>": by_next_token({"<tool_call>": _call(rows["hy_v3"], "<tool_call>"), **invoke}, tagged_calls),
        "<function_calls>": by_next_token(invoke, _call(rows["olmo3_pythonic"], "<function_calls>")),
        "<|tool_calls|>": by_next_token(
            {"{": tagged_calls, "[": tagged_calls, solar: _call(rows["solar_open"], solar)}, either
        ),
        _FUNCTION_CALL: _call(rows["gigachat3"], _FUNCTION_CALL),
        "<|tool_call_start|>": _call(rows["lfm2_pythonic"], "<|tool_call_start|>"),
        "[TOOL_CALLS]": _call(rows["mistral"], "[TOOL_CALLS]"),
    }


def _either(kimi: CallParser, deepseek: CallParser) -> HeadedCall:
    """Return the parser of a call by Kimi or DeepSeek, whose tags are alike."""
    assert isinstance(kimi, HeadedCall) and isinstance(deepseek, HeadedCall)
    return replace(
        kimi,
        begins=kimi.begins + deepseek.begins,
        kind=deepseek.kind,
        separators=kimi.separators + deepseek.separators,
        ends=kimi.ends + deepseek.ends,
    )


def _call(row: FormatSpec, tag: str) -> CallParser:
    assert isinstance(row.parse, Markup)
    return row.parse.calls[tag]


def _first(tags: Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    """Map each tag that only models write to the first value that is given for it."""
    found: dict[str, _Value] = {}
    for tag, value in tags:
        if len(tag) > 3 and tag[0] in "<[]":
            found.setdefault(tag, value)
    return found
