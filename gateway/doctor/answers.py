"""Judge probes of plain responses and of reasoning."""

from msgspec import DecodeError, json

from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.heard import ProbeResponse
from gateway.doctor.judging import (
    advice_for,
    failed_verdict,
    ignored_field_verdict,
    passed_verdict,
    problem_text,
    reasoning_only_verdict,
    unknown_verdict,
)
from gateway.doctor.questions import matches_probe_schema

_WINDOW = 8192  # tokens that the prompt of an agent with its tools takes
_GRACE = 1.0  # seconds that an answer may begin later than its like
_TIMES = 2.0  # and how many times later


def check_chat(findings: Findings, heard: ProbeResponse) -> Verdict:
    if heard.said.text:
        return passed_verdict("answers")
    if heard.all_thought:
        return reasoning_only_verdict(findings)
    return unknown_verdict(
        "the model says nothing" if not heard.cut else "the model had not answered when it was cut off"
    )


def check_streaming(_: Findings, heard: ProbeResponse) -> Verdict:
    if heard.pieces > 1:
        return passed_verdict(f"came in {heard.pieces} pieces")
    return failed_verdict("came in one piece") if heard.pieces else unknown_verdict("the model says nothing")


def check_usage(_: Findings, heard: ProbeResponse) -> Verdict:
    if heard.usage:
        return passed_verdict(f"{heard.usage.prompt} tokens of prompt, {heard.usage.completion} of answer")
    return failed_verdict("streams bring no counts", "the gateway estimates them")


def check_reasoning(findings: Findings, heard: ProbeResponse) -> Verdict:
    if heard.all_thought:
        return reasoning_only_verdict(findings)
    if findings.said("thinking").thought != heard.said.thought:
        return failed_verdict("come as text", advice_for("thoughts", findings))
    if heard.said.thought:
        return passed_verdict(f"come in `{heard.field}`" if heard.field else "come apart from the text")
    return unknown_verdict("the model did not think")


def check_open_reasoning(findings: Findings, heard: ProbeResponse) -> Verdict:
    if findings.reading.thought_open:
        known = findings.chosen.thought_open
        words = "the prompt opens a thought, and its end comes as text"
        return failed_verdict(
            words, advice_for("thoughts", findings) if known else "`thought: open`, and the gateway parses"
        )
    if heard.said.thought:
        return passed_verdict("the server tells a thought from the rest, whoever opens it")
    if findings.said("thinking").thought:
        return passed_verdict("the model opens its thoughts itself")
    return unknown_verdict("the answer was cut off") if heard.cut else passed_verdict("the prompt opens no thought")


def check_json_schema(findings: Findings, heard: ProbeResponse) -> Verdict:
    if heard.all_thought:
        return reasoning_only_verdict(findings)
    try:
        value = json.decode(findings.said("schema").text)
    except (DecodeError, RecursionError):
        value = None
    if matches_probe_schema(value):
        return passed_verdict("the answer is of the schema")
    if heard.cut and heard.said.text.lstrip()[:1] in ("", "{"):
        return unknown_verdict("the answer was cut off")
    return ignored_field_verdict("the answer is not of the schema", advice_for("schema", findings))


def check_stop(findings: Findings, heard: ProbeResponse) -> Verdict:
    plain = findings.heard["plain"]
    if "=" not in plain.said.text:
        return unknown_verdict("the model did not say what it was to stop at")
    _, found, after = heard.said.text.partition("=")
    if found and not after.strip():
        return ignored_field_verdict("the answer ends there, but with what it was to stop at")
    return ignored_field_verdict("is not heeded") if found else passed_verdict("the answer ends there")


def check_n(_: Findings, heard: ProbeResponse) -> Verdict:
    return (
        passed_verdict("2 answers to one question")
        if heard.choices == 2
        else ignored_field_verdict("1 answer where 2 were asked for")
    )


def check_logprobs(_: Findings, heard: ProbeResponse) -> Verdict:
    if not heard.said.text:
        return unknown_verdict("the model says nothing")
    return passed_verdict("come with the text") if heard.chances else ignored_field_verdict("do not come")


def check_images(findings: Findings) -> Verdict:
    heard, sees = findings.heard.get("image"), "vision" in (findings.known.abilities or ())
    if heard is None:
        return unknown_verdict("was not asked")
    if heard.problem:
        judge = failed_verdict if sees else unknown_verdict
        return judge(problem_text(heard.problem), advice_for("images", findings))
    if "red" in findings.said("image").text.lower():
        return passed_verdict("the colour of one was told")
    return unknown_verdict("taken, but the colour of one was not told")


def check_context_length(findings: Findings) -> Verdict:
    tokens = findings.known.window
    if tokens is None:
        return unknown_verdict("the server does not tell")
    words = f"{tokens} tokens"
    return (
        passed_verdict(words)
        if tokens >= _WINDOW
        else failed_verdict(f"{words}, too few for agents", advice_for("window", findings))
    )


def check_cancellation(findings: Findings, heard: ProbeResponse) -> Verdict:
    """As far as that shows from outside: the next question is answered as soon as ever."""
    endless, before = findings.heard["endless"], findings.heard["streamed"]
    if not endless.left or before.begun is None or heard.begun is None:
        return unknown_verdict("no answer was long enough to leave")
    words = f"the next answer began after {heard.begun:.1f} s"
    if heard.begun <= before.begun * _TIMES + _GRACE:
        return passed_verdict(words)
    return failed_verdict(f"{words}, {before.begun:.1f} s without one that was left: it seems to go on with that")


def check_responses_api(findings: Findings) -> Verdict:
    words = {
        True: "has its own, which the gateway does not need",
        False: "has none; the gateway makes it of chat completions",
    }
    return (
        unknown_verdict("it did not say") if findings.responses is None else passed_verdict(words[findings.responses])
    )
