"""From findings to a verdict: what all judges share."""

from collections.abc import Callable
from textwrap import shorten

from gateway.backends import KINDS
from gateway.backends.extensions import verdict
from gateway.backends.verdicts import Dropped, Emulated, Unenforced
from gateway.doctor.advice import Topic, advice
from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.heard import Heard
from gateway.errors import Problem

Judge = Callable[[Findings], Verdict]
JudgeHeard = Callable[[Findings, Heard], Verdict]
_LONGEST = 160  # characters of a server's own words


def good(words: str) -> Verdict:
    return Verdict("good", words)


def wanting(words: str, advice: str = "") -> Verdict:
    return Verdict("wanting", words, advice)


def unknown(words: str, advice: str = "") -> Verdict:
    return Verdict("unknown", words, advice)


def of(question: str, judge: JudgeHeard, topic: Topic | None = None) -> Judge:
    """The judge of one question's answer, where there is one.  `topic`: of the advice if it was refused."""

    def judged(findings: Findings) -> Verdict:
        heard = findings.heard.get(question)
        if heard is None:
            return unknown("was not asked")
        if heard.problem:
            return wanting(told(heard.problem), to_do(topic, findings) if topic else "")
        return judge(findings, heard)

    return judged


def heeding(question: str, field: str, judge: JudgeHeard, topic: Topic | None = None) -> Judge:
    """The same for whether a field of the API is heeded."""

    def heard(findings: Findings, heard: Heard) -> Verdict:
        if field in heard.unasked:
            return wanting(f"the server's API has no `{field}`")
        return judge(findings, heard)

    judge_heard = of(question, heard, topic)

    def judged(findings: Findings) -> Verdict:
        found = judge_heard(findings)
        if found.state == "wanting" and not found.advice:
            return wanting(found.words, _by_the_gateway(field, findings.kind))
        return found

    return judged


def to_do(topic: Topic, findings: Findings) -> str:
    """The advice; what is in the text may be left to the gateway as well."""
    flag, format = advice(topic, findings.kind, findings.reading.format), findings.reading.format
    if topic not in ("calls", "thoughts") or not format:
        return flag
    return "; or ".join(filter(None, (flag, f"let the gateway parse: `format: {format}`")))


def taken_for_thought(findings: Findings) -> Verdict:
    """Of an answer that is nothing but a thought, by the server's word."""
    return wanting("all of the answer is taken for a thought", to_do("no_thoughts", findings))


def told(problem: Problem) -> str:
    """What went wrong, in the server's words."""
    return f"{'refused' if problem.status < 500 else 'failed'}: {shorten(problem.message, _LONGEST)}"


def _by_the_gateway(field: str, kind: str) -> str:
    """What it does about a field that this kind of server is known not to heed."""
    match verdict(field, KINDS[kind]):
        case Emulated(how=how):
            return f"the gateway sees to it: {how}"
        case Dropped() | Unenforced():
            return "the gateway leaves it out, and says so in x-gateway-warnings"
    return ""
