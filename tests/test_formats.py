"""Every format: its case file whole, per character and at every cut; properties on arbitrary text."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import TOOLS, cut, events_of, grammatical, merge, setting, singly

from gateway.events import Finish, Reasoning, Text, ToolArgs, ToolEnd, ToolStart
from gateway.formats import FORMATS, canonical, names
from gateway.formats.reader import Markers
from gateway.ledger import Ledger
from gateway.normaliser import Normaliser

CASES = Path(__file__).parent / "cases"
PIECES = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<", "</", "<tool", "hello ", "\n", '"', "{", "}", ",", "\\", " ",
    '{"name": "f", "arguments": {"a": "}\\"<"}}', '{"name":"g", "arguments": []}', '{"arguments": {"n": 1}, "name": "f"}',
    '{"name": "f", "arguments": ', '{"name": "f", "arguments": "{\\"a\\": \\"\\ud83d\\ude00\\"}"}', "<tool_call>\n", "é😀",
    "<function=f>", "<function=", "f>", "<parameter=a>", "<parameter=n>", "\nParis\n", "12", "True", "</parameter>",
    "</function>", "<parameter=o>", '[1, "x"]', "<|python_tag|>", "; ", '{"name": "f", "parameters": {}}', ": ", "null",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
formats = st.sampled_from(sorted(FORMATS))


def said(pieces, case=None, ledger=None, **options):
    """The events of a text that came in these pieces."""
    case = case or {}
    tools = TOOLS if case.get("tools", True) else {}
    thought_open = case.get("thought") == "open"
    normaliser = Normaliser(setting(tools=tools, thought_open=thought_open, ledger=ledger, **options))
    events = [event for piece in pieces if piece for event in normaliser.feed(Text(0, piece))]
    return merge([*events, *normaliser.feed(Finish(0, case.get("finish", "stop")))])


def written(events):
    """Events as a case file has them."""
    out = []
    for event in events:
        match event:
            case Text() | Reasoning():
                out.append([type(event).__name__.lower(), event.text])
            case ToolStart():
                out.append(["call", event.name, ""])
            case ToolArgs():
                out[-1][2] += event.json
            case ToolEnd(complete=False):
                out[-1].append("incomplete")
    return out


def cases():
    for path in sorted(CASES.glob("*.json")):
        for case in json.loads(path.read_text()):
            yield pytest.param(path.stem, case, id=f"{path.stem}: {case['what']}")


def test_each_format_has_a_row_and_a_case_file():
    assert {path.stem for path in CASES.glob("*.json")} == set(FORMATS)


def test_aliases_name_formats_and_nothing_twice():
    aliases = [alias for row in FORMATS.values() for alias in row.aliases]
    assert names() == {*FORMATS, *aliases} and len(names()) == len(FORMATS) + len(aliases)
    assert canonical("hermes") == "hermes_json" and canonical("think") == "think"


@pytest.mark.parametrize(("format", "case"), list(cases()))
def test_a_case_means_the_same_under_every_cut(format, case):
    text, ledger = case["text"], Ledger()
    whole = said([text], case, ledger, format=format)
    assert written(whole) == case["events"]
    assert [entry for entry in ledger.entries() if entry != "repaired:finish_reason"] == case.get("ledger", [])
    assert grammatical(whole)
    for cuts in [singly(text), *([text[:i], text[i:]] for i in range(len(text)))]:
        assert said(cuts, case, format=format) == whole


@settings(max_examples=400, deadline=None)
@given(text=texts, format=formats, data=st.data())
def test_any_cut_of_any_text_means_the_same(text, format, data):
    case = {
        "thought": data.draw(st.sampled_from(["open", "closed"])),
        "finish": data.draw(st.sampled_from(["stop", "length"])),
    }
    whole = said([text], case, format=format)
    assert whole == said(cut(data, text), case, format=format) == said(singly(text), case, format=format)
    assert grammatical(whole)


@settings(max_examples=300, deadline=None)
@given(text=texts, format=formats)
def test_without_tools_and_thoughts_all_is_text(text, format):
    text = text.replace("<think>", "")
    assert written(said([text], {"tools": False}, format=format)) == ([["text", text]] if text else [])


TAGS = [piece for piece in PIECES if not set(piece) & set('{}"\\')]


@settings(max_examples=300, deadline=None)
@given(text=st.lists(st.sampled_from(TAGS), max_size=12).map("".join), format=formats)
def test_no_word_is_lost_between_tags(text, format):
    kept = "".join(getattr(e, "text", getattr(e, "json", getattr(e, "name", ""))) for e in said([text], format=format))
    for word in ("hello ", "é😀", "Paris"):
        assert kept.count(word.strip()) >= text.count(word.strip())


@given(
    st.lists(st.sampled_from(["é", "\\", '"', "\\u00e9", "\\ud83d", "\\ude00", "\\x", "\n", "a"]), max_size=8).map(
        "".join
    )
)
def test_arguments_in_a_string_are_decoded_as_json_does_however_they_are_cut(inside):
    text = '<tool_call>{"name": "f", "arguments": "' + inside + '"}</tool_call>'
    assert said([text]) == said(singly(text))


@pytest.mark.parametrize(
    ("inside", "wanted"),
    [
        ("\\ud83d\\ude00", "😀"),
        ("\\ud83d", "\ufffd"),
        ("\\ud83dx\\ude00", "\ufffdx\ufffd"),
        ("\\x", "\\x"),
        ("a\nb", "a\nb"),
    ],
)
def test_odd_escapes_are_kept_or_replaced(inside, wanted):
    text = f'<tool_call>{{"name": "f", "arguments": "{inside}"}}</tool_call>'
    for pieces in ([text], singly(text)):
        assert "".join(e.json for e in said(pieces) if isinstance(e, ToolArgs)).startswith(wanted)


def test_markers_may_not_begin_one_another():
    with pytest.raises(ValueError, match="prefix"):
        Markers("<a", "<a>")


def test_a_marker_of_one_character_holds_nothing_back():
    assert Markers("|").tail("a|") == 0


@pytest.mark.parametrize("early", ['{"arguments": {"a": "%s"}, "name": "f"}', '{"x": "%s'])
def test_what_may_yet_be_a_call_is_held_back_only_so_far(early):
    text = "<tool_call>" + early % ("x" * 5000)
    for pieces in ([text], singly(text)):
        first, *_ = said(pieces, limit=1000)
        assert isinstance(first, Text) and first.text.startswith("<tool_call>{")
    assert "".join(e.text for e in said([text], limit=1000) if isinstance(e, Text)).startswith(text[:1000])


def test_a_text_parser_ends_with_its_stream():
    assert events_of([b"data: {}\n\n", b"data: [DONE]\n\n"]) == [
        Finish(0, "stop"),
        *events_of([b"data: [DONE]\n\n"])[1:],
    ]
