"""List all probes of a model, a row each, and judge their responses.

A missing tool call is no fault of the server if the model made none.
"""

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType

from msgspec import DecodeError, json

from gateway.backends import KINDS
from gateway.backends.field_rules import TranslatedRule
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

_WINDOW = 8192  # tokens of an agent's prompt with its tools
_GRACE = 1.0  # seconds that the next response may begin later than its reference
_TIMES = 2.0  # and the factor by which it may
_REPAIRS = {
    "repaired:tool_calls.index": "several calls have one index",
    "synthesised:tool_calls.id": "a call has no id of its own",
    "repaired:tool_calls.function.arguments": "arguments are not closed",
}
_FINISH = {"repaired:finish_reason": "`finish_reason` is not `tool_calls`"}


def check_chat(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the model responds with text."""
    if response.message.text:
        return passed_verdict("answers")
    if response.is_reasoning_only:
        return reasoning_only_verdict(findings)
    return unknown_verdict(
        "the model says nothing" if not response.cut else "the model had not answered when it was cut off"
    )


def check_streaming(_: Findings, response: ProbeResponse) -> Verdict:
    """Check that a stream comes in more than one piece."""
    if response.delta_count > 1:
        return passed_verdict(f"came in {response.delta_count} pieces")
    return failed_verdict("came in one piece") if response.delta_count else unknown_verdict("the model says nothing")


def check_usage(_: Findings, response: ProbeResponse) -> Verdict:
    """Check that a stream reports its usage."""
    if response.usage:
        return passed_verdict(f"{response.usage.prompt} tokens of prompt, {response.usage.completion} of answer")
    return failed_verdict("streams bring no counts", "the gateway estimates them")


def check_reasoning(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the server separates reasoning from the text."""
    if response.is_reasoning_only:
        return reasoning_only_verdict(findings)
    if findings.observed_message("thinking").thought != response.message.thought:
        return failed_verdict("come as text", advice_for("thoughts", findings))
    if response.message.thought:
        return passed_verdict(f"come in `{response.field}`" if response.field else "come apart from the text")
    return unknown_verdict("the model did not think")


def check_open_reasoning(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the reasoning is separated when the prompt opens it."""
    if findings.reading.thought_open:
        known = findings.chosen.thought_open
        words = "the prompt opens a thought, and its end comes as text"
        return failed_verdict(
            words, advice_for("thoughts", findings) if known else "`thought: open`, and the gateway parses"
        )
    if response.message.thought:
        return passed_verdict("the server tells a thought from the rest, whoever opens it")
    if findings.observed_message("thinking").thought:
        return passed_verdict("the model opens its thoughts itself")
    return unknown_verdict("the answer was cut off") if response.cut else passed_verdict("the prompt opens no thought")


def check_json_schema(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the text matches the schema."""
    if response.is_reasoning_only:
        return reasoning_only_verdict(findings)
    try:
        value = json.decode(findings.observed_message("schema").text)
    except (DecodeError, RecursionError):
        value = None
    if matches_probe_schema(value):
        return passed_verdict("the answer is of the schema")
    if response.cut and response.message.text.lstrip()[:1] in ("", "{"):
        return unknown_verdict("the answer was cut off")
    return ignored_field_verdict("the answer is not of the schema", advice_for("schema", findings))


def check_stop(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the text ends at the stop sequence."""
    plain = findings.probe_responses["plain"]
    if "=" not in plain.message.text:
        return unknown_verdict("the model did not say what it was to stop at")
    _, found, after = response.message.text.partition("=")
    if found and not after.strip():
        return ignored_field_verdict("the answer ends there, but with what it was to stop at")
    return ignored_field_verdict("is not heeded") if found else passed_verdict("the answer ends there")


def check_n(_: Findings, response: ProbeResponse) -> Verdict:
    """Check that the server returns two choices."""
    return (
        passed_verdict("2 answers to one question")
        if response.choices == 2
        else ignored_field_verdict("1 answer where 2 were asked for")
    )


def check_logprobs(_: Findings, response: ProbeResponse) -> Verdict:
    """Check that the text has log probabilities."""
    if not response.message.text:
        return unknown_verdict("the model says nothing")
    return passed_verdict("come with the text") if response.chances else ignored_field_verdict("do not come")


def check_images(findings: Findings) -> Verdict:
    """Check that the model recognizes an image."""
    response, sees = findings.probe_responses.get("image"), "vision" in (findings.metadata.abilities or ())
    if response is None:
        return unknown_verdict("was not asked")
    if response.problem:
        judge = failed_verdict if sees else unknown_verdict
        return judge(problem_text(response.problem), advice_for("images", findings))
    if "red" in findings.observed_message("image").text.lower():
        return passed_verdict("the colour of one was told")
    return unknown_verdict("taken, but the colour of one was not told")


def check_context_length(findings: Findings) -> Verdict:
    """Check that the context is long enough for agents."""
    tokens = findings.metadata.window
    if tokens is None:
        return unknown_verdict("the server does not tell")
    words = f"{tokens} tokens"
    return (
        passed_verdict(words)
        if tokens >= _WINDOW
        else failed_verdict(f"{words}, too few for agents", advice_for("window", findings))
    )


def check_cancellation(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the server stops when the client disconnects: the next response then begins without delay."""
    endless, before = findings.probe_responses["endless"], findings.probe_responses["streamed"]
    if not endless.left or before.begun is None or response.begun is None:
        return unknown_verdict("no answer was long enough to leave")
    words = f"the next answer began after {response.begun:.1f} s"
    if response.begun <= before.begun * _TIMES + _GRACE:
        return passed_verdict(words)
    return failed_verdict(f"{words}, {before.begun:.1f} s without one that was left: it seems to go on with that")


def check_responses_api(findings: Findings) -> Verdict:
    """Report if the server has the Responses API itself."""
    words = {
        True: "has its own, which the gateway does not need",
        False: "has none; the gateway makes it of chat completions",
    }
    return (
        unknown_verdict("it did not say") if findings.responses is None else passed_verdict(words[findings.responses])
    )


def check_tool_calls(question: str, least: int = 1) -> Callable[[Findings, ProbeResponse], Verdict]:
    """Return the check of a response in which at least `least` tool calls are due."""

    def judge(findings: Findings, response: ProbeResponse) -> Verdict:
        found = findings.observed_message(question).calls
        if len(found) < least:
            return unknown_verdict(_missing(len(found), response))
        if len(response.message.calls) < least:
            return failed_verdict("come as text", advice_for("calls", findings))
        if wrong := [one.name for one in response.message.calls if not _sound(one)]:
            return failed_verdict(f"the arguments of {wrong[0]} are no JSON object")
        if repairs := [words for entry, words in _repairs(findings.kind).items() if entry in response.warnings]:
            return failed_verdict("; ".join(repairs), "the gateway repairs that")
        return passed_verdict(f"called {' and '.join(one.name for one in response.message.calls)}")

    return judge


def check_parallel_tool_calls(findings: Findings, _: ProbeResponse) -> Verdict:
    """Check that `parallel_tool_calls: false` works; unknown if the model makes one tool call even without it."""
    both = findings.probe_responses.get("parallel")
    if both is None or len(findings.observed_message("parallel").calls) < 2:
        return unknown_verdict("the model made no second call anyway")
    count = len(findings.observed_message("one_call").calls)
    return ignored_field_verdict("is not heeded: 2 calls") if count > 1 else passed_verdict("at most one call")


def check_required_tool(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that `tool_choice: required` leads to a tool call."""
    if findings.observed_message("required").calls:
        return passed_verdict("a call was made")
    if response.is_reasoning_only:
        return reasoning_only_verdict(findings)
    if response.cut and not response.message.text:
        return unknown_verdict(_missing(0, response))
    if response.cut:  # the server may enforce a tool call that has not begun yet
        return failed_verdict("is not heeded: text until it was cut off")
    return ignored_field_verdict("is not heeded: no call")


def check_named_tool(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that the named tool is called.  A server that ignores the name may still support `required`."""
    names = [one.name for one in findings.observed_message("named").calls]
    if names == ["get_time"]:
        return passed_verdict("that tool was called")
    if response.cut and not (names or response.message.text):
        return unknown_verdict(_missing(0, response))
    other = isinstance(findings.configured_kind.fields["tool_choice"], TranslatedRule)
    words = f"is not heeded: {f'called {names[0]}' if names else 'no call'}"
    return failed_verdict(words, "the gateway offers that tool alone" if other else "")


def check_no_tool(findings: Findings, response: ProbeResponse) -> Verdict:
    """Check that `tool_choice: none` prevents tool calls."""
    if response.message.calls:
        return failed_verdict("is not heeded: a call", "the gateway sends no tools then")
    if findings.observed_message("none").calls:
        return failed_verdict(
            "the call comes as text", advice_for("no_tools", findings) or "the gateway sends no tools then"
        )
    return passed_verdict("no call was made")


def _repairs(kind: str) -> dict[str, str]:
    """Return the warnings that show a fault; Ollama's API has no finish reason for tool calls."""
    return _REPAIRS if KINDS[kind].dialect == "ollama" else _REPAIRS | _FINISH


def _missing(count: int, response: ProbeResponse) -> str:
    if response.cut:
        return "the model had not called when it was cut off"
    return "the model made one call" if count else "the model did not call"


def _sound(call: ObservedToolCall) -> bool:
    try:
        return call.complete and isinstance(json.decode(call.arguments), dict)
    except (DecodeError, RecursionError):
        return False


PROBES: Mapping[str, Check] = MappingProxyType(
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
    }
)


def run_checks(findings: Findings, names: Collection[str] = ()) -> dict[str, Verdict]:
    """Return the verdicts with these names, or all."""
    return {name: probe.judge(findings) for name, probe in PROBES.items() if not names or name in names}


def newly_ignored_fields(findings: Findings) -> set[str]:
    """Return the fields that the server ignores, and that the gateway does not know it to ignore."""
    found = {probe.field for probe in PROBES.values() if probe.judge(findings).ignored}
    return {field for field in found if not findings.is_known_to_ignore(field)}
