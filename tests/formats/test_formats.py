"""Test every format: its case file under every cut, and properties of arbitrary text."""

import json
import tracemalloc
from itertools import count
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.events import Finish, TextDelta, ToolArgsDelta, ToolCallEnd
from gateway.formats import FORMATS, canonical_name, format_names
from gateway.formats.markers import END_TOKENS, Markers, NamedLines
from gateway.formats.markup import Markup
from gateway.formats.parser import ParseContext
from gateway.pipeline.normalizer import Normalizer
from gateway.warnings import Warnings
from support.call_counts import Calls
from support.encoders import ENCODERS
from support.format_events import calls, strings, text_events, untraced, written
from support.format_literals import all_tags, literals
from support.pipeline import TOOLS, chunk, cut, events_of, grammatical, parser_settings, singly
from support.sampling import EXAMPLES, examples, places

CASES = Path(__file__).parent / "cases"
WITHOUT_CALLS = {"native", "auto", "think", "response_template"}


def context_of(case):
    """Return the context of a case; `tools` may be false for none, or a list of names."""
    tools = case.get("tools", True)
    offered = {name: {} for name in tools} if isinstance(tools, list) else TOOLS if tools else {}
    return ParseContext(offered, case.get("thought") == "open", unopened=case.get("unopened", False))


def cases():
    for path in sorted(CASES.glob("*.json")):
        for case in json.loads(path.read_text()):
            yield pytest.param(path.stem, case, id=f"{path.stem}: {case['what']}")


@pytest.mark.parametrize(("format", "case"), list(cases()))
def test_format_case_means_the_same_under_every_cut(format, case):
    text, ledger, how = case["text"], Warnings(), (format, context_of(case), case.get("finish", "stop"))
    whole = text_events([text], *how, ledger)
    assert written(whole) == case["events"]
    assert [entry for entry in ledger.entries() if entry != "repaired:finish_reason"] == case.get("ledger", [])
    assert grammatical(whole)
    assert text_events(singly(text), *how) == whole
    check_cuts(text, how, whole, everywhere=case.get("cuts") == "all")


@untraced
def check_cuts(text, how, whole, *, everywhere):
    for place in places(len(text), everywhere=everywhere):
        assert text_events([text[:place], text[place:]], *how) == whole, place


# The table


def test_formats_have_a_case_file_and_an_encoder():
    assert {path.stem for path in CASES.glob("*.json")} == set(FORMATS)
    assert {*FORMATS} - WITHOUT_CALLS <= {*ENCODERS} <= {*FORMATS}


def test_format_aliases_are_unique_and_name_formats():
    aliases = [alias for row in FORMATS.values() for alias in row.aliases]
    assert format_names() == {*FORMATS, *aliases} and len(format_names()) == len(FORMATS) + len(aliases)
    assert canonical_name("hermes") == "hermes_json" and canonical_name("think") == "think"


@pytest.mark.parametrize("name", sorted({*FORMATS} - WITHOUT_CALLS))
def test_format_example_is_one_tool_call(name):
    weather = {"get_weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}
    events = written(text_events([FORMATS[name].example], name, ParseContext(weather)))
    assert [(tool, json.loads(args)) for tool, args in calls(events)] == [("get_weather", {"city": "Paris", "days": 3})]
    assert not any(tag in strings(events, kind) for tag in ("<", "[", "{", "Paris") for kind in ("text", "reasoning"))


# Arbitrary text

WORDS = st.sampled_from(
    ["hello ", "é😀", "\n", " ", "12", "-", "True", "null", "f", "g", "u", "a", "n", "o", "f(", '"a": ', "a=", '"f"', "functions.f:0"]
)  # fmt: skip
JSON = st.sampled_from(
    ['{"name": "f", "arguments": {"a": "}\\"<"}}', '{"name":"g", "parameters": []}', '{"arguments": {"n": 1}, "name": "f"}',
     '{"name": "f", "arguments": ', '{"name": "", "arguments": {}}', '{"a": "x"}', '{"a": "', '"}', "}}", "{}", '\\"', "\\",
     "\\u00", "{'a': ('b',)}", "[f(a='b')]", '[1, "x"]']
)  # fmt: skip
ALL_TAGS = st.sampled_from((*all_tags(), *END_TOKENS))


def garbage(format, *more):
    """Draw text of which half is the format's own tags and keys."""
    own = st.sampled_from(literals(format) or ("<",))
    return st.lists(st.one_of(own, own, own, WORDS, JSON, ALL_TAGS, *more), max_size=12).map("".join)


def each_format(check):
    """Parametrize a property over all formats."""
    return pytest.mark.parametrize("format", sorted(FORMATS))(untraced(check))


def contexts():
    return st.builds(
        ParseContext,
        st.sampled_from([TOOLS, TOOLS, TOOLS, {}]),
        st.booleans(),
        st.sampled_from([None, "end", "text", "last"]),
        st.sampled_from([None, None, "", "f"]),
    )


@each_format
def test_format_reads_any_text_the_same_under_any_cut(format):
    @settings(max_examples=examples(EXAMPLES), deadline=None)
    @given(text=garbage(format), context=contexts(), finish=st.sampled_from(["stop", "length"]), data=st.data())
    def check(text, context, finish, data):
        whole = text_events([text], format, context, finish)
        assert grammatical(whole)
        assert text_events(singly(text), format, context, finish) == whole
        assert text_events(cut(data, text), format, context, finish) == whole

    check()


@each_format
def test_format_reads_a_cut_text_as_the_beginning_of_the_whole(format):
    """White space at the end is left out: a tag might take it.  So is a call that its end makes text.

    A parameter that comes twice replaces the value that a cut text ends with.
    """

    @settings(max_examples=examples(EXAMPLES), deadline=None)
    @given(text=garbage(format), context=contexts(), data=st.data())
    def check(text, context, data):
        place, ledger = data.draw(st.integers(0, len(text))), Warnings()
        whole = written(text_events([text], format, context, ledger=ledger))
        if "unread" in ledger.codes():
            return
        repaired = "repaired:tool_calls.function.arguments" in ledger.entries()
        begun = written(text_events([text[:place]], format, context, "length"))
        if any(tag in strings(whole, "reasoning") for tag in getattr(FORMATS[format].parse, "openings", ())):
            return  # a thought that quotes a tool call may be cut where it looked like one
        for kind in ("text", "reasoning"):
            assert strings(whole, kind).startswith(strings(begun, kind).rstrip())
        assert len(calls(begun)) <= len(calls(whole))
        for (name, args), (full_name, full) in zip(calls(begun), calls(whole), strict=False):
            assert name == full_name and (full.startswith(args) or args == "{}" or repaired)

    check()


@each_format
def test_format_loses_no_word(format):
    numbered = count()
    words = st.builds(lambda: f"\nword{next(numbered)};\n")

    @settings(max_examples=examples(EXAMPLES), deadline=None)
    @given(text=garbage(format, words, words, words), context=contexts())
    def check(text, context):
        ledger = Warnings()
        events = text_events([text], format, context, ledger=ledger)
        kept = "".join(part for event in written(events) for part in event[1:])
        if not any(entry.startswith("dropped:") for entry in ledger.entries()):
            for word in text.split():
                assert not word.startswith("word") or word in kept

    check()


@each_format
def test_format_reads_the_text_after_a_prefill_as_the_rest_of_the_whole(format):
    """A tool call that the prefill leaves open is sent whole; one that it ended is not sent."""

    @settings(max_examples=examples(EXAMPLES), deadline=None)
    @given(text=garbage(format), context=contexts(), data=st.data())
    def check(text, context, data):
        place = data.draw(st.integers(0, len(text)))
        before, after = text[:place], text[place:]
        whole = written(text_events([text], format, context))
        known = [*Normalizer(replace(parser_settings(format), context=context)).feed(TextDelta(0, before))]
        rest = written(text_events([after], format, replace(context, prefill=before)))
        if after:
            ended = sum(isinstance(event, ToolCallEnd) for event in known)
            assert calls(rest) == calls(whole)[ended:]
            for kind in ("text", "reasoning"):
                held = (
                    strings(whole, kind).removeprefix(strings(written(known), kind)).removesuffix(strings(rest, kind))
                )
                assert strings(written(known), kind) + held + strings(rest, kind) == strings(whole, kind)
                # The line end that parts two texts is in neither part.
                assert is_in_order("".join(held.split()), before)
                assert is_in_order("".join(strings(rest, kind).split()), after)

    check()


def is_in_order(part, text):
    """Return whether all characters of a part are in a text, in their order."""
    left = iter(text)
    return all(character in left for character in part)


@each_format
def test_text_without_a_tag_stays_text(format):
    markup = FORMATS[format].parse
    tags, first = getattr(markup, "without_calls", None), tuple(getattr(markup, "first_without_calls", ()))

    @settings(max_examples=examples(EXAMPLES), deadline=None)
    @given(text=garbage(format).map(lambda text: f"{text.strip()}."))
    def check(text):
        assume(not text.startswith(first) and not (tags and tags.search(text)))
        assert written(text_events([text], format, ParseContext({}))) == [["text", text]]

    if markup is None or hasattr(markup, "without_calls"):
        check()


# Edge cases of readers and markers


def test_markers_find_the_longer_of_two():
    markers = Markers("[", "[THINK]", "<a", "<a>")
    assert markers.short == {"[", "<a"} and markers.search("x[THINK]")[0] == "[THINK]"


@given(st.lists(st.text("ab<", min_size=1, max_size=5), min_size=1, max_size=5))
def test_markers_with_a_long_literal_find_the_same(some):
    """The beginnings of long literals are searched for, instead of being kept as copies."""
    known, long = Markers(*some), Markers(*some, "c" * 2000)
    texts = {one[start:end] for one in some for start in range(6) for end in range(start + 1, 7)} - {""}
    assert {text for text in texts if text in known.prefixes} == {text for text in texts if text in long.prefixes}
    assert isinstance(known.prefixes, frozenset) and known.short == long.short == known.prefixes.intersection(some)
    assert long.partial_suffix("accc") == 3 and "c" * 2000 not in long.prefixes


def test_markers_take_little_memory_for_a_long_literal():
    """Copies of its beginnings would take 200 MB."""
    tracemalloc.start()
    try:
        Markers("x" * 20_000)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=4), st.text(">ab\n", max_size=20))
def test_named_lines_are_found_as_markers_are(names, text):
    lines, markers = NamedLines(*names), Markers(*(f">>>{name}\n" for name in names))
    found, expected = lines.search(text, 0), markers.search(text, 0)
    assert (found and found.span()) == (expected and expected.span())
    assert lines.partial_suffix(text) == markers.partial_suffix(text)
    assert (lines.short, lines.first, lines.max_length) == (markers.short, markers.first, markers.max_length)


def test_named_lines_of_many_names_are_found_by_little_work():
    """A pattern of the names takes millions of calls to compile."""
    names = [f"tool_{number}_{'x' * 60}" for number in range(2000)]
    with Calls(lambda _: True) as calls:
        found = NamedLines(*names).search(f">>>x>>>{names[7]}\n")
    assert found[0] == f">>>{names[7]}\n" and calls.count < 2 * len(names)


def test_format_without_reasoning_and_tools_reads_all_as_text():
    without = replace(parser_settings(), format=Markup(thoughts={}), context=ParseContext({}, thought_open=True))
    assert written(Normalizer(without).feed(TextDelta(0, "<think>a</think>"))) == [["text", "<think>a</think>"]]


def test_marker_of_one_character_holds_nothing_back():
    assert Markers("|").partial_suffix("a|") == 0


@given(
    st.lists(st.sampled_from(["é", "\\", '"', "\\u00e9", "\\ud83d", "\\ude00", "\\x", "\n", "a"]), max_size=8).map(
        "".join
    )
)
def test_tool_call_arguments_in_a_string_are_the_same_under_any_cut(inside):
    text = '<tool_call>{"name": "f", "arguments": "' + inside + '"}</tool_call>'
    assert text_events([text]) == text_events(singly(text))


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
def test_tool_call_arguments_keep_or_replace_odd_escapes(inside, wanted):
    text = f'<tool_call>{{"name": "f", "arguments": "{inside}"}}</tool_call>'
    for pieces in ([text], singly(text)):
        assert "".join(e.json for e in text_events(pieces) if isinstance(e, ToolArgsDelta)).startswith(wanted)


@pytest.mark.parametrize(
    ("format", "begun"),
    [("hunyuan_a13b", "Hi</answer>"), ("hermes_json", "Hm</think>"), ("hermes_json", "<tool_call></tool_call>")],
)
def test_white_space_behind_a_tag_that_exceeds_the_limit_is_text(format, begun):
    text = begun + " " * 500 + "x"
    for pieces in ([text], singly(text)):
        assert written(text_events(pieces, format, ParseContext(TOOLS, unopened=True), limit=100)) == [["text", text]]


@pytest.mark.parametrize("early", ['{"arguments": {"a": "%s"}, "name": "f"}', '{"x": "%s'])
def test_tool_call_candidate_is_held_back_up_to_a_limit(early):
    text = "<tool_call>" + early % ("x" * 5000)
    for pieces in ([text], singly(text)):
        first, *_ = text_events(pieces, limit=1000)
        assert isinstance(first, TextDelta) and first.text.startswith("<tool_call>{")
    assert "".join(e.text for e in text_events([text], limit=1000) if isinstance(e, TextDelta)).startswith(text[:1000])


BEGINNINGS = {
    "hermes_json": '<tool_call>{"name": "NAME", "arguments":',
    "qwen_xml": "<tool_call>\n<function=NAME>\n",
    "mistral": "[TOOL_CALLS]NAME[ARGS]",
    "glm45_xml": "<tool_call>NAME",
    "harmony": "<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>",
}


@pytest.mark.parametrize("format", BEGINNINGS)
@pytest.mark.parametrize(("name", "finish", "fits"), [("f", "stop", False), ("g", "stop", True), ("f", "length", True)])
def test_tool_call_that_breaks_off_before_required_arguments_is_invalid(format, name, finish, fits):
    text, tools = BEGINNINGS[format].replace("NAME", name), {"f": {"required": ["a"]}, "g": {"properties": {"a": {}}}}
    for pieces in ([text], singly(text)):
        ledger = Warnings()
        events = text_events(pieces, format, ParseContext(tools), finish, ledger)
        assert [event.fits for event in events if isinstance(event, ToolCallEnd)] in ([fits], [])
        assert ("invalid:tool_calls.function.arguments" in ledger.entries()) is not fits


def test_tool_call_that_ends_without_required_arguments_passes():
    ledger = Warnings()
    text, context = '<tool_call>{"name": "f"}</tool_call>', ParseContext({"f": {"required": ["a"]}})
    assert calls(written(text_events([text], "hermes_json", context, ledger=ledger))) == [("f", "{}")]
    assert ledger.entries() == []


def test_text_parser_ends_with_its_stream():
    assert events_of([b"data: {}\n\n", chunk(content="a <to"), b"data: [DONE]\n\n"])[:2] == [
        TextDelta(0, "a <to"),
        Finish(0, "stop"),
    ]
