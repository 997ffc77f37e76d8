"""Test the doctor with llama.cpp and a real model, started with several options."""

import io
from collections.abc import Mapping
from typing import NamedTuple

import pytest
from msgspec.structs import replace
from openai import OpenAI

from gateway import demo
from gateway.backends.model_metadata import ModelMetadata
from gateway.cli.doctor import DoctorOptions, examine_servers
from gateway.config import parse
from gateway.doctor.checks import CHECKS
from gateway.doctor.config_merge import merge_config
from gateway.doctor.findings import Findings
from gateway.formats import format_names
from gateway.formats.selection import FormatChoice
from support.threaded_gateway import served
from support.worked_examples import TURNS

CALLS = ("tools", "tools_streamed", "parallel_calls")
NEVER = {  # whatever the way
    "images": ("unknown", "refused: image input is not supported"),
    "context_window": ("wanting", "4096 tokens"),
}
# What the small model shows of tool_choice: `none` is no more than a word to the template, a name is not looked at, and
# `required` lets it talk on until it calls.  parallel_tool_calls has no effect on its template.
CHOICES = {
    "one_call": ("wanting", "is ignored: 2 tool calls"),
    "tool_choice_required": ("wanting", "is ignored: only text until the response was cut off"),
    "tool_choice_named": ("wanting", "is ignored: called get_weather"),
    "tool_choice_none": ("wanting", "the tool call arrives as text"),
}
NOTHING = Findings(
    kind="llamacpp", probe_responses={}, chosen=FormatChoice("auto", ""), metadata=ModelMetadata(), responses=None
)
# With tools the small model calls only if it has not to think first.
OPEN = """\
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\n' -}}
{%- if not tools -%}{{- '<think>\n' -}}{%- endif -%}
{%- endif -%}
"""


class Way(NamedTuple):
    """The options of a server and the expected findings: verdicts that are not good, ignored fields, format."""

    options: tuple[str, ...]
    wrong: Mapping[str, tuple[str, str]]
    ignores: tuple[str, ...]
    format: str | None


PARSED = Way((), {**NEVER, **CHOICES}, ("parallel_tool_calls",), "native")
NO_JINJA = Way(
    ("--no-jinja",),
    {
        **NEVER,
        **dict.fromkeys((*CALLS, *CHOICES), ("wanting", "refused: tools param requires --jinja flag")),
        "thoughts": ("unknown", "the model did not think"),
    },
    (),
    None,
)
# It does not parse, and its prompts open a thought, of which all that there is to be seen is the end.
RAW = Way(
    ("--skip-chat-parsing", "--reasoning-format", "none", "--chat-template-file"),
    {
        **NEVER,
        **CHOICES,
        **dict.fromkeys(("thoughts", *CALLS), ("wanting", "arrive as text")),
        "thought_open": ("wanting", "the prompt opens a thought, and its end arrives as text"),
        "tool_choice_required": ("wanting", "is ignored: no tool call"),
        "json_schema": ("wanting", "the response does not match the schema"),
    },
    ("parallel_tool_calls",),
    "hermes_json",
)


def examined(url, way):
    """Examine the server, check its verdicts and return it."""
    (server,) = examine_servers(DoctorOptions(url=url), io.StringIO())
    assert (server.kind, server.listed_models, server.problem) == ("llamacpp", (demo.MODEL,), "")
    (one,) = server.models
    assert list(one.verdicts) == list(CHECKS)
    assert {name: verdict.state for name, verdict in one.verdicts.items()} == {
        name: way.wrong[name][0] if name in way.wrong else "good" for name in CHECKS
    }
    for name, (_, words) in way.wrong.items():
        assert one.verdicts[name].words.startswith(words)
    assert (server.ignores, one.findings.format, one.findings.thought) == (way.ignores, way.format, None)
    return server


@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", [PARSED, NO_JINJA], ids=["parsed", "no jinja"])
def test_doctor_verdicts_on_llama_cpp_are_true(way):
    with demo.start_demo("--threads", "1", *way.options, out=io.StringIO()) as url:
        assert examined(url, way)


def content_and_thought(config):
    """Return content and thought of a streamed response through a gateway."""
    with served(config) as url, OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        chunks = list(client.chat.completions.create(**TURNS["think"].body(), stream=True))
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    thoughts = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    return "".join(delta.content or "" for delta in deltas), thoughts.strip()


@pytest.mark.timeout(300)
def test_doctor_settings_make_the_gateway_parse_raw_output(tmp_path):
    """Without the findings the gateway assumes that a llama.cpp parses, and drops a closing tag that stands alone."""
    before, _, _ = demo.TEMPLATE.read_text("utf-8").rpartition("{%- if add_generation_prompt -%}")
    template = tmp_path / "open.jinja"
    template.write_text(before + OPEN)
    with demo.start_demo("--threads", "1", *RAW.options, str(template), out=io.StringIO()) as url:
        server = examined(url, RAW)
        unread = replace(server, models=(replace(server.models[0], findings=NOTHING),))
        without, found = (parse(merge_config("", [one]), "block", {}, format_names()) for one in (unread, server))
        think = TURNS["think"]
        assert content_and_thought(without) == (f"{think.thought}\n{think.content}", "")
        assert content_and_thought(found) == (think.content, think.thought)
    assert (found.backends["llamacpp"].ignores, found.models[demo.MODEL].format) == (RAW.ignores, RAW.format)
