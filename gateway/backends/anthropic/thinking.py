"""Convert the effort of reasoning to `thinking` and `output_config`, within the rules of Anthropic's API.

Newer models decide themselves how long they think, and take an effort.  Older ones, and other servers, take a budget.
The names of models tell their generations apart.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.backends.anthropic.messages import JsonObject, is_signed
from gateway.warnings import Warnings

_BUDGETED = re.compile(
    r"claude-(?:instant|[123]\b)|claude-(?:opus|sonnet|haiku)-4(?:[-.][0-5]\b|-20\d{6}|$)|^(?!.*claude)"
)
_BETWEEN = re.compile(r"claude-(?:opus|sonnet|haiku)-4[-.]6\b")  # takes the fields of both generations
_VERSION = re.compile(r"claude-[a-z]+-\d")
_BUDGETS: Mapping[str, int] = {
    "minimal": 1024, "low": 2048, "medium": 8192, "high": 16384, "xhigh": 32768, "max": 49152,
}  # fmt: skip
DEFAULT_LIMIT = 32_000  # tokens of a response without a limit, as the API wants one
_LEAST = 1024  # tokens; the API takes no smaller budget
_LEAST_TOP_P = 0.95
_ON = ("enabled", "adaptive", "between_tools")


def needs_budget(model: str) -> bool:
    """Return True for a model that takes a budget of reasoning, and no effort: Claude up to 4.5, and any other model.

    Only such a model goes on from a message of the assistant at the end.
    """
    return bool(_BUDGETED.search(model.lower()))


def chooses_itself(model: str) -> bool:
    """Return True for a model that refuses budgets of reasoning and parameters of sampling: Claude from 4.7 on."""
    return not needs_budget(model) and not _BETWEEN.search(model.lower())


def names_version(model: str) -> bool:
    """Return True if the name has the version of a Claude, as no alias of a proxy has."""
    return bool(_VERSION.search(model.lower()))


def fitting_effort(level: str, model: str) -> str:
    """Return the level of effort that a model of this name takes in the place of any level."""
    if level == "minimal":
        return "low"
    return level if level != "xhigh" or chooses_itself(model) else "max"


def thinking_fields(data: JsonObject, model: str, ledger: Warnings) -> JsonObject:
    """Take `thinking` and `reasoning_effort` out of the fields, and return what the model takes in their place."""
    given, effort = data.pop("thinking", None), data.pop("reasoning_effort", None)
    if not isinstance(given, dict):
        if given is not None:
            ledger.add("dropped", "thinking")
        if effort is None:
            return {}
        given = {"type": "disabled" if effort == "none" else "enabled"}
    level = effort if effort in _BUDGETS else None
    fields: JsonObject = {"thinking": fitting_thinking(given, level, model, ledger)}
    if level and not needs_budget(model):
        fields["output_config"] = {"effort": fitting_effort(level, model)}
    return fields


def fitting_thinking(given: JsonObject, level: str | None, model: str, ledger: Warnings) -> JsonObject:
    """Return the setting that the model takes: with a budget, or adaptive."""
    if given.get("type") != "enabled":
        return given
    budget = given.get("budget_tokens")
    if budget is None and needs_budget(model):
        return {**given, "budget_tokens": _BUDGETS[level or "medium"]}
    if budget is not None and not chooses_itself(model):
        return given
    if budget is not None:
        ledger.add("translated", "thinking")
    return {"type": "adaptive", "display": given.get("display") or "summarized"}


def fit_thinking(fields: JsonObject, limit: int | None, turns: Sequence[JsonObject], ledger: Warnings) -> int:
    """Make `thinking` fit the other fields; return the token limit.

    limit: of the client; None: a large budget raises the default.
    """
    thinking = fields.get("thinking") or {}
    if thinking.get("type") not in _ON:
        return limit or DEFAULT_LIMIT
    budget = thinking.get("budget_tokens")
    fitting = _fitting_budget(budget, limit) if isinstance(budget, int) else None
    too_short = isinstance(budget, int) and limit is not None and limit <= _LEAST
    if too_short or _is_forced(fields) or (thinking["type"] == "enabled" and lacks_thought(turns)):
        del fields["thinking"]
        ledger.add("unenforced", "thinking")
        return limit or DEFAULT_LIMIT
    if fitting != budget:
        fields["thinking"] = {**thinking, "budget_tokens": fitting}
        ledger.add("translated", "thinking")
    _drop_sampling(fields, ledger)
    return limit or DEFAULT_LIMIT + (fitting or 0)


def cannot_think(fields: Mapping[str, Any]) -> bool:
    """Return True if the API refuses a client's own `thinking`: for its budget, or an open call without a thought."""
    thinking = fields.get("thinking") or {}
    budget = thinking.get("budget_tokens")
    too_small = budget is not None and budget < _LEAST  # opencode asks for its titles with -1
    return thinking.get("type") == "enabled" and (too_small or lacks_thought(fields["messages"]))


def _fitting_budget(budget: int, limit: int | None) -> int:
    """Return a budget within the limits of the API: below the token limit, and not too small."""
    return max(budget if limit is None or budget < limit else limit // 2, _LEAST)


def _is_forced(fields: Mapping[str, Any]) -> bool:
    return (fields.get("tool_choice") or {}).get("type") in ("any", "tool")


def lacks_thought(turns: Sequence[JsonObject]) -> bool:
    """Return True if the open tool calls began without signed reasoning, as after a model of another backend."""
    last = next((turn for turn in reversed(turns) if not _has_only_results(turn)), None)
    content = last["content"] if last and last["role"] == "assistant" else []
    blocks: list[JsonObject] = content if isinstance(content, list) else []
    return any(block["type"] == "tool_use" for block in blocks) and not is_signed(blocks[0])


def _has_only_results(turn: JsonObject) -> bool:
    content = turn["content"]
    return not isinstance(content, str) and all(block["type"] == "tool_result" for block in content)


def _drop_sampling(fields: JsonObject, ledger: Warnings) -> None:
    """Remove sampling parameters that the API refuses beside reasoning."""
    for name, refused in (
        ("temperature", fields.get("temperature") not in (None, 1)),
        ("top_k", "top_k" in fields),
        ("top_p", (fields.get("top_p") or 1) < _LEAST_TOP_P),
    ):
        if refused:
            del fields[name]
            ledger.add("dropped", name)
