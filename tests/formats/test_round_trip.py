"""Test that turns written in each format are read back: whole, under every cut, and cut short."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.formats.markers import END_TOKENS
from gateway.formats.parser import ParseContext
from gateway.warnings import Warnings
from support.encoders import ENCODERS
from support.encoders.turn import Call, Calls, Text, Thought, plain
from support.format_events import calls, strings, text_events, untraced, written
from support.format_literals import all_tags, tags
from support.pipeline import cut, grammatical, singly
from support.sampling import EXAMPLES, ONE_OF_EACH_GRAMMAR, examples, one_of, places, thorough

SITUATIONS = json.loads((Path(__file__).parent / "situations.json").read_text())
TOOLS = SITUATIONS["tools"]
OFFERED = ParseContext(TOOLS)
LONG = 10_000  # characters
PLACES = 4  # cuts of a text in a thorough run, unless it is long
FULL = (
    "a whole turn",
    "text, then calls",
    "text alone",
)  # all cuts are tried for the first of these that a format can write
JSON_TYPES = {bool: "boolean", int: "integer", float: "number", dict: "object", list: "array", str: "string"}


def parts_of(turn):
    times = turn.get("times", 1)
    for kind, content in turn["parts"]:
        if kind == "calls":
            yield Calls(
                tuple(
                    Call(name, {key: stretched(value, times) for key, value in args.items()}) for name, args in content
                )
            )
        else:
            yield {"thought": Thought, "text": Text}[kind](content)


def stretched(value, times):
    return value * times if isinstance(value, str) else value


def can_say(encoder, parts):
    """Return whether a format can write such a turn."""
    made = [part for part in parts if isinstance(part, Calls)]
    if made and (not encoder.calls or (encoder.last and parts[-1] is not made[0])):
        return False
    if not encoder.thought and any(isinstance(part, Thought) for part in parts):
        return False
    arguments = [(call.name, key, value) for part in made for call in part.calls for key, value in call.args.items()]
    if encoder.typed and not all(fits(*argument) for argument in arguments):
        return False
    return all(encoder.strings(text) for _, _, value in arguments for text in (plain(value), *inside(value)))


def fits(tool, key, value):
    """Return whether the schema gives the type of a value that is written without it."""
    schema = TOOLS[tool].get("properties", {}).get(key, {"type": "string"})
    kind = JSON_TYPES.get(type(value), "null")
    return kind in schema["type"] or (kind == "integer" and "number" in schema["type"])


def inside(value):
    """Return the strings in a value."""
    if isinstance(value, str):
        return [value]
    parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in inside(part)]


def expected_events(parts):
    """Return the turn as written events, with arguments as values."""
    out = []
    for part in parts:
        if isinstance(part, Calls):
            out += [["call", call.name, repr(call.args)] for call in part.calls]
        else:
            out.append(["reasoning" if isinstance(part, Thought) else "text", part.text])
    return out


def with_parsed_arguments(events):
    """Return events with arguments as values, and texts without the line end that parts them from one before a call."""
    out = []
    for i, event in enumerate(events):
        if event[0] == "call":
            out.append([*event[:2], repr(json.loads(event[2]))])
        elif event[0] == "text" and strings(events[:i], "text"):
            out.append(["text", event[1].removeprefix("\n")])
        else:
            out.append(event)
    return out


def some_places(text):
    """Return places of a text in even steps; one of them in a run that is not thorough."""
    found = range(0, len(text), max(1, len(text) // (PLACES if len(text) < LONG else 1) - 1))
    return found if thorough() else [one_of(found, text)]


def check_cut_short(format, text, place, whole):
    """Check that the events of a cut turn are the beginning of those of the whole."""
    events = written(text_events([text[:place]], format, OFFERED, "length"))
    for kind in ("text", "reasoning"):
        assert strings(whole, kind).startswith(strings(events, kind)), (place, kind)
    names, broken = calls(whole), calls(events)
    assert [name for name, _ in broken] == [name for name, _ in names[: len(broken)]], place
    for (_, args), (_, full) in zip(broken, names, strict=False):
        assert full.startswith(args) or args == "{}", place


TEXT_MAY_END_ANYWHERE = ("harmony",)  # a body that is no JSON is code


def scalars(value):
    """Return the strings, numbers and words in a value, as JSON."""
    if isinstance(value, dict | list):
        return {text for part in (value.values() if isinstance(value, dict) else value) for text in scalars(part)}
    return {json.dumps(value)}


def check_ended_early(format, text, place, whole):
    """Check a turn that the model ends at this place: a call is incomplete, or its values are those of the whole."""
    ledger = Warnings()
    events = text_events([text[:place]], format, OFFERED, ledger=ledger)
    assert grammatical(events)
    found = [event for event in written(events) if event[0] == "call"]
    for (_, _, args, *incomplete), (_, full) in zip(found, calls(whole), strict=False):
        if incomplete:
            assert "invalid:tool_calls.function.arguments" in ledger.entries(), place
        elif format not in TEXT_MAY_END_ANYWHERE:
            assert scalars(json.loads(args)) <= scalars(json.loads(full)), place


@pytest.mark.parametrize("format", sorted(ENCODERS))
@untraced
def test_round_trip_gives_back_each_situation(format):
    """One test checks all situations of a format: three thousand tests of a millisecond took as long again to report."""
    for turn in SITUATIONS["turns"]:
        parts = tuple(parts_of(turn))
        if can_say(ENCODERS[format], parts):
            try:
                check_situation(format, parts)
            except Exception as error:
                error.add_note(f"situation: {turn['what']}")
                raise


def check_situation(format, parts):
    text = ENCODERS[format].encode(parts)
    whole = written(text_events([text], format, OFFERED))
    assert with_parsed_arguments(whole) == expected_events(parts)
    pieces = singly(text) if len(text) < LONG or thorough() else [text[i : i + 61] for i in range(0, len(text), 61)]
    assert written(text_events(pieces, format, OFFERED)) == whole
    for place in some_places(text):
        assert written(text_events([text[:place], text[place:]], format, OFFERED)) == whole, place
        check_cut_short(format, text, place, whole)
        check_ended_early(format, text, place, whole)


@pytest.mark.parametrize("format", sorted(ENCODERS))
@untraced
def test_round_trip_is_the_same_at_every_cut_and_every_end(format):
    turns = [tuple(parts_of(turn)) for turn in SITUATIONS["turns"] if turn["what"] in FULL]
    parts = max((turn for turn in turns if can_say(ENCODERS[format], turn)), key=len)
    text = ENCODERS[format].encode(parts)
    whole = written(text_events([text], format, OFFERED))
    for place in places(len(text), everywhere=format in ONE_OF_EACH_GRAMMAR, most=len(text)):
        assert written(text_events([text[:place], text[place:]], format, OFFERED)) == whole, place
        check_cut_short(format, text, place, whole)
        check_ended_early(format, text, place, whole)


# Random turns

WORDS = st.sampled_from(
    ["a", "Paris", "naïve", "日本", "😀", "é", "\u2028", "\ufffd", "x = 1", "<b>", "&amp;", "12", "true"]
)
MARKS = st.sampled_from(
    [
        " ",
        "\n",
        "\r\n",
        '"',
        "'",
        "\\",
        "\\n",
        "\\u0041",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        "|",
        "</",
        ",",
        ":",
        "=",
        "\0",
        "\x1b",
    ]
)
TAGS = st.sampled_from(all_tags())
anything = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


def adversarial(format):
    """Draw strings of the format's tags, other tags, and characters that are special to any grammar."""
    own = st.sampled_from(tags(format) or ("<",))
    return st.lists(st.one_of(WORDS, MARKS, own, own, TAGS, anything), max_size=6).map("".join)


def harmless(format):
    """Draw texts without tags of the format, and without white space at their ends."""
    own = [tag for tag in (*tags(format), *END_TOKENS) if len(tag) > 1]
    marks = st.sampled_from([" ", "\n", '"', ", ", ". "])
    pieces = st.lists(st.one_of(WORDS, marks, TAGS, anything), min_size=1, max_size=6)
    return pieces.map("".join).map(str.strip).filter(lambda text: not is_markup(text, own))


def is_markup(text, own):
    """Return whether a part of a text may be read as a tag, or as the start of a tool call."""
    return not text.strip(",;") or text[-1] in "{[(" or any((text + tag).find(tag) < len(text) for tag in own)


def values(format):
    strings = adversarial(format)
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    return {
        "text": strings,
        "count": st.integers(),
        "ratio": numbers,
        "flag": st.booleans(),
        "items": st.lists(st.integers(), max_size=3),
        "names": st.lists(strings, max_size=3),
        "object": st.fixed_dictionaries(
            {}, optional={"street": strings, "number": st.integers(), "open": st.booleans()}
        ),
        "maybe": st.none() | st.integers(),
    }


def turns(format, encoder):
    every = st.builds(Call, st.just("every"), st.fixed_dictionaries({}, optional=values(format)))
    free = st.builds(
        Call, st.just("free"), st.dictionaries(st.sampled_from(["k", "key_2", "käse"]), adversarial(format), max_size=2)
    )
    made = st.lists(every | free, min_size=1, max_size=3).map(lambda made: Calls(tuple(made)))
    text = harmless(format)
    thought = [text.map(lambda text: Thought(text + "\n"))] if encoder.thought else []
    ways = [[text.map(Text)]]
    if encoder.calls:
        ways += [[made], [text.map(Text), made]]
        ways += [] if encoder.last else [[made, text.map(Text)], [text.map(Text), made, text.map(Text), made]]
    return st.one_of([st.tuples(*start, *way) for way in ways for start in ([], thought)])


@pytest.mark.parametrize("format", sorted(ENCODERS))
@untraced
def test_round_trip_gives_back_any_turn(format):
    encoder = ENCODERS[format]

    @settings(max_examples=examples(EXAMPLES), deadline=None)
    @given(parts=turns(format, encoder), data=st.data())
    def check(parts, data):
        assume(can_say(encoder, parts))
        text = encoder.encode(parts)
        whole = written(text_events([text], format, OFFERED))
        assert with_parsed_arguments(whole) == expected_events(parts), text
        place = data.draw(st.integers(0, len(text)))
        for pieces in (singly(text), cut(data, text), [text[:place], text[place:]]):
            assert written(text_events(pieces, format, OFFERED)) == whole
        check_cut_short(format, text, place, whole)
        check_ended_early(format, text, place, whole)

    check()
