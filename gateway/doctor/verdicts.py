"""Convert findings to verdicts, and give advice: the flags and settings of the kind of server."""

from collections.abc import Callable
from textwrap import shorten

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends import Kind
from gateway.backends.field_rules import CUT_OFF, DroppedRule, EmulatedRule
from gateway.backends.ignored_fields import with_ignored_fields
from gateway.backends.kind_row import AdviceTopic
from gateway.backends.kinds import ROWS
from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.probe_response import ProbeResponse
from gateway.errors import Problem
from gateway.formats import FORMATS

FindingsCheck = Callable[[Findings], Verdict]
ResponseCheck = Callable[[Findings, ProbeResponse], Verdict]
_LONGEST = 160  # characters of a server's error message
_OTHER_KEY = "give the key of the server: `--key-env VAR`, or `api_key` of the backend in the configuration"


def advice(topic: AdviceTopic, kind: str, format: str = "") -> str:
    """Return the advice for a server of this kind; `format`: the family of the model's texts, if known."""
    row, known = FORMATS.get(format), ROWS[kind].advice
    names = (format, *row.aliases) if row else ()
    tools, reasoning = (
        next((parsers[name] for name in names if name in parsers), "NAME")
        for parsers in (known.tool_parsers, known.reasoning_parsers)
    )
    return known.texts.get(topic, "").format(tools=tools, reasoning=reasoning)


class Check(Struct, frozen=True):
    """A check of a model.  judge: returns its verdict; field: the API field, if the check is about one."""

    judge: FindingsCheck
    field: str = ""


def passed_verdict(words: str) -> Verdict:
    """Return the verdict for a feature that works."""
    return Verdict("good", words)


def failed_verdict(words: str, advice: str = "") -> Verdict:
    """Return the verdict for a feature that fails."""
    return Verdict("wanting", words, advice)


def unknown_verdict(words: str, advice: str = "") -> Verdict:
    """Return the verdict for a feature that could not be judged."""
    return Verdict("unknown", words, advice)


def ignored_field_verdict(words: str, advice: str = "") -> Verdict:
    """Return the verdict for a field that the server accepted and ignored."""
    return Verdict("wanting", words, advice, ignored=True)


def check_response(probe: str, judge: ResponseCheck, topic: AdviceTopic | None = None) -> Check:
    """Return the check of one probe's response.  topic: the advice if the server refused the request."""

    def judged(findings: Findings) -> Verdict:
        response = findings.probe_responses.get(probe)
        if response is None:
            return unknown_verdict("was not tested")
        if response.problem:
            problem = response.problem
            return failed_verdict(problem_text(problem), _advice_for_problem(problem, topic, findings))
        return judge(findings, response)

    return Check(judged)


def check_field(probe: str, field: str, judge: ResponseCheck, topic: AdviceTopic | None = None) -> Check:
    """Return the check that a server supports an API field; its advice names the remedy of the gateway."""

    def read_verdict(findings: Findings, response: ProbeResponse) -> Verdict:
        if field in response.omitted_fields:
            return failed_verdict(f"the server's API has no field `{field}`")
        return judge(findings, response)

    check = check_response(probe, read_verdict, topic)

    def judged(findings: Findings) -> Verdict:
        found, kind = check.judge(findings), findings.configured_kind
        if found.ignored and not findings.is_known_to_ignore(field):
            then = f"`ignores: [{field}]`, and {_by_the_gateway(field, with_ignored_fields(kind, [field]))}"
            return replace(found, advice="; or ".join(filter(None, (found.advice, then))))
        if found.state == "wanting" and not found.advice:
            return replace(found, advice=_by_the_gateway(field, kind))
        return found

    return Check(judged, field)


def advice_for(topic: AdviceTopic, findings: Findings) -> str:
    """Return the advice on a topic, with the format for parsing at the gateway as the alternative."""
    flag, format = advice(topic, findings.kind, findings.reading.format), findings.reading.format
    if topic not in ("calls", "thoughts") or not format:
        return flag
    return "; or ".join(filter(None, (flag, f"let the gateway parse: `format: {format}`")))


def reasoning_only_verdict(findings: Findings) -> Verdict:
    """Return the verdict for a response that is complete and nothing but reasoning, as the server labels it."""
    return failed_verdict("the server takes the whole response for a thought", advice_for("no_thoughts", findings))


def _advice_for_problem(problem: Problem, topic: AdviceTopic | None, findings: Findings) -> str:
    """Return the advice on a problem, which is about the key if the server refuses that."""
    if problem.code == "upstream_auth_error":
        return _OTHER_KEY
    return advice_for(topic, findings) if topic else ""


def problem_text(problem: Problem) -> str:
    """Return the server's description of a problem."""
    return f"{'refused' if problem.status < 500 else 'failed'}: {shorten(problem.message, _LONGEST)}"


def _by_the_gateway(field: str, kind: Kind) -> str:
    """Return the description of how the gateway handles a field that this kind of server ignores."""
    match kind.fields[field]:
        case EmulatedRule(how=how):
            return f"the gateway does it: {how}"
        case DroppedRule():
            return "the gateway drops it and reports that in x-gateway-warnings"
        case found if found == CUT_OFF:
            return f"the gateway does it: {CUT_OFF.how}"
    return ""
