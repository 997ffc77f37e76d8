"""From findings to a verdict: what all judges share."""

from collections.abc import Callable
from textwrap import shorten

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends import Kind
from gateway.backends.ignores import with_ignored_fields
from gateway.backends.verdicts import CUT_OFF, DroppedRule, EmulatedRule
from gateway.doctor.advice import AdviceTopic, advice
from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.heard import ProbeResponse
from gateway.errors import Problem

FindingsCheck = Callable[[Findings], Verdict]
ResponseCheck = Callable[[Findings, ProbeResponse], Verdict]
_LONGEST = 160  # characters of a server's own words


class Check(Struct, frozen=True):
    """A check of a model, and the function that judges it; `field`: of the API, if the check is about it."""

    judge: FindingsCheck
    field: str = ""


def passed_verdict(words: str) -> Verdict:
    return Verdict("good", words)


def failed_verdict(words: str, advice: str = "") -> Verdict:
    return Verdict("wanting", words, advice)


def unknown_verdict(words: str, advice: str = "") -> Verdict:
    return Verdict("unknown", words, advice)


def ignored_field_verdict(words: str, advice: str = "") -> Verdict:
    """Of a field that was taken, and nothing done about it."""
    return Verdict("wanting", words, advice, ignored=True)


def check_response(question: str, judge: ResponseCheck, topic: AdviceTopic | None = None) -> Check:
    """The judge of one question's answer, where there is one.  `topic`: of the advice if it was refused."""

    def judged(findings: Findings) -> Verdict:
        heard = findings.heard.get(question)
        if heard is None:
            return unknown_verdict("was not asked")
        if heard.problem:
            return failed_verdict(problem_text(heard.problem), advice_for(topic, findings) if topic else "")
        return judge(findings, heard)

    return Check(judged)


def check_field(question: str, field: str, judge: ResponseCheck, topic: AdviceTopic | None = None) -> Check:
    """The same for whether a field of the API is heeded."""

    def heard(findings: Findings, heard: ProbeResponse) -> Verdict:
        if field in heard.unasked:
            return failed_verdict(f"the server's API has no `{field}`")
        return judge(findings, heard)

    probe = check_response(question, heard, topic)

    def judged(findings: Findings) -> Verdict:
        found, kind = probe.judge(findings), findings.configured
        if found.ignored and not findings.known_to_ignore(field):
            then = f"`ignores: [{field}]`, and {_by_the_gateway(field, with_ignored_fields(kind, [field]))}"
            return replace(found, advice="; or ".join(filter(None, (found.advice, then))))
        if found.state == "wanting" and not found.advice:
            return replace(found, advice=_by_the_gateway(field, kind))
        return found

    return Check(judged, field)


def advice_for(topic: AdviceTopic, findings: Findings) -> str:
    """The advice; what is in the text may be left to the gateway as well."""
    flag, format = advice(topic, findings.kind, findings.reading.format), findings.reading.format
    if topic not in ("calls", "thoughts") or not format:
        return flag
    return "; or ".join(filter(None, (flag, f"let the gateway parse: `format: {format}`")))


def reasoning_only_verdict(findings: Findings) -> Verdict:
    """Of an answer that is nothing but a thought, by the server's word."""
    return failed_verdict("all of the answer is taken for a thought", advice_for("no_thoughts", findings))


def problem_text(problem: Problem) -> str:
    """Return the server's description of a problem."""
    return f"{'refused' if problem.status < 500 else 'failed'}: {shorten(problem.message, _LONGEST)}"


def _by_the_gateway(field: str, kind: Kind) -> str:
    """Return how the gateway handles a field that this kind of server is known to ignore."""
    match kind.fields[field]:
        case EmulatedRule(how=how):
            return f"the gateway sees to it: {how}"
        case DroppedRule():
            return "the gateway leaves it out, and says so in x-gateway-warnings"
        case found if found == CUT_OFF:
            return f"the gateway sees to it: {CUT_OFF.how}"
    return ""
