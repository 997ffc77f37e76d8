"""Test formats that an operator brings as a template: their events under every cut, and errors in templates."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from ruamel.yaml import YAML

from gateway.events import Finish, TextDelta
from gateway.formats.parser import ParseContext
from gateway.formats.response_template.compiler import TemplateError, compile_template, find_template
from gateway.pipeline.normalizer import Normalizer
from gateway.warnings import Warnings
from support.format_events import written
from support.paths import ROOT
from support.pipeline import TOOLS, cut, grammatical, merge, parser_settings, singly
from support.sampling import places

NAMED = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
GEMMA = {
    "defaults": {"role": "assistant"},
    "start_anchor": ["<|turn>model\n", "<tool_response|>"],
    "fields": {
        "thinking": {"open": "<|channel>thought\n", "close": "<channel|>", "content": "text"},
        "tool_calls": {
            "open_pattern": r"<\|tool_call>call:(?P<name>\w+)",
            "close": "<tool_call|>",
            "repeats": True,
            "content": "json",
            "content_args": {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]},
            "transform": NAMED,
        },
        "content": {"close": ["<turn|>", "<|tool_response>", "<eos>"], "content": "text"},
    },
}
BEAM = {
    "defaults": {"thinking": "", "content": "", "tool_calls": []},
    "start_anchor_pattern": r"<\|start\|>assistant",
    "fields": {
        "thinking": {"open_pattern": r"<\|channel\|>analysis<\|message\|>", "close": "<|end|>", "content": "text"},
        "content": {"open_pattern": r"<\|channel\|>final<\|message\|>", "close": ["<|return|>", "<|end|>"]},
        "tool_calls": {
            "open_pattern": r"(?:<\|start\|>assistant )?to=(?P<name>.+?)<\|channel\|>analysis(?: <\|constrain\|>xml)?<\|message\|>",
            "close": ["<|call|>", "<|end|>"],
            "repeats": True,
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<rfl:parameter name=\"(?P<key>[^\"]+)\">(?P<value>.*?)</rfl:parameter>",
                "value_parser": {"name": "text", "args": {"strip": False}},
            },
            "transform": NAMED,
        },
    },
}
HARMONY = {
    "start_anchor": "<|start|>assistant",
    "fields": {
        "thinking": {"open": "<|channel|>analysis<|message|>", "close": "<|end|>"},
        "content": {"open": "<|channel|>final<|message|>", "close": "<|end|>"},
        "tool_calls": {
            "open_pattern": r"<\|channel\|>commentary to=functions\.(?P<name>\w+).*?<\|message\|>",
            "close": "<|call|>",
            "content": "json",
            "transform": NAMED,
        },
    },
}
COHERE = {
    "start_anchor": "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
    "fields": {
        "content": {"open": "<|START_RESPONSE|>", "close": "<|END_RESPONSE|>"},
        "thinking": {"open": "<|START_THINKING|>", "close": "<|END_THINKING|>"},
        "tool_calls": {
            "open": "<|START_ACTION|>",
            "close": "<|END_ACTION|>",
            "content": "json",
            "transform_each": True,
            "transform": {"type": "function", "function": {"name": "{tool_name}", "arguments": "{parameters}"}},
        },
    },
}
SMOLLM = {
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*"},
        "tool_calls": {
            "open_pattern": r"\s*<tool_call>",
            "close": "</tool_call>",
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"\s*(?:<\|im_end\|>|<\|stop\|>)|$"},
    },
}
QWEN = {
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open_pattern": r"<tool_call>\s*<function=(?P<name>[^\n>]+)>",
            "close_pattern": r"</tool_call>\s*",
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<parameter=(?P<key>[^>\n]+)>\s*(?P<value>.*?)\s*</parameter>",
                "value_parser": {"name": "json", "args": {"allow_non_json": True}},
            },
            "transform": NAMED,
        },
    },
}
GLM = {
    "fields": {
        "tool_calls": {
            "open_pattern": r"<tool_call>(?P<name>\S+)\n?",
            "close": "</tool_call>",
            "content": "xml-inline",
            "content_args": {
                "tag_pattern": r"<arg_key>(?P<key>[^<]+)</arg_key>\s*\n<arg_value>(?P<value>.*?)</arg_value>"
            },
            "transform": NAMED,
        }
    }
}
LLAMA = {
    "fields": {
        "tool_calls": {
            "open_pattern": r'\{"name":\s*"(?P<name>[^"]+)",\s*"parameters":\s*',
            "close_pattern": r"\}<\|eot_id\|>\s*",
            "content": "json",
            "transform": NAMED,
        },
        "content": {"close_pattern": r"<\|eot_id\|>\s*"},
    }
}
OWN = {
    "fields": {
        "tool_calls": {
            "open": "[[call]]",
            "close": "[[/call]]",
            "transform": {
                "id": "{content.key}",
                "function": {"name": "{content.do}", "arguments": "{content.with}"},
            },
        }
    }
}
IDS = {
    "fields": {
        "tool_calls": {
            "open_pattern": r"@(?P<fn>\w+):(?P<no>\d*)\s*",
            "transform": {"id": "{no}", "name": "{fn}", "arguments": "{content}"},
        }
    }
}
PYTHON = {
    "fields": {"tool_calls": {"open": "<run>", "transform": {"function": {"name": "python", "arguments": "{content}"}}}}
}


def events_from(template, pieces, *, tools=TOOLS, thought_open=False, finish="stop", ledger=None):
    """Return the events of a text that came in these pieces."""
    how = replace(
        parser_settings(ledger=ledger), format=compile_template(template), context=ParseContext(tools, thought_open)
    )
    normaliser = Normalizer(how)
    events = [event for piece in pieces if piece for event in normaliser.feed(TextDelta(0, piece))]
    return merge([*events, *normaliser.feed(Finish(0, finish)), *normaliser.close()])


def text(text):
    return ["text", text]


def thought(text):
    return ["reasoning", text]


def call(name, arguments, *cut):
    return ["call", name, arguments, *cut]


CALL = '<|tool_call>call:f{a:<|"|>Paris<|"|>,n:3}<tool_call|>'
PARIS = call("f", '{"a": "Paris", "n": 3}')
ACTION = "<|start|>assistant to=f<|channel|>analysis <|constrain|>xml<|message|>"
CITY = '<rfl:parameter name="a">Paris</rfl:parameter>'
CASES = [
    (GEMMA, "plain text", [text("plain text")]),
    (GEMMA, "Hello.<turn|>", [text("Hello.")]),
    (
        GEMMA,
        "<|channel>thought\nplan<channel|>Now." + CALL + "<|tool_response>",
        [thought("plan"), text("Now."), PARIS],
    ),
    (GEMMA, CALL + "\n" + CALL + " Done.", [PARIS, PARIS, text("Done.")]),
    (GEMMA, "<|tool_call>call:g{}<tool_call|>", [call("g", "{}")]),
    (GEMMA, "<|tool_call>call:g<tool_call|>", [call("g", "{}")]),
    (GEMMA, '<|tool_call>call:f{a:<|"|>"{<turn|>}"<|"|>}', [call("f", '{"a": "\\"{<turn|>}\\""}')]),
    (GEMMA, '<|tool_call>call:f{o:{x:[1,true,<|"|>y<|"|>]}}', [call("f", '{"o": {"x": [1, true, "y"]}}')]),
    (GEMMA, "Write <|tool_call>call: and a name.", [text("Write <|tool_call>call: and a name.")]),
    (GEMMA, "<|tool_call>call:f is it.", [text("<|tool_call>call:f is it.")]),
    (GEMMA, "<|tool_call>call:{}", [text("<|tool_call>call:{}")]),
    (GEMMA, "<|tool_call>call:f{a:<}", [[*call("f", '{"a": '), "incomplete"], text("<}")]),
    (BEAM, "<|channel|>final<|message|>Hi.<|return|>", [text("Hi.")]),
    (
        BEAM,
        "<|channel|>analysis<|message|>hm<|end|>" + ACTION + CITY + '<rfl:parameter name="n">2</rfl:parameter><|call|>',
        [thought("hm"), call("f", '{"a": "Paris", "n": 2}')],
    ),
    (
        BEAM,
        ACTION + CITY + "<|end|>" + ACTION + CITY + "<|call|><|start|>assistant<|channel|>final<|message|>Done.<|end|>",
        [call("f", '{"a": "Paris"}'), call("f", '{"a": "Paris"}'), text("Done.")],
    ),
    (BEAM, "to=f<|channel|>analysis<|message|>" + CITY, [call("f", '{"a": "Paris"}')]),
    (BEAM, ACTION + "<|call|>", [call("f", "{}")]),
    (BEAM, "Add to=3, and go on.", [text("Add to=3, and go on.")]),
    (BEAM, "Add to=f<|channel|>final", [text("Add to=f<|channel|>final")]),
    (
        HARMONY,
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"a": "x"}<|call|>',
        [thought("hm"), call("f", '{"a": "x"}')],
    ),
    (HARMONY, "<|channel|>commentary to=functions.f<|message|><|call|>", [call("f", "{}")]),
    (
        HARMONY,
        "<|channel|>commentary to=functions.f " + "x" * 300 + "<|message|>{}",
        [text("<|channel|>commentary to=functions.f " + "x" * 300 + "<|message|>{}")],
    ),
    (
        COHERE,
        "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n"
        '{"tool_call_id": "0", "tool_name": "f", "parameters": {"a": "x"}},\n'
        '{"tool_call_id": "1", "tool_name": "g", "parameters": {}}]<|END_ACTION|><|END_OF_TURN_TOKEN|>',
        [thought("hm"), call("f", '{"a": "x"}'), call("g", "{}")],
    ),
    (COHERE, "<|START_RESPONSE|>Hello.<|END_RESPONSE|>", [text("Hello.")]),
    (
        SMOLLM,
        '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "f", "arguments": {"a":"x"}}\n</tool_call>\n<|im_end|>',
        [thought("hm\n"), call("f", '{"a":"x"}')],
    ),
    (SMOLLM, "Bye.<|stop|>\n<|im_end|>", [text("Bye.")]),
    (SMOLLM, "<|stop|> is a token", [text("<|stop|> is a token")]),
    (SMOLLM, "<tool_call>hello</tool_call>", [text("<tool_call>hello</tool_call>")]),
    (
        QWEN,
        "Now.\n<tool_call>\n<function=f>\n<parameter=a>\n<b>\n</parameter>\n<parameter=n>\n3\n</parameter>\n"
        "</function>\n</tool_call>\nDone.",
        [text("Now."), call("f", '{"a": "<b>", "n": 3}'), text("\nDone.")],
    ),
    (QWEN, "<tool_call><function=g></tool_call>", [call("g", "{}")]),
    (QWEN, "<tool_call><function=h><parameter=z>[1]</parameter></function></tool_call>", [call("h", '{"z": [1]}')]),
    (QWEN, '<tool_call><function=f>{"a": "x"}</function></tool_call>', [call("f", '{"a": "x"}')]),
    (QWEN, "<tool_call> <function=", [text("<tool_call> <function=")]),
    (
        GLM,
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
        [call("f", '{"a": "x"}')],
    ),
    (GLM, "<tool_call>f<arg_key>n</arg_key><arg_value>3</arg_value></tool_call>", [call("f", '{"n": 3}')]),
    (GLM, "<tool_call>to call", [text("<tool_call>to call")]),
    (LLAMA, '{"name": "f", "parameters": {"a": "x"}}<|eot_id|>', [call("f", '{"a": "x"}')]),
    (LLAMA, '{"name": "f", "parameters": {"a": "x"}}', [call("f", '{"a": "x"}')]),
    (LLAMA, '{"name": "f"}', [text('{"name": "f"}')]),
    (OWN, '[[call]]{"do": "f", "with": {"a": "x"}, "key": "k1"}[[/call]]', [call("f", '{"a": "x"}')]),
    (IDS, 'I @f:7 {"a": "x"}', [text("I"), call("f", '{"a": "x"}')]),
    (IDS, "Mail me@f:now", [text("Mail me@f:now")]),
    (PYTHON, '<run>{"code": "1"}</run>', [call("python", '{"code": "1"}')]),
]


@pytest.mark.parametrize(("template", "whole", "events"), CASES)
def test_response_template_gives_the_same_events_under_every_cut(template, whole, events):
    meant = events_from(template, [whole])
    assert written(meant) == events
    assert grammatical(meant)
    for cuts in [singly(whole), *([whole[:i], whole[i:]] for i in places(len(whole), most=len(whole)))]:
        assert events_from(template, cuts) == meant


ANY = st.lists(
    st.sampled_from([
        "<|channel>thought\n", "<channel|>", "<|tool_call>call:", "f", "{", "}", "a:", '<|"|>', ",", "n:3", "<tool_call|>",
        "<turn|>", " ", "\n", "<|start|>assistant ", "to=", "<|channel|>", "analysis", "final", "<|message|>", "<|end|>",
        "commentary to=functions.", '<rfl:parameter name="', 'a">', "</rfl:parameter>", "<|call|>", '{"a": "x"}', "é😀",
        "<tool_call>", "<function=", ">", "<parameter=", "</parameter>", "</function>", "</tool_call>", "<arg_key>",
        "</arg_key>", "<arg_value>", "</arg_value>", '{"name": "', '", ', '"parameters": ', "[[call]]", '{"do": "f"', "@", ":7",
    ]),
    max_size=14,
).map("".join)  # fmt: skip


@given(
    text=ANY,
    template=st.sampled_from([GEMMA, BEAM, HARMONY, QWEN, GLM, LLAMA, OWN, IDS]),
    thought_open=st.booleans(),
    finish=st.sampled_from(["stop", "length"]),
    data=st.data(),
)
def test_response_template_reads_any_text_the_same_under_any_cut(text, template, thought_open, finish, data):
    how = {"thought_open": thought_open, "finish": finish}
    whole = events_from(template, [text], **how)
    assert whole == events_from(template, cut(data, text), **how) == events_from(template, singly(text), **how)
    assert grammatical(whole)


@pytest.mark.parametrize(
    ("template", "whole", "events", "ledger"),
    [
        (GEMMA, '<|tool_call>call:f{a:<|"|>Par', [call("f", '{"a": "Par', "incomplete")], []),
        (GEMMA, "<|tool_call>call:f{", [call("f", "{}", "incomplete")], []),
        (GEMMA, "<|tool_call>call:f", [], ["truncated:tool_calls"]),
        (GEMMA, "<|tool_call>ca", [], ["truncated:content"]),
        (HARMONY, "<|channel|>commentary to=functions.f<|message|>", [call("f", "{}", "incomplete")], []),
        (HARMONY, "<|channel|>commentary to=functions.f <|con", [], ["truncated:tool_calls"]),
        (BEAM, ACTION + '<rfl:parameter name="a">Par', [call("f", '{"a": "Par', "incomplete")], []),
        (BEAM, ACTION, [call("f", "{}", "incomplete")], []),
    ],
)
def test_response_template_passes_a_cut_tool_call_as_incomplete(template, whole, events, ledger):
    noted = Warnings()
    for pieces in ([whole], singly(whole)):
        assert written(events_from(template, pieces, finish="length", ledger=noted)) == events
    assert noted.entries() == ledger


def test_response_template_may_begin_inside_reasoning():
    assert written(events_from(GEMMA, ["plan<channel|>Hi."], thought_open=True)) == [thought("plan"), text("Hi.")]
    assert written(events_from(GLM, ["Hi."], thought_open=True)) == [text("Hi.")]


def test_response_template_reads_tool_call_tags_as_text_without_tools():
    assert written(events_from(GEMMA, [CALL], tools={})) == [text(CALL)]


def test_response_template_takes_the_tool_call_id_from_the_text():
    assert [events_from(one, [whole])[0].id for one, whole in [
        (OWN, '[[call]]{"key": "k1", "do": "f", "with": {}}'),
        (IDS, "@f:7 {}"),
        (IDS, "@f: {}"),
    ]] == ["k1", "7", "call_0"]  # fmt: skip


# Errors


def errors_of(field=None, **template):
    """Return the errors of a wrong template, or of a template whose field tool_calls is wrong."""
    if field is not None:
        template = {"fields": {"tool_calls": field}}
    with pytest.raises(TemplateError) as caught:
        compile_template(template)
    assert [".".join(path) + f": {message}" for path, message in caught.value.faults] == str(caught.value).splitlines()
    return str(caught.value)


NOT_SUPPORTED = "is not supported"
SHAPE = 'transform: should be like {"function": {"name": "{name}", "arguments": "{content}"}}'
TAG = "content_args.tag_pattern: should be tags around a key and a value, like <arg name=(?P<key>[^>]+)>(?P<value>.*?)</arg>"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ({}, "fields: should have at least one of: content, thinking, reasoning_content, reasoning, tool_calls"),
        ({"fields": []}, "fields: should be a mapping\nfields: should have at least one of: content, thinking, reasoning_content, reasoning, tool_calls"),
        ({"fields": {"content": {}}, "version": 2}, "version: should be 1"),
        ({"fields": {"content": {}}, "starts": "x"}, "starts: unknown key; one of: version, defaults, fields, start_anchor, start_anchor_pattern"),
        ({"fields": {"content": {}, "sources": {}}}, "fields.sources: unknown key; one of: content, thinking, reasoning_content, reasoning, tool_calls"),
        ({"fields": {"content": {"content": "json"}}}, "fields.content.content: should be text"),
        ({"fields": {"content": {"transform": "{content}"}}}, "fields.content.transform: does not apply to text; remove it"),
        ({"fields": {"content": {"close": ["<a>", ""]}}}, "fields.content.close: should be a string, or a list of strings, with more than white space"),
        ({"fields": {"content": {"close": 5}}}, "fields.content.close: should be a string, or a list of strings, with more than white space"),
        ({"fields": {"content": {"close_pattern": 5}}}, "fields.content.close_pattern: should be a pattern, as a string"),
        ({"fields": {"content": {"close": "<a>", "close_pattern": "<b>"}}}, "fields.content.close_pattern: excludes close; remove one of them"),
        ({"fields": {"content": {"close_pattern": "<a>.*<b>"}}}, "fields.content.close_pattern: should be literal text"),
        ({"fields": {"thinking": {"close": "</think>"}}}, "fields.thinking.open: is missing; if the prompt opens the thought, use the tag of the prompt"),
        ({"fields": {"thinking": {"open_pattern": r"<a>\s*<b>"}}}, "fields.thinking.open_pattern: should be literal text in one piece, like (?:a|b)c"),
        ({"fields": {"thinking": {"open_pattern": r"(?:^|<think>\s*)"}}}, "fields.thinking.open_pattern: '^' is not supported; if the prompt opens the thought, name its tag and set thought: open in the model"),
        ({"fields": {"thinking": {"open": "<a>"}, "tool_calls": {"open": "<a>"}}}, "fields: '<a>' opens more than one field; use different tags"),
    ],
)  # fmt: skip
def test_response_template_error_names_its_place(template, message):
    assert errors_of(**template) == message


XML = {"open_pattern": "<a>(?P<name>.+)", "close": "</a>", "content": "xml-inline", "transform": NAMED}
GOOD_TAG = "<k>(?P<key>.+?)</k><v>(?P<value>.*?)</v>"


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({}, "open: is missing; it marks the beginning of a tool call"),
        ({"open": "<a>", "contents": "json"}, "contents: unknown key; one of: open, open_pattern, close, close_pattern, content, content_args, repeats, join, optional, transform, transform_each"),
        ({"open": "<a>", "content": "yaml"}, "content: should be json, text or xml-inline"),
        ({"open_pattern": r"(?P<name>\w+)<a>", "transform": NAMED}, "open_pattern: should begin with literal text that is not optional"),
        ({"open_pattern": r"(?:<a>)?\w+", "transform": NAMED}, "open_pattern: should begin with literal text that is not optional"),
        ({"open": "<a>", "transform": NAMED}, "transform: {name} should be a group of open_pattern, like {name} for (?P<name>…)"),
        ({"open": "<a>", "transform": []}, SHAPE),
        ({"open": "<a>", "transform": {"function": []}}, SHAPE),
        ({"open": "<a>", "transform": {"name": "{name}"}}, SHAPE),
        ({"open": "<a>", "transform": {"name": "f", "arguments": "{content.args}"}}, SHAPE),
        ({"open": "<a>", "transform_each": True, "transform": {"name": "f", "arguments": "{content}"}}, SHAPE),
        ({"open": "<a>", "content": "json", "content_args": {"unquoted_keys": True}}, "content_args: applies only if the content consists of arguments; take the name from open_pattern"),
        ({"open": "<a>", "content": "json", "content_args": {"string_delims": [["«", "»"]]}}, """content_args.string_delims: should be a list of any of these pairs: ['<|"|>', '<|"|>'], ['<escape>', '<escape>'], ['"', '"'], ["'", "'"]\ncontent_args: applies only if the content consists of arguments; take the name from open_pattern"""),
        ({"open": "<a>", "content": "json", "content_args": {"strict": True}}, "content_args.strict: unknown key; one of: unquoted_keys, string_delims, allow_non_json, strip"),
        ({**XML, "content_args": {"tag_pattern": GOOD_TAG}, "transform": "{content}"}, SHAPE),
        ({**XML, "content_args": {"tag_pattern": GOOD_TAG}, "close": None}, "close: should be a string, or a list of strings, with more than white space"),
        ({**XML}, "content_args.tag_pattern: should be a pattern, as a string"),
        ({**XML, "content_args": {"tag_pattern": "<k>(?P<key>.+)"}}, TAG),
        ({**XML, "content_args": {"tag_pattern": "<(?:k|l)>(?P<key>.+)>(?P<value>.+)<"}}, TAG),
        ({**XML, "content_args": {"tag_pattern": GOOD_TAG, "merge_duplicates": True}}, "content_args.merge_duplicates: repeated keys cannot be merged into a list; remove it"),
        ({**XML, "content_args": {"tag_pattern": GOOD_TAG, "value_parser": {"name": "yaml"}}}, "content_args.value_parser.name: should be one of: text, json, int, float, bool"),
    ],
)  # fmt: skip
def test_response_template_error_names_the_field_of_tool_calls(field, message):
    prefix = "fields.tool_calls."
    assert errors_of(field).replace(prefix, "") == message


def test_response_template_of_inline_xml_needs_a_close():
    field = {"open_pattern": "@(?P<name>.+)", "content": "xml-inline", "content_args": {"tag_pattern": GOOD_TAG}}
    assert errors_of(field | {"transform": NAMED}) == (
        "fields.tool_calls.close: is missing; where values are text, only a tag can tell that a call has ended"
    )


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (r"<a>\b", r"'\\b' is not supported"),
        ("<a>(?!b)", "'(?!' is not supported"),
        ("<a>(?=b)", "'(?=' is not supported; if the prompt opens the thought, name its tag and set thought: open in the model"),
        ("<a>+", "'>+' is not supported: only white space and classes may be repeated"),
        ("(?:<a>){2}", "'){2}' is not supported: only white space and classes may be repeated"),
        ("<a>[bc]", "'[bc]' should be repeated, like [bc]+"),
        ("<a>[c-b]+", "'[c-b]' is not a class of characters: bad character range c-b at position 1"),
        ("<a>(?P<name>bc)", "'(?P<name>' should hold one class of characters and its repetition, like [^<]+"),
        ("<a>(?P<name>b+c)", "'(?P<name>' should hold one class of characters and its repetition, like [^<]+"),
        ("<a>(?P<name>.+c)", "a group should hold one class of characters, or literal text, and end"),
        ("<a>(?P<name>.+)?", "the group '(?P<name>' must occur exactly once"),
        ("<a>(?:.+|b)", "alternatives and optional parts should be literal text"),
        ("<a>)", "closes a bracket that was never opened"),
        ("a?b?c?d?e?f?g?", "expands to more than 64 texts"),
    ],
)  # fmt: skip
def test_response_template_pattern_that_is_unsupported_is_refused(pattern, message):
    assert errors_of({"open_pattern": pattern}) == f"fields.tool_calls.open_pattern: {message}"


def test_response_template_errors_are_reported_together():
    template = {"version": 3, "fields": {"thinking": {}, "content": {"content": "int"}, "tool_calls": {"open": 3}}}
    assert [line.partition(":")[0] for line in errors_of(**template).splitlines()] == [
        "version", "fields.thinking.open", "fields.content.content", "fields.tool_calls.open",
    ]  # fmt: skip


# Template files


@pytest.mark.parametrize("held", [GLM, {"response_template": GLM, "eos_token": "x"}, {"response_schema": GLM}])
def test_response_template_is_found_in_its_file(held):
    assert find_template(json.loads(json.dumps(held))) == GLM


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ([], "contains neither response_template nor the `fields` of one"),
        ({"response_template": None}, "contains neither response_template nor the `fields` of one"),
        ({"response_schema": {"x-regex": "…"}}, "response_schema has the older form with x-regex; a template needs `fields`, as of transformers 5.13"),
    ],
)  # fmt: skip
def test_response_template_missing_in_its_file_is_an_error(held, message):
    with pytest.raises(TemplateError) as caught:
        find_template(held)
    assert str(caught.value) == message


def test_response_template_of_the_documentation_works():
    page = (ROOT / "docs/reference/response-template.md").read_text("utf-8")
    models = YAML(typ="safe").load(page.split("```yaml")[1].split("```")[0])["models"]
    template = models["other"]["response_template"]
    events = events_from(template, ['<hm>So.</hm>Look: <do name="f">{"a": "x"}</do>'])
    assert written(events) == [["reasoning", "So."], ["text", "Look:"], ["call", "f", '{"a": "x"}']]
