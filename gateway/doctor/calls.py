"""Judge probes of tool calls.  A model that does not call a tool is not a fault of its server."""

from collections.abc import Callable

from msgspec import DecodeError, json

from gateway.backends import KINDS
from gateway.backends.verdicts import TranslatedRule
from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.heard import ObservedToolCall, ProbeResponse
from gateway.doctor.judging import (
    advice_for,
    failed_verdict,
    ignored_field_verdict,
    passed_verdict,
    reasoning_only_verdict,
    unknown_verdict,
)

_REPAIRS = {
    "repaired:tool_calls.index": "several calls have one index",
    "synthesised:tool_calls.id": "a call has no id of its own",
    "repaired:tool_calls.function.arguments": "arguments are not closed",
}
_FINISH = {"repaired:finish_reason": "`finish_reason` is not `tool_calls`"}


def check_tool_calls(question: str, least: int = 1) -> Callable[[Findings, ProbeResponse], Verdict]:
    """The judge of an answer in which so many calls are due."""

    def judge(findings: Findings, heard: ProbeResponse) -> Verdict:
        found = findings.said(question).calls
        if len(found) < least:
            return unknown_verdict(_missing(len(found), heard))
        if len(heard.said.calls) < least:
            return failed_verdict("come as text", advice_for("calls", findings))
        if wrong := [one.name for one in heard.said.calls if not _sound(one)]:
            return failed_verdict(f"the arguments of {wrong[0]} are no JSON object")
        if repairs := [words for entry, words in _repairs(findings.kind).items() if entry in heard.noted]:
            return failed_verdict("; ".join(repairs), "the gateway repairs that")
        return passed_verdict(f"called {' and '.join(one.name for one in heard.said.calls)}")

    return judge


def check_parallel_tool_calls(findings: Findings, _: ProbeResponse) -> Verdict:
    """Judge parallel calls without a setting."""
    both = findings.heard.get("parallel")
    if both is None or len(findings.said("parallel").calls) < 2:
        return unknown_verdict("the model made no second call anyway")
    count = len(findings.said("one_call").calls)
    return ignored_field_verdict("is not heeded: 2 calls") if count > 1 else passed_verdict("at most one call")


def check_required_tool(findings: Findings, heard: ProbeResponse) -> Verdict:
    if findings.said("required").calls:
        return passed_verdict("a call was made")
    if heard.all_thought:
        return reasoning_only_verdict(findings)
    if heard.cut and not heard.said.text:
        return unknown_verdict(_missing(0, heard))
    if heard.cut:  # it may be held to a call that it has not come to
        return failed_verdict("is not heeded: text until it was cut off")
    return ignored_field_verdict("is not heeded: no call")


def check_named_tool(findings: Findings, heard: ProbeResponse) -> Verdict:
    """A server that heeds no name may still heed `required`, which counts."""
    names = [one.name for one in findings.said("named").calls]
    if names == ["get_time"]:
        return passed_verdict("that tool was called")
    if heard.cut and not (names or heard.said.text):
        return unknown_verdict(_missing(0, heard))
    other = isinstance(findings.configured.fields["tool_choice"], TranslatedRule)
    words = f"is not heeded: {f'called {names[0]}' if names else 'no call'}"
    return failed_verdict(words, "the gateway offers that tool alone" if other else "")


def check_no_tool(findings: Findings, heard: ProbeResponse) -> Verdict:
    if heard.said.calls:
        return failed_verdict("is not heeded: a call", "the gateway sends no tools then")
    if findings.said("none").calls:
        return failed_verdict(
            "the call comes as text", advice_for("no_tools", findings) or "the gateway sends no tools then"
        )
    return passed_verdict("no call was made")


def _repairs(kind: str) -> dict[str, str]:
    """Ollama's API has no such reason."""
    return _REPAIRS if KINDS[kind].dialect == "ollama" else _REPAIRS | _FINISH


def _missing(count: int, heard: ProbeResponse) -> str:
    if heard.cut:
        return "the model had not called when it was cut off"
    return "the model made one call" if count else "the model did not call"


def _sound(call: ObservedToolCall) -> bool:
    try:
        return call.complete and isinstance(json.decode(call.arguments), dict)
    except (DecodeError, RecursionError):
        return False
