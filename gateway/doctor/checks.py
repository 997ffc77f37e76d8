"""List all checks of a model, a row each, and judge the responses to its probes.

A missing tool call is no fault of the server if the model made none.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from msgspec import DecodeError, json

from gateway.backends import KINDS
from gateway.backends.field_rules import ALONE
from gateway.backends.model_metadata import AGENT_WINDOW
from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.probe_requests import matches_probe_schema
from gateway.doctor.probe_response import ObservedToolCall, ProbeResponse
from gateway.doctor.verdicts import (
    Check,
    advice_for,
    check_field,
    check_response,
    failed_verdict,
    ignored_field_verdict,
    passed_verdict,
    problem_text,
    reasoning_only_verdict,
    unknown_verdict,
)

_GRACE = 1.0  # seconds that the next response may begin later than its reference
_TIMES = 2.0  # and the factor by which it may
_REPAIRS = {
    "repaired:tool_calls.index": "several tool calls share one index",
    "synthesised:tool_calls.id": "a tool call has no unique id",
    "repaired:tool_calls.function.arguments": "arguments are incomplete JSON",
}
_FINISH = {"repaired:finish_reason": "`finish_reason` is not `tool_calls`"}


def check_chat(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the model responds with text."""
    if response.message.text:
        return passed_verdict("responds")
    if response.is_reasoning_only:
        return reasoning_only_verdict(findings)
    return unknown_verdict("the response is empty" if not response.cut else "the response was cut off before any text")


def check_streaming(_: Findings, response: ProbeResponse) -> Verdict:
    """Check that a stream comes in more than one piece."""
    if response.delta_count > 1:
        return passed_verdict(f"arrived in {response.delta_count} chunks")
    return failed_verdict("arrived in one chunk") if response.delta_count else unknown_verdict("the response is empty")


def check_usage(_: Findings, response: ProbeResponse) -> Verdict:
    """Check that a stream reports its usage."""
    if response.usage:
        return passed_verdict(f"{response.usage.prompt} prompt tokens, {response.usage.completion} response tokens")
    return failed_verdict("streams carry no token counts", "the gateway estimates them")


def check_reasoning(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the server separates reasoning from the text."""
    if response.is_reasoning_only:
        return reasoning_only_verdict(findings)
    if findings.observed_message("thinking").thought != response.message.thought:
        return failed_verdict("arrive as text", advice_for("thoughts", findings))
    if response.message.thought:
        return passed_verdict(f"arrive in `{response.field}`" if response.field else "arrive apart from the text")
    return unknown_verdict("the model did not think")


def check_open_reasoning(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the reasoning is separated when the prompt opens it."""
    if findings.reading.thought_open:
        known = findings.chosen.thought_open
        words = "the prompt opens a thought, and its end arrives as text"
        return failed_verdict(
            words, advice_for("thoughts", findings) if known else "set `thought: open`, and the gateway parses it"
        )
    if response.message.thought:
        return passed_verdict("the server separates thoughts from the text")
    if findings.observed_message("thinking").thought:
        return passed_verdict("the model opens its thoughts itself")
    return (
        unknown_verdict("the response was cut off") if response.cut else passed_verdict("the prompt opens no thought")
    )


def check_json_schema(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the text matches the schema."""
    if response.is_reasoning_only:
        return reasoning_only_verdict(findings)
    try:
        value = json.decode(findings.observed_message("schema").text)
    except (DecodeError, RecursionError):
        value = None
    if matches_probe_schema(value):
        return passed_verdict("the response matches the schema")
    if response.cut and response.message.text.lstrip()[:1] in ("", "{"):
        return unknown_verdict("the response was cut off")
    return ignored_field_verdict("the response does not match the schema", advice_for("schema", findings))


def check_stop(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the text ends at the stop sequence."""
    plain = findings.probe_responses["plain"]
    if "=" not in plain.message.text:
        return unknown_verdict("the model did not write the stop sequence")
    _, found, after = response.message.text.partition("=")
    if found and not after.strip():
        return ignored_field_verdict("the response ends there, but includes the stop sequence")
    return ignored_field_verdict("is ignored") if found else passed_verdict("the response ends there")


def check_n(_: Findings, response: ProbeResponse) -> Verdict:
    """Check that the server returns two choices."""
    return (
        passed_verdict("2 choices for one request")
        if response.choices == 2
        else ignored_field_verdict("1 choice instead of 2")
    )


def check_logprobs(_: Findings, response: ProbeResponse) -> Verdict:
    """Check that the text has log probabilities."""
    if not response.message.text:
        return unknown_verdict("the response is empty")
    return passed_verdict("arrive with the text") if response.has_logprobs else ignored_field_verdict("are missing")


def check_images(findings: Findings) -> Verdict:
    """Check that the model recognizes an image."""
    response, sees = findings.probe_responses.get("image"), "vision" in (findings.metadata.abilities or ())
    if response is None:
        return unknown_verdict("was not tested")
    if response.problem:
        judge = failed_verdict if sees else unknown_verdict
        return judge(problem_text(response.problem), advice_for("images", findings))
    if "red" in findings.observed_message("image").text.lower():
        return passed_verdict("the model named the color of an image")
    return unknown_verdict("accepted, but the model did not name the color of an image")


def check_context_length(findings: Findings) -> Verdict:
    """Check that the context is long enough for agents."""
    tokens = findings.metadata.window
    if tokens is None:
        return unknown_verdict("the server does not report it")
    words = f"{tokens} tokens"
    return (
        passed_verdict(words)
        if tokens >= AGENT_WINDOW
        else failed_verdict(f"{words}, too few for agents", advice_for("window", findings))
    )


def check_cancellation(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the server stops when the client disconnects: the next response then begins without delay."""
    endless, before = findings.probe_responses["endless"], findings.probe_responses["streamed"]
    if not endless.is_abandoned or before.begun is None or response.begun is None:
        return unknown_verdict("no response was long enough to cancel")
    words = f"the next response began after {response.begun:.1f} s"
    if response.begun <= before.begun * _TIMES + _GRACE:
        return passed_verdict(words)
    return failed_verdict(
        f"{words}, without a cancelled one after {before.begun:.1f} s: the server seems to continue it"
    )


def check_responses_api(findings: Findings) -> Verdict:
    """Report if the server has /v1/responses itself."""
    return _other_api(findings.responses, findings)


def check_messages_api(findings: Findings) -> Verdict:
    """Report if the server has /v1/messages itself, which the gateway calls if it is of the kind anthropic."""
    if findings.configured_kind.dialect == "anthropic" and findings.messages:
        return passed_verdict("the server has it")
    return _other_api(findings.messages, findings)


def _other_api(has: bool | None, findings: Findings) -> Verdict:
    """Report if the server has an API that the gateway does not call."""
    below = "Messages" if findings.configured_kind.dialect == "anthropic" else "chat completions"
    words = {
        True: "the server has it; the gateway does not need it",
        False: f"the server lacks it; the gateway builds it on {below}",
    }
    return unknown_verdict("the server did not report it") if has is None else passed_verdict(words[has])


def check_tool_calls(probe: str, least: int = 1) -> Callable[[Findings, ProbeResponse], Verdict]:
    """Return the check of a response in which at least `least` tool calls are due."""

    def judge(findings: Findings, response: ProbeResponse) -> Verdict:
        found = findings.observed_message(probe).calls
        if len(found) < least:
            return unknown_verdict(_missing(len(found), response))
        if len(response.message.calls) < least:
            return failed_verdict("arrive as text", advice_for("calls", findings))
        if wrong := [one.name for one in response.message.calls if not _sound(one)]:
            return failed_verdict(f"the arguments of {wrong[0]} are not a JSON object")
        if repairs := [words for entry, words in _repairs(findings.kind).items() if entry in response.warnings]:
            return failed_verdict("; ".join(repairs), "the gateway repairs that")
        return passed_verdict(f"called {' and '.join(one.name for one in response.message.calls)}")

    return judge


def check_parallel_tool_calls(findings: Findings, _: ProbeResponse) -> Verdict:
    """Check that `parallel_tool_calls: false` works; unknown if the model makes one tool call even without it."""
    both = findings.probe_responses.get("parallel")
    if both is None or len(findings.observed_message("parallel").calls) < 2:
        return unknown_verdict("the model makes no second tool call")
    count = len(findings.observed_message("one_call").calls)
    return ignored_field_verdict("is ignored: 2 tool calls") if count > 1 else passed_verdict("at most one tool call")


def check_required_tool(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that `tool_choice: required` leads to a tool call."""
    if findings.observed_message("required").calls:
        return passed_verdict("the model called a tool")
    if response.is_reasoning_only:
        return reasoning_only_verdict(findings)
    if response.cut and not response.message.text:
        return unknown_verdict(_missing(0, response))
    if response.cut:  # the server may enforce a tool call that has not begun yet
        return failed_verdict("is ignored: only text until the response was cut off")
    return ignored_field_verdict("is ignored: no tool call")


def check_named_tool(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the named tool is called.  A server that ignores the name may still support `required`."""
    names = [one.name for one in findings.observed_message("named").calls]
    if names == ["get_time"]:
        return passed_verdict("the model called that tool")
    if response.cut and not (names or response.message.text):
        return unknown_verdict(_missing(0, response))
    other = findings.configured_kind.fields["tool_choice"] == ALONE
    words = f"is ignored: {f'called {names[0]}' if names else 'no tool call'}"
    return failed_verdict(words, "the gateway offers only that tool" if other else "")


def check_no_tool(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that `tool_choice: none` prevents tool calls."""
    if response.message.calls:
        return failed_verdict("is ignored: a tool call", "the gateway sends no tools then")
    if findings.observed_message("none").calls:
        return failed_verdict(
            "the tool call arrives as text", advice_for("no_tools", findings) or "the gateway sends no tools then"
        )
    return passed_verdict("no tool call")


def _repairs(kind: str) -> dict[str, str]:
    """Return the warnings that show a fault; Ollama's API has no finish reason for tool calls."""
    return _REPAIRS if KINDS[kind].dialect == "ollama" else _REPAIRS | _FINISH


def _missing(count: int, response: ProbeResponse) -> str:
    if response.cut:
        return "the response was cut off before a tool call"
    return "the model made one tool call" if count else "the model called no tool"


def _sound(call: ObservedToolCall) -> bool:
    try:
        return call.complete and isinstance(json.decode(call.arguments), dict)
    except (DecodeError, RecursionError):
        return False


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "chat": check_response("plain", check_chat),
        "streaming": check_response("streamed", check_streaming),
        "usage": check_response("thinking", check_usage),  # Ollama counts no prompt that is in its cache
        "thoughts": check_response("thinking", check_reasoning),
        "thought_open": check_response("thinking", check_open_reasoning),
        "tools": check_response("tools", check_tool_calls("tools"), "calls"),
        "tools_streamed": check_response("tools_streamed", check_tool_calls("tools_streamed"), "calls"),
        "parallel_calls": check_response("parallel", check_tool_calls("parallel", 2), "calls"),
        "one_call": check_field("one_call", "parallel_tool_calls", check_parallel_tool_calls, "calls"),
        "tool_choice_required": check_field("required", "tool_choice", check_required_tool, "calls"),
        "tool_choice_named": check_field("named", "tool_choice", check_named_tool, "calls"),
        "tool_choice_none": check_response("none", check_no_tool, "calls"),
        "json_schema": check_field("schema", "response_format", check_json_schema, "schema"),
        "stop": check_field("stopped", "stop", check_stop),
        "n": check_field("twice", "n", check_n),
        "logprobs": check_field("chances", "logprobs", check_logprobs),
        "images": Check(check_images),
        "context_window": Check(check_context_length),
        "cancellation": check_response("after", check_cancellation),
        "responses": Check(check_responses_api),
        "messages": Check(check_messages_api),
    }
)


def run_checks(findings: Findings, names: Collection[str] = ()) -> dict[str, Verdict]:
    """Return the verdicts with these names, or all."""
    return {name: check.judge(findings) for name, check in CHECKS.items() if not names or name in names}


def is_missing(findings: Findings) -> bool:
    """Return True if the server says that it does not have the model."""
    plain = findings.probe_responses.get("plain")
    return bool(plain and plain.problem and plain.problem.code == "model_not_found")


def newly_ignored_fields(findings: Findings) -> set[str]:
    """Return the fields that the server ignores, and that the gateway does not know it to ignore."""
    found = {check.field for check in CHECKS.values() if check.judge(findings).ignored}
    return {field for field in found if not findings.is_known_to_ignore(field)}
