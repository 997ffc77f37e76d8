"""How much a model is to think, in Ollama's word for it: `think`, a switch or a level."""

from collections.abc import Mapping
from typing import Any

from gateway.backends.openai.body import BodyTarget
from gateway.ledger import Warnings

_LEVELS: Mapping[str, str | bool] = {
    "none": False, "minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "max", "max": "max",
}  # fmt: skip
_SWITCHES = ("enable_thinking", "thinking")  # as the templates of models have it
FIELDS = frozenset(("think", "reasoning_effort", "reasoning", "chat_template_kwargs", *_SWITCHES))


def think_field(said: Mapping[str, Any], target: BodyTarget, ledger: Warnings) -> dict[str, Any]:
    """The field for what is said in FIELDS.  A model that cannot think would refuse to be asked for it."""
    field, wanted = _wanted(said, ledger)
    if wanted is None:
        return {}
    if wanted is not False and not target.thinks:
        ledger.note("dropped", field)
        return {}
    if wanted is False and "gpt-oss" in target.model:  # thinks always, on a level
        ledger.note("unenforced", field)
        return {"think": "low"}
    return {"think": wanted}


def _wanted(said: Mapping[str, Any], ledger: Warnings) -> tuple[str, Any]:
    """Which field decides, and what it asks for; None: nothing."""
    switch = _switch(said.get("chat_template_kwargs"), ledger)
    effort = said.get("reasoning_effort")
    level = _LEVELS.get(effort) if isinstance(effort, str) else None
    if "think" in said:
        return "think", said["think"]
    if switch is False or (switch and not level):
        return "chat_template_kwargs", switch
    if level and level != effort:
        ledger.note("translated", "reasoning_effort")
    return "reasoning_effort", level


def _switch(settings: object, ledger: Warnings) -> bool | None:
    """None for settings of which none is a switch; others have no effect here."""
    given = settings if isinstance(settings, dict) else {}
    switches = [given[name] for name in _SWITCHES if isinstance(given.get(name), bool)]
    if settings is not None and len(switches) < max(len(given), 1):
        ledger.note("dropped", "chat_template_kwargs")
    if switches:
        ledger.note("translated", "chat_template_kwargs")
    return switches[0] if switches else None
