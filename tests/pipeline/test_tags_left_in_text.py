"""Test tags of calls that a server leaves in the text beside the calls that it sends itself."""

import json

import pytest
from msgspec.structs import replace

from gateway.formats import FORMATS
from support.format_events import calls, strings, written
from support.pipeline import DONE, call, chunk, events_of, parser_settings, singly

TOOLS = {"f": {"properties": {"a": {"type": "string"}}}}
ONE, TWO = ({"tool_calls": [call(n, f"c{n}", "f", f'{{"a": "{n}"}}')]} for n in range(2))
BEGUN, ENDED = {"tool_calls": [call(0, "c0", "f", '{"a"')]}, {"tool_calls": [call(0, None, None, ': "0"}')]}
KIMI, KIMI_END = "<|tool_calls_section_begin|><|tool_call_begin|>", "<|tool_call_end|><|tool_calls_section_end|>"
WORDS = "The parser waits for </tool_call> here."
QUOTED = "It writes:\n```xml\n<a>\n</tool_call>"

# What arrives, the format, the deltas (a text is one with content), the text of the client
LEFT = [
    ("a closing tag behind the call", "hermes_json", [ONE, "\n</tool_call>"], ""),
    ("a closing tag behind arguments in pieces", "hermes_json", [BEGUN, ENDED, "\n</tool_call>"], ""),
    ("a torn closing tag", "qwen_xml", [ONE, ">", "\n</tool_call>"], ""),
    ("two closing tags", "qwen_xml", [ONE, "\n</function>\n</tool_call>\n"], ""),
    ("tags between calls", "hermes_json", [ONE, "\n</tool_call>\n<tool_call>\n", TWO, "\n</tool_call>"], ""),
    ("text behind the tag", "hermes_json", ["Hi.", ONE, "\n</tool_call>\n\nDone."], "Hi.\n\nDone."),
    ("text before a last tag", "hermes_json", [ONE, "Done.\n</tool_call>"], "Done."),
    ("an opening tag before the call", "hermes_json", ["<tool_call>\n", ONE], ""),
    ("an opening tag behind text", "hermes_json", ["Let me see.\n\n<tool_call>\n", ONE], "Let me see."),
    ("two opening tags", "qwen_xml", ["<tool_call>\n<function=", ONE], ""),
    ("the beginning of the call", "hermes_json", ['<tool_call>\n{"na', ONE], ""),
    ("a torn opening tag", "hermes_json", ["<tool_c", ONE], ""),
    ("a torn opening tag behind text", "qwen_xml", ["Let me see.\n\n<tool_call", ONE], "Let me see."),
    ("a torn opening tag between calls", "hermes_json", [ONE, "\n<tool_", TWO], ""),
    ("a torn tag of Mistral", "mistral", ["See:\n[TOOL_CA", ONE], "See:"),
    ("the tag of Mistral before the call", "mistral", ["[TOOL_CALLS]", ONE], ""),
    ("the tag of Mistral behind the call", "mistral", [ONE, "[TOOL_CALLS]"], ""),
    ("special tokens", "kimi_k2", [KIMI, ONE, KIMI_END], ""),
    ("the token of LFM2", "lfm2_pythonic", [ONE, "<|tool_call_end|>"], ""),
]  # fmt: skip
TEXT = [
    ("a tag in a sentence before the call", [WORDS, ONE], WORDS),
    ("a tag in a sentence behind the call", [ONE, WORDS], WORDS),
    ("an opening tag at the end of a sentence", ["I write <tool_call>", ONE], "I write <tool_call>"),
    ("a closing tag at the end of a sentence", [ONE, "I wrote </tool_call>"], "I wrote </tool_call>"),
    ("a tag at the beginning of a sentence", [ONE, "</tool_call> is its end."], "</tool_call> is its end."),
    ("a tag in a code block", [ONE, QUOTED], QUOTED),
    ("a quotation", [ONE, "> Hi"], "> Hi"),
    ("a bracket", [ONE, ">"], ">"),
    ("a text that begins like the tag", ["See <tool_calling>.", ONE], "See <tool_calling>."),
    ("a torn opening tag at the end of a sentence", ["I write <tool_c", ONE], "I write <tool_c"),
    ("a torn opening tag in a word", ["list<tool", ONE], "list<tool"),
    ("a torn opening tag in a code block", ["```xml\n<tool_c", ONE], "```xml\n<tool_c"),
    ("a short beginning of a tag", ["So:\n<tool", ONE], "So:\n<tool"),
    ("the beginning of another tag", ["So:\n</thin", ONE], "So:\n</thin"),
    ("the beginning of a word that some family uses as a tag", ["So:\nActi", ONE], "So:\nActi"),
    ("a word that some family uses as a tag", ["Action:", ONE], "Action:"),
]  # fmt: skip


def deltas_of(parts, size=1000):
    """Return the deltas; those of text have `size` characters."""
    for part in parts:
        if isinstance(part, str):
            yield from ({"content": part[at : at + size]} for at in range(0, len(part), size))
        else:
            yield part


def found_in(parts, format, size=1000):
    data = b"".join(chunk(**delta) for delta in deltas_of(parts, size)) + chunk("tool_calls") + DONE
    events = written(events_of([data], parser_settings(format, tools=TOOLS)))
    assert written(events_of(singly(data), parser_settings(format, tools=TOOLS))) == events
    return strings(events, "text"), calls(events)


def found_in_body(parts, format):
    texts, made = [part for part in parts if isinstance(part, str)], [part for part in parts if isinstance(part, dict)]
    function = [{**one, "type": "function"} for part in made for one in part["tool_calls"]]
    message = {"role": "assistant", "content": "".join(texts), "tool_calls": function}
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).encode()
    how = replace(parser_settings(format, tools=TOOLS), whole=True, auto=format == "auto")
    events = written(events_of([body], how, content_type="application/json"))
    return strings(events, "text"), calls(events)


def calls_in(parts):
    return [
        ("f", f'{{"a": "{n}"}}') for n, made in enumerate((ONE, TWO)) if made in parts or (not n and BEGUN in parts)
    ]


@pytest.mark.parametrize(("format", "parts", "text"), [pytest.param(*row, id=what) for what, *row in LEFT])
@pytest.mark.parametrize("auto", [False, True])
def test_tags_left_beside_a_call_are_dropped(format, parts, text, auto):
    for size in (1, 2, 3, 5, 1000):
        assert found_in(parts, "auto" if auto else format, size) == (text, calls_in(parts))


@pytest.mark.parametrize(("parts", "text"), [pytest.param(*row, id=what) for what, *row in TEXT])
@pytest.mark.parametrize("format", ["auto", "hermes_json"])
def test_text_about_tags_beside_a_call_stays(parts, text, format):
    for size in (1, 2, 3, 5, 1000):
        assert found_in(parts, format, size) == (text, calls_in(parts))
    assert found_in_body(parts, format) == (text, calls_in(parts))


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"native", "response_template"}))
@pytest.mark.parametrize("text", ["> Hi", ">", "Hi </tool_call> there", "</x>", "\n\nHi.\n"])
def test_text_behind_a_call_of_the_server_stays_in_every_format(format, text):
    for size in (1, 1000):
        assert found_in([ONE, text], format, size) == (text, calls_in([ONE]))


@pytest.mark.parametrize("format", ["auto", "hermes_json"])
@pytest.mark.parametrize(
    ("left", "text"),
    [
        ("\n</tool_call>", ""),
        ("<tool_call>\n", ""),
        ("Hi.\n</function>\n</tool_call>", "Hi."),
        ("Hi.\n\n<tool_call>", "Hi."),
        ("Hi.\n<tool_c", "Hi."),
    ],
)
def test_tags_left_in_a_whole_answer_are_dropped(left, text, format):
    assert found_in_body([left, ONE], format) == (text, calls_in([ONE]))


@pytest.mark.parametrize("left", ["\n</tool_call>", "<tool_call>\n", ">\n</tool_call>", "\n<tool_c"])
def test_tags_without_a_call_stay_text(left):
    assert found_in([left], "hermes_json", 2) == (left, [])


def test_tags_beside_a_call_stay_text_without_offered_tools():
    data = b"".join(chunk(**one) for one in deltas_of(["<tool_call>\n", ONE, "\n</tool_call>"])) + chunk("stop") + DONE
    assert (
        strings(written(events_of([data], parser_settings("auto", tools={}))), "text") == "<tool_call>\n\n</tool_call>"
    )
