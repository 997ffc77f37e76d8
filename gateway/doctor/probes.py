"""List all probes of a model, a row each."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from gateway.doctor import answers, calls
from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.judging import Check, check_field, check_response

PROBES: Mapping[str, Check] = MappingProxyType(
    {
        "chat": check_response("plain", answers.check_chat),
        "streaming": check_response("streamed", answers.check_streaming),
        "usage": check_response(
            "thinking", answers.check_usage
        ),  # Ollama does not count a prompt that it has read before
        "thoughts": check_response("thinking", answers.check_reasoning),
        "thought_open": check_response("thinking", answers.check_open_reasoning),
        "tools": check_response("tools", calls.check_tool_calls("tools"), "calls"),
        "tools_streamed": check_response("tools_streamed", calls.check_tool_calls("tools_streamed"), "calls"),
        "parallel_calls": check_response("parallel", calls.check_tool_calls("parallel", 2), "calls"),
        "one_call": check_field("one_call", "parallel_tool_calls", calls.check_parallel_tool_calls, "calls"),
        "tool_choice_required": check_field("required", "tool_choice", calls.check_required_tool, "calls"),
        "tool_choice_named": check_field("named", "tool_choice", calls.check_named_tool, "calls"),
        "tool_choice_none": check_response("none", calls.check_no_tool, "calls"),
        "json_schema": check_field("schema", "response_format", answers.check_json_schema, "schema"),
        "stop": check_field("stopped", "stop", answers.check_stop),
        "n": check_field("twice", "n", answers.check_n),
        "logprobs": check_field("chances", "logprobs", answers.check_logprobs),
        "images": Check(answers.check_images),
        "context_window": Check(answers.check_context_length),
        "cancellation": check_response("after", answers.check_cancellation),
        "responses": Check(answers.check_responses_api),
    }
)


def run_checks(findings: Findings, names: Collection[str] = ()) -> dict[str, Verdict]:
    """Return the verdicts of these names, or all of them."""
    return {name: probe.judge(findings) for name, probe in PROBES.items() if not names or name in names}


def newly_ignored_fields(findings: Findings) -> set[str]:
    """The fields that the server takes and does nothing about, and of which the gateway is yet to be told that."""
    found = {probe.field for probe in PROBES.values() if probe.judge(findings).ignored}
    return {field for field in found if not findings.known_to_ignore(field)}
