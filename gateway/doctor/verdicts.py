"""Convert findings to verdicts, and give advice: the flags and settings of each kind of server."""

from collections.abc import Callable, Mapping
from textwrap import shorten
from types import MappingProxyType
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends import Kind
from gateway.backends.field_rules import CUT_OFF, DroppedRule, EmulatedRule
from gateway.backends.ignored_fields import with_ignored_fields
from gateway.doctor.findings import Findings, Verdict
from gateway.doctor.probe_response import ProbeResponse
from gateway.errors import Problem
from gateway.formats import FORMATS

AdviceTopic = Literal["calls", "thoughts", "no_thoughts", "no_tools", "schema", "images", "window"]

# vLLM 0.32: vllm/tool_parsers, vllm/reasoning
_TOOL_PARSERS = frozenset(
    ("apertus", "cohere_command3", "cohere_command4", "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4",
     "deepseek_v41", "dots", "ernie45", "functiongemma", "gemma4", "gigachat3", "glm45", "glm47", "granite",
     "granite-20b-fc", "granite4", "hermes", "hunyuan_a13b", "hy_v3", "hy_v4", "inkling", "internlm", "jamba",
     "k2_horizon", "kimi_k2", "kimi_k3", "lfm2", "ling3", "llama3_json", "llama4_pythonic", "longcat", "mimo",
     "minicpm5", "minimax_m2", "minimax_m3", "mistral", "muse_glimmer", "olmo3", "openai", "phi4_mini_json", "plamo3",
     "poolside_v1", "pythonic", "qwen3_coder", "seed_oss", "step3", "step3p5", "xlam")
)  # fmt: skip
_REASONING_PARSERS = frozenset(
    ("cohere_command3", "cohere_command4", "deepseek_r1", "deepseek_v3", "deepseek_v4", "deepseek_v41", "ernie45",
     "gemma4", "glm45", "glm47", "granite", "hunyuan_a13b", "hy_v3", "hy_v4", "inkling", "k2_horizon", "kimi_k2",
     "kimi_k3", "ling3", "mimo", "minicpmv", "minimax_m2", "minimax_m3", "mistral", "muse_glimmer", "nemotron_v3",
     "olmo3", "openai_gptoss", "plamo3", "poolside_v1", "qwen3", "seed_oss", "step3", "step3p5")
)  # fmt: skip
# From SGLang's documentation of its tool parsers.
_SGLANG = MappingProxyType(
    {
        "deepseek_v3": "deepseekv3",
        "deepseek_v31": "deepseekv31",
        "dsml_v32": "deepseekv32",
        "glm45_xml": "glm",
        "glm47_xml": "glm",
        "harmony": "gpt-oss",
        "hermes_json": "qwen",
        "kimi_k2": "kimi_k2",
        "llama3_json": "llama3",
        "llama4_pythonic": "pythonic",
        "mistral": "mistral",
        "pythonic": "pythonic",
        "qwen_xml": "qwen3_coder",
        "step3": "step3",
    }
)

ADVICE: Mapping[AdviceTopic, Mapping[str, str]] = MappingProxyType(
    {
        "calls": {
            "vllm": "--enable-auto-tool-choice --tool-call-parser {tools}",
            "sglang": "--tool-call-parser {sglang}",
            "llamacpp": "start it with --jinja and without --skip-chat-parsing",
            "ollama": "use a model that `ollama show` lists with `tools`",
            "lmstudio": "use a model that LM Studio lists as trained for tools",
        },
        "thoughts": {
            "vllm": "--reasoning-parser {reasoning}",
            "sglang": "--reasoning-parser with SGLang's name of the family",
            "llamacpp": "start it with --reasoning-format deepseek and without --skip-chat-parsing",
            "ollama": "use a model that `ollama show` lists with `thinking`",
            "lmstudio": "turn on the setting that puts thoughts into reasoning_content",
        },
        "no_thoughts": {
            "vllm": "no --reasoning-parser for a model that does not think",
            "sglang": "no --reasoning-parser for a model that does not think",
            "llamacpp": "--reasoning-format none, or a chat template that opens no thought",
        },
        "no_tools": {"vllm": "--exclude-tools-when-tool-choice-none"},
        "schema": {"llamacpp": "start it without --skip-chat-parsing"},
        "images": {
            "llamacpp": "--mmproj FILE, if the model supports images",
            "ollama": "use a model that `ollama show` lists with `vision`",
        },
        "window": {
            "vllm": "--max-model-len N",
            "sglang": "--context-length N",
            "llamacpp": "-c N, shared by the slots of -np",
            "ollama": "OLLAMA_CONTEXT_LENGTH=N, or `num_ctx: N` in the `defaults` of the model",
            "lmstudio": "lms load --context-length N",
        },
    }
)

FindingsCheck = Callable[[Findings], Verdict]
ResponseCheck = Callable[[Findings, ProbeResponse], Verdict]
_LONGEST = 160  # characters of a server's error message


def advice(topic: AdviceTopic, kind: str, format: str = "") -> str:
    """Return the advice for a server of this kind; `format`: the family of the model's texts, if known."""
    row = FORMATS.get(format)
    names = (format, *row.aliases) if row else ()
    tools = next((name for name in names if name in _TOOL_PARSERS), "NAME")
    reasoning = next((name for name in names if name in _REASONING_PARSERS), "NAME")
    return ADVICE[topic].get(kind, "").format(tools=tools, reasoning=reasoning, sglang=_SGLANG.get(format, "NAME"))


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


def check_response(question: str, judge: ResponseCheck, topic: AdviceTopic | None = None) -> Check:
    """Return the check of one probe's response.  topic: the advice if the server refused the request."""

    def judged(findings: Findings) -> Verdict:
        response = findings.probe_responses.get(question)
        if response is None:
            return unknown_verdict("was not tested")
        if response.problem:
            return failed_verdict(problem_text(response.problem), advice_for(topic, findings) if topic else "")
        return judge(findings, response)

    return Check(judged)


def check_field(question: str, field: str, judge: ResponseCheck, topic: AdviceTopic | None = None) -> Check:
    """Return the check that a server supports an API field; its advice names the remedy of the gateway."""

    def read_verdict(findings: Findings, response: ProbeResponse) -> Verdict:
        if field in response.omitted_fields:
            return failed_verdict(f"the server's API has no field `{field}`")
        return judge(findings, response)

    probe = check_response(question, read_verdict, topic)

    def judged(findings: Findings) -> Verdict:
        found, kind = probe.judge(findings), findings.configured_kind
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
    """Of an answer that is nothing but a thought, by the server's word."""
    return failed_verdict("the server takes the whole response for a thought", advice_for("no_thoughts", findings))


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
