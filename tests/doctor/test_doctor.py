"""Test the pure parts of the doctor: requests, responses, verdicts, table and configuration."""

import json
from itertools import product
from types import MappingProxyType
from typing import get_args

import pytest
from msgspec.structs import replace

from gateway.backends import KINDS
from gateway.backends.kind_row import AdviceTopic
from gateway.backends.model_metadata import ModelMetadata
from gateway.config import ConfigError, parse
from gateway.doctor.checks import CHECKS, newly_ignored_fields, run_checks
from gateway.doctor.config_merge import merge_config
from gateway.doctor.findings import DetectedFormat, Findings, ObservedText, detect_format, parse_as
from gateway.doctor.probe_requests import PROBE_REQUESTS, build_probe_body, matches_probe_schema, omitted_fields
from gateway.doctor.probe_response import ObservedMessage, ObservedToolCall, ProbeResponse, ProbeResponseReader
from gateway.doctor.report import ExaminedModel, ExaminedServer, report_json, report_table
from gateway.doctor.verdicts import advice
from gateway.errors import Problem
from gateway.events import Usage
from gateway.formats import FORMATS, format_names
from gateway.formats.selection import FormatChoice
from gateway.warnings import Warnings
from support.paths import ROOT
from support.sampling import ONE_OF_EACH_GRAMMAR, some
from support.upstream import DONE, call, chunk, completion_body, frame

ARGUMENTS = '{"city": "Paris", "unit": "celsius"}'
MARKUP = f'<tool_call>\n{{"name": "get_weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
CALL = ObservedToolCall("get_weather", ARGUMENTS, complete=True)
THOUGHT = "<think>\nThat is 7.\n</think>\n\n"
SUM = "4 + 3 = 7."


# What is asked


def body_of(question, kind, special=False):
    """Return the body for a question, and the fields that are left out."""
    ledger = Warnings()
    _, body = build_probe_body(PROBE_REQUESTS[question], "m", KINDS[kind], special, ledger)
    return json.loads(body), omitted_fields(ledger)


def test_doctor_asks_for_fields_that_a_kind_is_known_to_ignore():
    for kind in ("openai", "vllm", "llamacpp", "lmstudio", "sglang", "transformers"):
        assert body_of("twice", kind)[0]["n"] == 2
        assert body_of("stopped", kind)[0]["stop"] == ["="]
        assert body_of("chances", kind)[0]["logprobs"] is True
        assert body_of("one_call", kind)[0]["parallel_tool_calls"] is False
        assert body_of("required", kind)[0]["tool_choice"] == "required"
        assert body_of("named", kind)[0]["tool_choice"] == {"type": "function", "function": {"name": "get_time"}}
        assert body_of("schema", kind)[0]["response_format"]["json_schema"]["schema"]["required"] == [
            "colour",
            "number",
        ]


@pytest.mark.parametrize("kind", ["openai", "vllm", "llamacpp", "sglang", "transformers"])
def test_doctor_sends_tools_with_tool_choice_none(kind):
    body, _ = body_of("none", kind)
    assert body["tool_choice"] == "none" and len(body["tools"]) == 2
    assert "tool_choice" not in body_of("tools", kind)[0]


def test_doctor_asks_ollama_by_its_own_fields():
    body, missing = body_of("named", "ollama")
    assert missing == {"tool_choice"} and [tool["function"]["name"] for tool in body["tools"]] == ["get_time"]
    assert body["options"]["temperature"] == 0


def test_doctor_sends_the_token_limit_and_tag_fields_of_the_kind():
    assert body_of("plain", "transformers")[0]["max_tokens"] == body_of("plain", "vllm")[0]["max_completion_tokens"]
    assert body_of("plain", "vllm", special=True)[0]["skip_special_tokens"] is False
    assert "skip_special_tokens" not in body_of("plain", "vllm")[0]


def test_doctor_sends_past_reasoning_in_the_field_of_the_kind():
    for kind, field in (("vllm", "reasoning"), ("llamacpp", "reasoning_content"), ("ollama", "thinking")):
        assert body_of("thinking", kind)[0]["messages"][1][field] == "The user wants 2 + 2. That is 4."


def test_doctor_sends_past_tool_calls_with_ids_for_every_template():
    calls = [call for message in body_of("parallel", "vllm")[0]["messages"] for call in message.get("tool_calls", ())]
    assert len({one["id"] for one in calls}) == len(calls) == 6
    assert all(len(one["id"]) == 9 and one["id"].isalpha() for one in calls)


@pytest.mark.parametrize(
    ("value", "right"),
    [
        ({"colour": "blue", "number": 7}, True),
        ({"colour": "red", "number": 7}, False),
        ({"colour": "blue", "number": "7"}, False),
        ({"colour": "blue", "number": 7, "more": 1}, False),
        ({"colour": "blue"}, False),
        (7, False),
    ],
)
def test_doctor_schema_check_accepts_only_valid_values(value, right):
    assert matches_probe_schema(value) is right


# What is heard


def listen(*pieces, question="streamed", kind="openai", type="text/event-stream"):
    probe = PROBE_REQUESTS[question]
    request, _ = build_probe_body(probe, "m", KINDS[kind], special=False, ledger=Warnings())
    listener = ProbeResponseReader(probe, request, KINDS[kind])
    listener.set_content_type(type)
    for seconds, piece in enumerate(pieces, 1):
        listener.feed(piece, float(seconds))
        if listener.done:
            return listener.response()
    listener.close(9.0)
    return listener.response()


def test_doctor_reads_a_streamed_response():
    usage = frame(choices=[], usage={"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10})
    pieces = [chunk(reasoning="Hm"), chunk("4 + 3"), chunk(" = 7."), chunk(finish="stop"), usage, DONE]
    response = listen(chunk("", role="assistant"), *pieces)
    assert response.message == ObservedMessage("4 + 3 = 7.", "Hm", (), "stop")
    assert (response.delta_count, response.choices, response.begun, response.problem) == (3, 1, 2.0, None)
    assert (response.field, response.usage, response.has_logprobs, response.cut) == (
        "reasoning",
        Usage(7, 3, reasoning=1),
        False,
        False,
    )


def test_doctor_reads_a_response_that_is_not_streamed():
    body = completion_body(
        None, tool_calls=[{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}]
    )
    body["choices"][0]["finish_reason"] = "length"
    response = listen(json.dumps(body).encode(), question="tools", type="application/json")
    assert response.message.calls == (ObservedToolCall("f", "{", complete=False),)
    assert response.cut and response.begun == 9.0 and response.usage == Usage(7, 2)


@pytest.mark.parametrize(
    ("member", "field"),
    [
        ('"reasoning_content":"Hm"', "reasoning_content"),
        ('"reasoning" : "Hm"', "reasoning"),
        ('"content":"\\"reasoning\\": \\"Hm\\""', ""),
        ('"reasoning_content":""', ""),
    ],
)
def test_doctor_finds_the_reasoning_field_outside_of_texts(member, field):
    assert listen(b'data: {"choices":[{"index":0,"delta":{%b}}]}\n\n' % member.encode()).field == field


def test_doctor_notices_missing_usage():
    assert listen(chunk("Hi"), chunk(finish="stop"), DONE).usage is None


def test_doctor_keeps_the_text_of_a_broken_stream():
    response = listen(chunk("Hi"))
    assert response.message.text == "Hi" and response.problem.code == "upstream_lost"
    failed = listen(chunk("Hi"), frame(error={"message": "no more"}), chunk("ho"))
    assert failed.message.text == "Hi" and failed.problem.message == "no more"


def test_doctor_leaves_an_endless_response():
    response = listen(chunk("Hi"), chunk(" there"), question="endless")
    assert response.is_abandoned and response.cut and response.message.text == "Hi" and response.problem is None
    assert not listen(chunk("Hi") + chunk(finish="stop"), question="endless").is_abandoned


def test_doctor_limits_the_bytes_of_a_response():
    response = listen(*[chunk("x" * (1 << 20))] * 9)
    assert (
        response.problem.message == "The response is larger than 4194304 bytes."
        and len(response.message.text) < 5 << 20
    )


def test_doctor_reads_the_first_choice_and_counts_all():
    ends = [chunk(index=0, finish="stop"), chunk(index=1, finish="stop")]
    response = listen(chunk("a", index=1), chunk("b", index=0), *ends, DONE, question="twice")
    assert response.message.text == "b" and response.choices == 2


def test_doctor_notices_logprobs():
    entry = {"token": "Hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}
    choice = {"index": 0, "delta": {"content": "Hi"}, "logprobs": {"content": [entry]}, "finish_reason": "stop"}
    assert listen(frame(choices=[choice]), DONE).has_logprobs


def test_doctor_notes_repaired_tool_calls():
    response = listen(
        chunk(tool_calls=call("f", "{}")),
        chunk(tool_calls=call("g", "{")),
        chunk(finish="stop"),
        DONE,
        question="tools",
    )
    assert {"repaired:tool_calls.index", "synthesised:tool_calls.id", "repaired:finish_reason"} <= response.warnings


# Which format it is


NAMES = [name for name, row in FORMATS.items() if row.parse and name != "auto"]


@pytest.mark.parametrize("name", some(NAMES, always=ONE_OF_EACH_GRAMMAR, share=3))
def test_doctor_finds_the_format_of_each_example(name):
    words = ObservedText(FORMATS[name].example, tools=True)
    found = detect_format([words], FORMATS, "auto")
    assert parse_as(words, FORMATS[found.format]) == parse_as(words, FORMATS[name])
    assert detect_format([words], FORMATS, name).format == name


@pytest.mark.parametrize(
    ("texts", "reading"),
    [
        ([(SUM, False), ("", True)], DetectedFormat()),
        ([(THOUGHT + SUM, False)], DetectedFormat("think")),
        ([(THOUGHT + SUM, False), (MARKUP, True)], DetectedFormat("hermes_json", calls=True)),
        ([("That is 7.\n</think>\n\n" + SUM, False)], DetectedFormat("think", thought_open=True)),
        ([("So.\n</think>\n\n" + MARKUP, True)], DetectedFormat("hermes_json", thought_open=True, calls=True)),
        ([(MARKUP, False)], DetectedFormat()),
        ([("[TOOL_CALLS]get_weather[ARGS]" + ARGUMENTS, True)], DetectedFormat("mistral", calls=True)),
    ],
)
def test_doctor_finds_one_format_for_all_texts(texts, reading):
    assert detect_format([ObservedText(*one) for one in texts], FORMATS, "auto") == reading


# Verdicts

GOOD = MappingProxyType(
    {
        "plain": ProbeResponse(message=ObservedMessage(SUM, finish="stop"), delta_count=1),
        "streamed": ProbeResponse(message=ObservedMessage(SUM, finish="stop"), delta_count=8, begun=0.5),
        "endless": ProbeResponse(message=ObservedMessage("1"), is_abandoned=True),
        "after": ProbeResponse(message=ObservedMessage(SUM, finish="stop"), begun=0.6),
        "thinking": ProbeResponse(
            message=ObservedMessage(SUM, "That is 7.", (), "stop"), field="reasoning", usage=Usage(98, 9)
        ),
        "tools": ProbeResponse(message=ObservedMessage(calls=(CALL,), finish="tool_calls")),
        "tools_streamed": ProbeResponse(message=ObservedMessage(calls=(CALL,), finish="tool_calls")),
        "parallel": ProbeResponse(message=ObservedMessage(calls=(CALL, CALL), finish="tool_calls")),
        "one_call": ProbeResponse(message=ObservedMessage(calls=(CALL,), finish="tool_calls")),
        "required": ProbeResponse(message=ObservedMessage(calls=(CALL,), finish="tool_calls")),
        "named": ProbeResponse(
            message=ObservedMessage(calls=(ObservedToolCall("get_time", "{}", complete=True),), finish="tool_calls")
        ),
        "none": ProbeResponse(message=ObservedMessage("I cannot.", finish="stop")),
        "schema": ProbeResponse(message=ObservedMessage('{"colour": "blue", "number": 7}', finish="stop")),
        "stopped": ProbeResponse(message=ObservedMessage("4 + 3 ", finish="stop")),
        "twice": ProbeResponse(message=ObservedMessage(SUM), choices=2),
        "chances": ProbeResponse(message=ObservedMessage(SUM), has_logprobs=True),
        "image": ProbeResponse(message=ObservedMessage("It is Red.")),
    }
)
NO = ProbeResponse(problem=Problem(400, "I do not like\n it"))
RAW = ProbeResponse(message=ObservedMessage(MARKUP, finish="stop"))
TWO_RAW = ProbeResponse(message=ObservedMessage(f"{MARKUP}\n{MARKUP}", finish="stop"))
PROSE = ProbeResponse(message=ObservedMessage("Well.", finish="stop"))
CUT = ProbeResponse(message=ObservedMessage(thought="Hm", finish="length"))
SILENT = ProbeResponse(message=ObservedMessage(finish="stop"))


def findings(
    kind="vllm", *, chosen="auto", known=None, opens=False, responses=True, messages=True, ignores=(), **probe_responses
):
    """Return good findings with these responses instead; None is a question that was not asked."""
    given_responses = {name: one for name, one in {**GOOD, **probe_responses}.items() if one}
    return Findings(
        kind=kind,
        probe_responses=given_responses,
        chosen=FormatChoice(chosen, "", opens),
        metadata=known or ModelMetadata(32768),
        responses=responses,
        messages=messages,
        ignores=ignores,
    )


def test_doctor_verdicts_of_a_perfect_backend_are_good():
    found = run_checks(findings())
    assert {verdict.state for verdict in found.values()} == {"good"} and list(found) == list(CHECKS)
    assert not any(verdict.advice for verdict in found.values())
    assert found["thoughts"].words == "arrive in `reasoning`"
    assert found["cancellation"].words == "the next response began after 0.6 s"


def test_doctor_verdicts_without_responses_are_unknown():
    found = run_checks(findings(known=ModelMetadata(), responses=None, messages=None, **dict.fromkeys(GOOD)))
    assert {verdict.state for verdict in found.values()} == {"unknown"}


def test_doctor_verdicts_are_limited_to_the_wanted_ones():
    assert list(run_checks(findings(), ["tools", "n"])) == ["tools", "n"]


HERMES = "--enable-auto-tool-choice --tool-call-parser hermes; or let the gateway parse: `format: hermes_json`"
CASES = [
    ("chat", {"plain": NO}, "wanting", "refused: I do not like it"),
    ("chat", {"plain": ProbeResponse(problem=Problem(502, "lost"))}, "wanting", "failed: lost"),
    (
        "chat",
        {"plain": ProbeResponse(message=ObservedMessage(thought=SUM, finish="stop"))},
        "wanting",
        "the server takes the whole response for",
    ),
    ("chat", {"plain": CUT}, "unknown", "the response was cut off before any text"),
    ("chat", {"plain": SILENT}, "unknown", "the response is empty"),
    ("streaming", {"streamed": replace(PROSE, delta_count=1)}, "wanting", "arrived in one chunk"),
    ("streaming", {"streamed": SILENT}, "unknown", "the response is empty"),
    ("usage", {"thinking": PROSE}, "wanting", "streams carry no token counts"),
    (
        "thoughts",
        {"thinking": ProbeResponse(message=ObservedMessage(thought=SUM, finish="stop"))},
        "wanting",
        "the server takes the whole response",
    ),
    ("thoughts", {"thinking": ProbeResponse(message=ObservedMessage(THOUGHT + SUM))}, "wanting", "arrive as text"),
    ("thoughts", {"thinking": ProbeResponse(message=ObservedMessage(SUM, "Hm"))}, "good", "arrive apart from the text"),
    ("thoughts", {"thinking": PROSE}, "unknown", "the model did not think"),
    (
        "thought_open",
        {"thinking": ProbeResponse(message=ObservedMessage("Hm</think>" + SUM))},
        "wanting",
        "the prompt opens a thought",
    ),
    (
        "thought_open",
        {"thinking": ProbeResponse(message=ObservedMessage(THOUGHT + SUM))},
        "good",
        "the model opens its thoughts itself",
    ),
    ("thought_open", {"thinking": PROSE}, "good", "the prompt opens no thought"),
    (
        "thought_open",
        {"thinking": ProbeResponse(message=ObservedMessage("Let", finish="length"))},
        "unknown",
        "the response was cut off",
    ),
    ("tools", {"tools": RAW}, "wanting", "arrive as text"),
    ("tools", {"tools": NO, "none": RAW}, "wanting", "refused: I do not like it"),
    ("tools", {"tools": PROSE}, "unknown", "the model called no tool"),
    ("tools", {"tools": CUT}, "unknown", "the response was cut off before a tool call"),
    (
        "tools",
        {"tools": ProbeResponse(message=ObservedMessage(calls=(ObservedToolCall("f", "{", complete=False),)))},
        "wanting",
        "the arguments of f",
    ),
    (
        "tools",
        {"tools": ProbeResponse(message=ObservedMessage(calls=(ObservedToolCall("f", "7", complete=True),)))},
        "wanting",
        "the arguments of f",
    ),
    (
        "tools",
        {"tools": ProbeResponse(message=ObservedMessage(calls=(ObservedToolCall("f", "[" * 9999, complete=True),)))},
        "wanting",
        "the arguments",
    ),
    ("tools_streamed", {"tools_streamed": RAW}, "wanting", "arrive as text"),
    (
        "tools_streamed",
        {
            "tools_streamed": ProbeResponse(
                message=ObservedMessage(calls=(CALL,)), warnings=frozenset(("repaired:finish_reason",))
            )
        },
        "wanting",
        "`finish_reason` is not `tool_calls`",
    ),
    ("parallel_calls", {"parallel": GOOD["tools"]}, "unknown", "the model made one tool call"),
    ("parallel_calls", {"parallel": TWO_RAW}, "wanting", "arrive as text"),
    ("one_call", {"one_call": GOOD["parallel"]}, "wanting", "is ignored: 2 tool calls"),
    ("one_call", {"one_call": TWO_RAW, "parallel": TWO_RAW}, "wanting", "is ignored: 2 tool calls"),
    ("one_call", {"parallel": GOOD["tools"]}, "unknown", "the model makes no second tool call"),
    ("one_call", {"parallel": None}, "unknown", "the model makes no second tool call"),
    ("tool_choice_required", {"required": PROSE}, "wanting", "is ignored: no tool call"),
    (
        "tool_choice_required",
        {"required": ProbeResponse(message=ObservedMessage("Well, ", finish="length"))},
        "wanting",
        "is ignored: only text until the response was cut off",
    ),
    (
        "tool_choice_required",
        {"required": ProbeResponse(message=ObservedMessage(thought=SUM, finish="stop"))},
        "wanting",
        "the server takes the whole response",
    ),
    ("tool_choice_required", {"required": CUT}, "unknown", "the response was cut off before a tool call"),
    ("tool_choice_named", {"named": RAW}, "wanting", "is ignored: called get_weather"),
    ("tool_choice_named", {"named": PROSE}, "wanting", "is ignored: no tool call"),
    ("tool_choice_named", {"named": CUT}, "unknown", "the response was cut off before a tool call"),
    ("tool_choice_none", {"none": GOOD["tools"]}, "wanting", "is ignored: a tool call"),
    ("tool_choice_none", {"none": RAW}, "wanting", "the tool call arrives as text"),
    ("json_schema", {"schema": PROSE}, "wanting", "the response does not match the schema"),
    (
        "json_schema",
        {"schema": ProbeResponse(message=ObservedMessage("[" * 9999))},
        "wanting",
        "the response does not match the schema",
    ),
    (
        "json_schema",
        {"schema": ProbeResponse(message=ObservedMessage(thought=SUM, finish="stop"))},
        "wanting",
        "the server takes the whole response",
    ),
    ("json_schema", {"schema": CUT}, "unknown", "the response was cut off"),
    (
        "json_schema",
        {"schema": ProbeResponse(message=ObservedMessage('{"colour": "blue",   ', finish="length"))},
        "unknown",
        "the response was",
    ),
    (
        "json_schema",
        {"schema": ProbeResponse(message=ObservedMessage("Let me see", finish="length"))},
        "wanting",
        "the response does not match the",
    ),
    ("stop", {"stopped": GOOD["plain"]}, "wanting", "is ignored"),
    (
        "stop",
        {"stopped": ProbeResponse(message=ObservedMessage("4 + 3 ="))},
        "wanting",
        "the response ends there, but includes the",
    ),
    ("stop", {"plain": PROSE}, "unknown", "the model did not write the stop sequence"),
    ("n", {"twice": replace(PROSE, choices=1)}, "wanting", "1 choice instead of 2"),
    ("logprobs", {"chances": PROSE}, "wanting", "are missing"),
    ("logprobs", {"chances": SILENT}, "unknown", "the response is empty"),
    ("images", {"image": NO}, "unknown", "refused: I do not like it"),
    (
        "images",
        {"image": NO, "known": ModelMetadata(abilities=frozenset(("vision",)))},
        "wanting",
        "refused: I do not like it",
    ),
    ("images", {"image": PROSE}, "unknown", "accepted, but the model did not name the color of an image"),
    ("context_window", {"known": ModelMetadata(4096)}, "wanting", "4096 tokens, too few for agents"),
    ("context_window", {"known": ModelMetadata()}, "unknown", "the server does not report it"),
    (
        "cancellation",
        {"after": replace(PROSE, begun=8.0)},
        "wanting",
        "the next response began after 8.0 s, without a cancelled one after 0.5 s",
    ),
    ("cancellation", {"endless": PROSE}, "unknown", "no response was long enough to cancel"),
    ("cancellation", {"after": SILENT}, "unknown", "no response was long enough to cancel"),
    ("responses", {"responses": False}, "good", "the server lacks it; the gateway builds it on chat completions"),
    ("messages", {"messages": False}, "good", "the server lacks it; the gateway builds it on chat completions"),
    ("messages", {"kind": "anthropic"}, "good", "the server has it"),
    (
        "responses",
        {"kind": "anthropic", "responses": False},
        "good",
        "the server lacks it; the gateway builds it on Messages",
    ),
]


@pytest.mark.parametrize(("name", "response", "state", "words"), CASES)
def test_doctor_verdict_follows_the_response(name, response, state, words):
    verdict = run_checks(findings(**response))[name]
    assert verdict.state == state and verdict.words.startswith(words), verdict


def test_doctor_verdict_cases_cover_all_probes():
    assert {name for name, *_ in CASES} == set(CHECKS)


@pytest.mark.parametrize(
    ("name", "kind", "response", "words"),
    [
        ("tools", "vllm", {"tools": RAW}, HERMES),
        ("tools", "vllm", {"tools": NO, "none": RAW}, HERMES),
        ("tools", "vllm", {"tools": NO}, "--enable-auto-tool-choice --tool-call-parser NAME"),
        ("tools", "sglang", {"tools": RAW}, "--tool-call-parser qwen; or let the gateway parse: `format: hermes_json`"),
        ("tools", "transformers", {"tools": RAW}, "let the gateway parse: `format: hermes_json`"),
        ("tools", "llamacpp", {"tools": NO}, "start it with --jinja and without --skip-chat-parsing"),
        ("thoughts", "vllm", {"thinking": ProbeResponse(message=ObservedMessage(THOUGHT + SUM))}, "--reasoning-parser deepseek_r1; or "),
        ("tool_choice_none", "vllm", {"none": RAW}, "--exclude-tools-when-tool-choice-none"),
        ("tool_choice_none", "llamacpp", {"none": RAW}, "the gateway sends no tools then"),
        ("tool_choice_named", "llamacpp", {"named": GOOD["tools"]}, "the gateway offers only that tool"),
        ("tool_choice_named", "llamacpp", {"named": RAW}, "the gateway does it: a schema of the response"),
        ("tool_choice_named", "vllm", {"named": RAW}, ""),
        ("tool_choice_named", "anthropic", {"named": GOOD["tools"]}, ""),
        ("one_call", "transformers", {"one_call": GOOD["parallel"]}, "the gateway does it: further tool calls are cut"),
        ("n", "lmstudio", {"twice": PROSE}, "the gateway does it: one request per choice"),
        ("n", "vllm", {"twice": PROSE}, "`ignores: [n]`, and the gateway does it: one request per choice"),
        ("n", "vllm", {"twice": PROSE, "ignores": ["n"]}, "the gateway does it: one request per choice"),
        ("stop", "transformers", {"stopped": GOOD["plain"]}, "the gateway does it: the rest after the stop"),
        ("stop", "vllm", {"stopped": GOOD["plain"]}, "`ignores: [stop]`, and the gateway does it: the rest after"),
        ("stop", "vllm", {"stopped": NO}, ""),
        ("json_schema", "vllm", {"schema": PROSE}, "`ignores: [response_format]`, and the gateway does it: a prompt"),
        ("logprobs", "lmstudio", {"chances": PROSE}, "the gateway drops it and reports that in x-gateway-warnings"),
        ("json_schema", "llamacpp", {"schema": PROSE}, "start it without --skip-chat-parsing; or `ignores: [response_f"),
        ("context_window", "ollama", {"known": ModelMetadata(4096)}, "OLLAMA_CONTEXT_LENGTH=N"),
        ("images", "llamacpp", {"image": NO}, "--mmproj FILE, if the model supports images"),
        ("chat", "vllm", {"plain": ProbeResponse(message=ObservedMessage(thought=SUM, finish="stop"))}, "no --reasoning-parser for a model"),
        ("thought_open", "transformers", {"thinking": ProbeResponse(message=ObservedMessage("Hm</think>" + SUM))}, "set `thought: open`"),
        ("thought_open", "vllm", {"thinking": ProbeResponse(message=ObservedMessage("Hm</think>7")), "opens": True}, "--reasoning-parser "),
    ],
)  # fmt: skip
def test_doctor_verdict_has_advice(name, kind, response, words):
    verdict = run_checks(findings(kind, **response))[name]
    assert verdict.advice.startswith(words) and bool(words) == bool(verdict.advice), verdict


def test_doctor_verdict_names_a_field_that_the_api_lacks():
    response = replace(GOOD["required"], omitted_fields=frozenset(("tool_choice",)))
    verdict = run_checks(findings("ollama", required=response))["tool_choice_required"]
    assert verdict.words == "the server's API has no field `tool_choice`"
    assert verdict.advice == "the gateway does it: a schema of the response, or a prompt"


def test_doctor_advice_exists_for_each_kind_and_format():
    for kind, topic, format in product(KINDS, get_args(AdviceTopic), ("", *FORMATS)):
        assert "{" not in advice(topic, kind, format)


# What it means for the configuration


@pytest.mark.parametrize(
    ("response", "format", "thought"),
    [
        ({}, "native", None),
        ({"none": RAW}, "native", None),
        ({"tools": RAW}, "hermes_json", None),
        ({"tools": NO, "tools_streamed": NO, "parallel": NO, "one_call": NO, "required": NO, "named": NO, "none": RAW,
          "thinking": PROSE}, "hermes_json", None),
        ({"thinking": ProbeResponse(message=ObservedMessage(THOUGHT + SUM))}, None, None),
        ({"thinking": ProbeResponse(message=ObservedMessage("Hm</think>" + SUM)), "tools": RAW}, "hermes_json", "open"),
        ({"thinking": ProbeResponse(message=ObservedMessage("Hm</think>" + SUM)), "tools": RAW, "opens": True}, "hermes_json", None),
        ({"tools": RAW, "opens": True}, "hermes_json", "closed"),
        ({"tools": RAW, "plain": CUT, "opens": True}, "hermes_json", None),
        ({"opens": True}, "native", None),
        (dict.fromkeys(GOOD), None, None),
        ({**dict.fromkeys(GOOD), "opens": True}, None, None),
    ],
)  # fmt: skip
def test_doctor_findings_become_model_settings(response, format, thought):
    found = findings(**response)
    assert (found.format, found.thought) == (format, thought)


IGNORING_RESPONSES = {
    "one_call": GOOD["parallel"],
    "required": PROSE,
    "schema": PROSE,
    "stopped": GOOD["plain"],
    "twice": PROSE,
    "chances": PROSE,
}
SILENCE = {"parallel_tool_calls", "tool_choice", "response_format", "stop", "n", "logprobs"}


@pytest.mark.parametrize(
    ("kind", "response", "fields"),
    [
        ("vllm", {}, set()),
        ("vllm", IGNORING_RESPONSES, SILENCE),
        ("vllm", {"stopped": ProbeResponse(message=ObservedMessage("4 + 3 ="))}, {"stop"}),
        ("vllm", {"required": TWO_RAW, "one_call": TWO_RAW, "parallel": TWO_RAW}, {"parallel_tool_calls"}),
        ("lmstudio", IGNORING_RESPONSES, SILENCE - {"n", "logprobs"}),
        ("transformers", IGNORING_RESPONSES, set()),
        # What is refused is not ignored, nor what may still have come, nor what only a name was not heeded of.
        ("vllm", dict.fromkeys(IGNORING_RESPONSES, NO), set()),
        ("vllm", dict.fromkeys(IGNORING_RESPONSES), set()),
        ("vllm", {"required": ProbeResponse(message=ObservedMessage("Well, ", finish="length")), "schema": CUT}, set()),
        ("vllm", {"named": RAW}, set()),
        ("ollama", {"required": replace(PROSE, omitted_fields=frozenset(("tool_choice",)))}, set()),
        # Of a llama.cpp that does not parse more is known than of one that does.
        ("llamacpp", {"required": PROSE, "schema": PROSE}, {"tool_choice", "response_format"}),
        ("llamacpp", {"required": PROSE, "schema": PROSE, "tools": RAW}, set()),
    ],
)
def test_doctor_finds_fields_that_are_ignored_silently(kind, response, fields):
    assert newly_ignored_fields(findings(kind, **response)) == fields


def server(*models, listed=(), **more):
    found = [ExaminedModel(model, one, run_checks(one)) for model, one in models]
    members = {"name": "vllm", "kind": "vllm", "url": "http://127.0.0.1:8000", **more}
    return ExaminedServer(models=tuple(found), listed_models=tuple(listed), **members)


RAW_MODEL = findings(tools=RAW)


def test_doctor_config_block_names_all_listed_models():
    block = merge_config("", [server(("qwen", RAW_MODEL), listed=("other", "qwen"), key="${KEY}")])
    assert block == (
        "backends:\n  vllm:\n    kind: vllm\n    url: http://127.0.0.1:8000\n    api_key: ${KEY}\n"
        "models:\n  other:\n    backends: [vllm]\n  qwen:\n    backends: [vllm]\n    format: hermes_json\n"
    )
    config = parse(block, "block", {"KEY": "k"}, format_names())
    assert config.models["qwen"].format == "hermes_json"


SILENT_MODEL = findings(twice=PROSE, stopped=GOOD["plain"])


def test_doctor_config_block_lists_ignored_fields():
    one = server(("qwen", SILENT_MODEL), ("other", findings(chances=PROSE)))
    assert one.ignores == ("logprobs", "n", "stop") and report_json([one])[0]["ignores"] == [*one.ignores]
    block = merge_config("", [one])
    assert "    url: http://127.0.0.1:8000\n    ignores: [logprobs, n, stop]\n" in block
    assert parse(block, "block", {}, format_names()).backends["vllm"].ignores == one.ignores


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("vllm: {url: http://x}\n", "vllm: {ignores: [n, stop], url: http://x}\n"),
        ("vllm: {url: http://x, ignores: []} # mine\n", "vllm: {url: http://x, ignores: [n, stop]} # mine\n"),
        ("vllm: {url: http://x, ignores: [seed, n]}\n", "vllm: {url: http://x, ignores: [seed, n, stop]}\n"),
        (
            "vllm:\n    # ours\n    ignores:\n      - stop # yes\n    url: http://x\n",
            "vllm:\n    # ours\n    ignores:\n      - stop # yes\n      - n\n    url: http://x\n",
        ),
    ],
)
def test_doctor_config_merge_adds_ignored_fields_to_the_list(before, after):
    text = f"backends:\n  {before}models: {{qwen: {{format: native}}}}\n"
    assert merge_config(text, [server(("qwen", SILENT_MODEL))]) == text.replace(before, after)
    assert merge_config(text, [server(("qwen", findings()))]) == text


def test_doctor_config_block_separates_equal_models_of_two_backends():
    other = server(
        ("qwen", findings()), listed=("qwen",), name="llamacpp", kind="llamacpp", url="http://127.0.0.1:8080"
    )
    block = merge_config("", [server(("qwen", RAW_MODEL), listed=("qwen",)), other])
    models = parse(block, "block", {}, format_names()).models
    assert {name: (model.format, model.upstream_model) for name, model in models.items()} == {
        "qwen": ("hermes_json", None),
        "llamacpp/qwen": ("native", "qwen"),
    }


def test_doctor_config_merge_keeps_the_file():
    before = (ROOT / "config" / "gateway.yaml").read_text("utf-8")
    after = merge_config(before, [server(("qwen", RAW_MODEL))])
    lines = iter(after.splitlines())
    assert all(line in lines for line in before.splitlines())
    assert len(after.splitlines()) == len(before.splitlines()) + 6
    assert parse(after, "after", {}, format_names()).models["qwen"].backends[0].name == "vllm"


def test_doctor_config_merge_keeps_comments():
    assert merge_config("# mine\n", [server(("qwen", findings()))]).startswith("# mine\nbackends:\n  vllm:")


CONFIG = """\
backends:
  vllm: {url: "${URL}"}  # ours
  b: {url: http://b}
models:
  fast:
    # the quick one
    upstream_model: qwen
    backends: [{name: vllm, weight: 2}]
  slow: {backends: [b], upstream_model: qwen}
"""


def test_doctor_config_merge_finds_a_model_by_its_upstream_model():
    after = merge_config(CONFIG, [server(("qwen", RAW_MODEL))])
    assert after == CONFIG.replace("weight: 2}]\n", "weight: 2}]\n    format: hermes_json\n")
    models = parse(after, "after", {"URL": "http://127.0.0.1:8000"}, format_names()).models
    assert list(models) == ["fast", "slow"]
    assert models["fast"].format == "hermes_json" and models["slow"].format == "auto"
    assert '"${URL}"}  # ours' in after and "# the quick one" in after


@pytest.mark.parametrize(
    ("there", "found", "after"),
    [
        ("{format: auto}", RAW_MODEL, "hermes_json"),
        ("{format: hermes}", RAW_MODEL, "hermes"),
        ("", RAW_MODEL, "hermes_json"),
        ("{format: qwen_xml}", findings(), "qwen_xml"),
        ("{format: qwen_xml}", findings(**dict.fromkeys(GOOD)), "qwen_xml"),
    ],
)
def test_doctor_config_merge_fills_in_the_format(there, found, after):
    text = merge_config(f"backends: {{vllm: {{url: http://x}}}}\nmodels:\n  qwen: {there}\n", [server(("qwen", found))])
    assert f"format: {after}" in text and parse(text, "x", {}, format_names()).models["qwen"]


def test_doctor_config_merge_reports_a_conflict():
    open_model = findings(tools=RAW, thinking=ProbeResponse(message=ObservedMessage("Hm</think>" + SUM)))
    text = "backends: {vllm: {url: http://x}}\nmodels: {qwen: {format: mistral, thought: closed}}\n"
    with pytest.raises(ConfigError) as caught:
        merge_config(text, [server(("qwen", open_model))], "x.yaml")
    assert str(caught.value).splitlines() == [
        "x.yaml: models.qwen.format: is mistral, but the doctor found hermes_json; remove the key to have that written",
        "x.yaml: models.qwen.thought: is closed, but the doctor found open; remove the key to have that written",
    ]


def test_doctor_config_merge_keeps_the_backend_of_other_models():
    text = "backends: {a: {url: http://a}}\nmodels: {one: , two: {strict: true}, three: {backends: [a]}}\n"
    models = parse(merge_config(text, [server(("qwen", findings()))]), "x", {}, format_names()).models
    assert {name: model.backends[0].name for name, model in models.items()} == {
        "qwen": "vllm", "one": "a", "two": "a", "three": "a",
    }  # fmt: skip
    assert models["two"].strict


def test_doctor_config_merge_skips_a_backend_with_a_problem():
    assert merge_config("a: 1\n", [server(problem="it is away")]) == "a: 1\nbackends: {}\nmodels: {}\n"


# The table


def test_doctor_table_fits_and_gives_each_advice_once():
    found = findings(tools=RAW, tools_streamed=RAW, image=ProbeResponse(problem=Problem(400, "long " * 90)))
    text = report_table([server(("qwen", found)), server(problem="It is\x1b[2J away.", name="x")])
    lines = text.splitlines()
    assert lines[0] == "vllm: vllm at http://127.0.0.1:8000, model qwen"
    assert max(map(len, lines)) <= 100
    assert text.count("--enable-auto-tool-choice") == 1
    assert lines[-2:] == ["x: vllm at http://127.0.0.1:8000", "  It is [2J away."]
    assert lines[1].split() == ["capabilities", "unknown"]
    tools = next(i for i, line in enumerate(lines) if line.startswith("  tools "))
    assert lines[tools].split() == ["tools", "wanting", "arrive", "as", "text"]
    assert lines[tools + 1].strip().startswith("→ --enable-auto-tool-choice --tool-call-parser hermes")


@pytest.mark.parametrize(
    ("abilities", "words"),
    [(None, "unknown"), (frozenset(), "none"), (frozenset(("vision", "tools")), "tools, vision")],
)
def test_doctor_names_the_capabilities_of_a_model(abilities, words):
    found = findings(known=ModelMetadata(abilities=abilities))
    rows = report_table([server(("qwen", found))]).splitlines()
    chat = next(line for line in rows if line.startswith("  chat "))
    assert rows[1] == f"  capabilities{' ' * (chat.index('good') + 9 - 14)}{words}"
    (model,) = report_json([server(("qwen", found))])[0]["models"]
    assert model["capabilities"] == (None if abilities is None else sorted(abilities))


def test_doctor_data_has_the_same_verdicts():
    (report,) = report_json([server(("qwen", RAW_MODEL))])
    (model,) = report["models"]
    assert (
        report["problem"] is None
        and report["ignores"] == []
        and (model["format"], model["thought"]) == ("hermes_json", None)
    )
    assert model["context_length"] == 32768 and list(model["verdicts"]) == list(CHECKS)
    assert model["verdicts"]["tools"] == {"verdict": "wanting", "words": "arrive as text", "advice": HERMES}


def test_doctor_backend_is_well_if_no_verdict_is_wanting():
    assert server(("qwen", findings())).well
    assert server(("qwen", findings(known=ModelMetadata(), responses=None, messages=None, **dict.fromkeys(GOOD)))).well
    assert not server(("qwen", RAW_MODEL)).well
    assert not server(problem="it is away").well
