"""The doctor at real servers: llama.cpp with a real model, in the ways in which it is started."""

import io

import pytest
from msgspec.structs import replace
from openai import OpenAI
from serving import served
from worked_examples import TURNS

from gateway import demo
from gateway.backends.knowledge import Known
from gateway.config import parse
from gateway.doctor.findings import Findings
from gateway.doctor.probes import PROBES
from gateway.doctor.settings import merged
from gateway.formats import names
from gateway.formats.chosen import Chosen
from gateway.server.doctor import Wanted, consult

CALLS = ("tools", "tools_streamed", "parallel_calls")
NEVER = {  # whatever the way
    "images": ("unknown", "refused: image input is not supported"),
    "context_window": ("wanting", "4096 tokens"),
}
# What the small model shows of tool_choice: `none` is no more than a word to the template, a name is not looked at, and
# `required` lets it talk on until it calls.  parallel_tool_calls has no effect on its template.
CHOICES = {
    "one_call": ("wanting", "is not heeded: 2 calls"),
    "tool_choice_required": ("wanting", "is not heeded: text until it was cut off"),
    "tool_choice_named": ("wanting", "is not heeded: called get_weather"),
    "tool_choice_none": ("wanting", "the call comes as text"),
}
NO_JINJA = ("wanting", "refused: tools param requires --jinja flag")
NOTHING = Findings(kind="llamacpp", heard={}, chosen=Chosen("auto", ""), known=Known(), responses=None)
OPEN = "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n<think>\n' -}}{%- endif -%}\n"
# options → the verdicts that are not good, the format and the thought of the model
WAYS = {
    "parsed": ((), {**NEVER, **CHOICES}, "native", None),
    "raw": (
        ("--skip-chat-parsing", "--reasoning-format", "none"),
        {
            **NEVER,
            **CHOICES,
            **dict.fromkeys(("thoughts", *CALLS), ("wanting", "come as text")),
            "tool_choice_required": ("wanting", "is not heeded: no call"),
            "json_schema": ("wanting", "the answer is not of the schema"),
        },
        "hermes_json",
        None,
    ),
    "no jinja": (
        ("--no-jinja",),
        {**NEVER, **dict.fromkeys((*CALLS, *CHOICES), NO_JINJA), "thoughts": ("unknown", "the model did not think")},
        None,
        None,
    ),
}


def examined(url):
    (server,) = consult(Wanted(url=url), io.StringIO())
    assert (server.kind, server.listed, server.problem) == ("llamacpp", (demo.MODEL,), "")
    return server


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", WAYS)
def test_the_verdicts_on_a_llama_cpp_are_true(way):
    options, wrong, format, thought = WAYS[way]
    with demo.start("--threads", "1", *options, out=io.StringIO()) as url:
        server = examined(url)
    (one,) = server.models
    assert list(one.verdicts) == list(PROBES)
    assert {name: verdict.state for name, verdict in one.verdicts.items()} == {
        name: wrong[name][0] if name in wrong else "good" for name in PROBES
    }
    for name, (_, words) in wrong.items():
        assert one.verdicts[name].words.startswith(words)
    assert (one.findings.format, one.findings.thought) == (format, thought)


def answered(config):
    """The content and the thought of an answer through a gateway."""
    with served(config) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        message = client.chat.completions.create(**TURNS["think"].body()).choices[0].message
    return message.content, (getattr(message, "reasoning_content", None) or "").strip()


@pytest.mark.timeout(300)
def test_what_was_found_makes_the_gateway_read_what_it_would_not_know(tmp_path):
    """A server that does not parse, and a prompt that opens a thought: by its kind it is believed to parse."""
    before, _, _ = demo.TEMPLATE.read_text("utf-8").rpartition("{%- if add_generation_prompt -%}")
    template = tmp_path / "open.jinja"
    template.write_text(before + OPEN)
    options = ("--skip-chat-parsing", "--reasoning-format", "none", "--chat-template-file", str(template))
    with demo.start("--threads", "1", *options, out=io.StringIO()) as url:
        server = examined(url)
        unread = replace(server, models=(replace(server.models[0], findings=NOTHING),))
        without, found = (parse(merged("", [one]), "block", {}, names()) for one in (unread, server))
        think = TURNS["think"]
        assert answered(without) == (f"{think.thought}\n</think>\n\n{think.content}", "")
        assert answered(found) == (think.content, think.thought)
    verdict = server.models[0].verdicts["thought_open"]
    assert (verdict.state, verdict.words) == ("wanting", "the prompt opens a thought, and its end comes as text")
    assert found.models[demo.MODEL].format == "hermes_json"
