"""What plain answers, and thoughts, tell of a server."""

from msgspec import DecodeError, json

from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.heard import ProbeResponse
from gateway.doctor.judging import good, taken_for_thought, to_do, told, unheeded, unknown, wanting
from gateway.doctor.questions import fits

_WINDOW = 8192  # tokens that the prompt of an agent with its tools takes
_GRACE = 1.0  # seconds that an answer may begin later than its like
_TIMES = 2.0  # and how many times later


def chat(findings: Findings, heard: ProbeResponse) -> Verdict:
    if heard.said.text:
        return good("answers")
    if heard.all_thought:
        return taken_for_thought(findings)
    return unknown("the model says nothing" if not heard.cut else "the model had not answered when it was cut off")


def streaming(_: Findings, heard: ProbeResponse) -> Verdict:
    if heard.pieces > 1:
        return good(f"came in {heard.pieces} pieces")
    return wanting("came in one piece") if heard.pieces else unknown("the model says nothing")


def usage(_: Findings, heard: ProbeResponse) -> Verdict:
    if heard.usage:
        return good(f"{heard.usage.prompt} tokens of prompt, {heard.usage.completion} of answer")
    return wanting("streams bring no counts", "the gateway estimates them")


def thoughts(findings: Findings, heard: ProbeResponse) -> Verdict:
    if heard.all_thought:
        return taken_for_thought(findings)
    if findings.said("thinking").thought != heard.said.thought:
        return wanting("come as text", to_do("thoughts", findings))
    if heard.said.thought:
        return good(f"come in `{heard.field}`" if heard.field else "come apart from the text")
    return unknown("the model did not think")


def thought_open(findings: Findings, heard: ProbeResponse) -> Verdict:
    if findings.reading.thought_open:
        known = findings.chosen.thought_open
        words = "the prompt opens a thought, and its end comes as text"
        return wanting(words, to_do("thoughts", findings) if known else "`thought: open`, and the gateway parses")
    if heard.said.thought:
        return good("the server tells a thought from the rest, whoever opens it")
    if findings.said("thinking").thought:
        return good("the model opens its thoughts itself")
    return unknown("the answer was cut off") if heard.cut else good("the prompt opens no thought")


def schema(findings: Findings, heard: ProbeResponse) -> Verdict:
    if heard.all_thought:
        return taken_for_thought(findings)
    try:
        value = json.decode(findings.said("schema").text)
    except (DecodeError, RecursionError):
        value = None
    if fits(value):
        return good("the answer is of the schema")
    if heard.cut and heard.said.text.lstrip()[:1] in ("", "{"):
        return unknown("the answer was cut off")
    return unheeded("the answer is not of the schema", to_do("schema", findings))


def stop(findings: Findings, heard: ProbeResponse) -> Verdict:
    plain = findings.heard["plain"]
    if "=" not in plain.said.text:
        return unknown("the model did not say what it was to stop at")
    _, found, after = heard.said.text.partition("=")
    if found and not after.strip():
        return unheeded("the answer ends there, but with what it was to stop at")
    return unheeded("is not heeded") if found else good("the answer ends there")


def several(_: Findings, heard: ProbeResponse) -> Verdict:
    return good("2 answers to one question") if heard.choices == 2 else unheeded("1 answer where 2 were asked for")


def logprobs(_: Findings, heard: ProbeResponse) -> Verdict:
    if not heard.said.text:
        return unknown("the model says nothing")
    return good("come with the text") if heard.chances else unheeded("do not come")


def images(findings: Findings) -> Verdict:
    heard, sees = findings.heard.get("image"), "vision" in (findings.known.abilities or ())
    if heard is None:
        return unknown("was not asked")
    if heard.problem:
        judge = wanting if sees else unknown
        return judge(told(heard.problem), to_do("images", findings))
    if "red" in findings.said("image").text.lower():
        return good("the colour of one was told")
    return unknown("taken, but the colour of one was not told")


def window(findings: Findings) -> Verdict:
    tokens = findings.known.window
    if tokens is None:
        return unknown("the server does not tell")
    words = f"{tokens} tokens"
    return good(words) if tokens >= _WINDOW else wanting(f"{words}, too few for agents", to_do("window", findings))


def cancellation(findings: Findings, heard: ProbeResponse) -> Verdict:
    """As far as that shows from outside: the next question is answered as soon as ever."""
    endless, before = findings.heard["endless"], findings.heard["streamed"]
    if not endless.left or before.begun is None or heard.begun is None:
        return unknown("no answer was long enough to leave")
    words = f"the next answer began after {heard.begun:.1f} s"
    if heard.begun <= before.begun * _TIMES + _GRACE:
        return good(words)
    return wanting(f"{words}, {before.begun:.1f} s without one that was left: it seems to go on with that")


def responses(findings: Findings) -> Verdict:
    words = {
        True: "has its own, which the gateway does not need",
        False: "has none; the gateway makes it of chat completions",
    }
    return unknown("it did not say") if findings.responses is None else good(words[findings.responses])
