"""What is found out of a model: a row each."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from gateway.doctor import answers, calls
from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.judging import Check, heeding, of

PROBES: Mapping[str, Check] = MappingProxyType(
    {
        "chat": of("plain", answers.chat),
        "streaming": of("streamed", answers.streaming),
        "usage": of("thinking", answers.usage),  # Ollama does not count a prompt that it has read before
        "thoughts": of("thinking", answers.thoughts),
        "thought_open": of("thinking", answers.thought_open),
        "tools": of("tools", calls.called("tools"), "calls"),
        "tools_streamed": of("tools_streamed", calls.called("tools_streamed"), "calls"),
        "parallel_calls": of("parallel", calls.called("parallel", 2), "calls"),
        "one_call": heeding("one_call", "parallel_tool_calls", calls.one_call, "calls"),
        "tool_choice_required": heeding("required", "tool_choice", calls.required, "calls"),
        "tool_choice_named": heeding("named", "tool_choice", calls.named, "calls"),
        "tool_choice_none": of("none", calls.none, "calls"),
        "json_schema": heeding("schema", "response_format", answers.schema, "schema"),
        "stop": heeding("stopped", "stop", answers.stop),
        "n": heeding("twice", "n", answers.several),
        "logprobs": heeding("chances", "logprobs", answers.logprobs),
        "images": Check(answers.images),
        "context_window": Check(answers.window),
        "cancellation": of("after", answers.cancellation),
        "responses": Check(answers.responses),
    }
)


def verdicts(findings: Findings, names: Collection[str] = ()) -> dict[str, Verdict]:
    """Those of these names, or all of them."""
    return {name: probe.judge(findings) for name, probe in PROBES.items() if not names or name in names}


def ignored(findings: Findings) -> set[str]:
    """The fields that the server takes and does nothing about, and of which the gateway is yet to be told that."""
    found = {probe.field for probe in PROBES.values() if probe.judge(findings).ignored}
    return {field for field in found if not findings.known_to_ignore(field)}
