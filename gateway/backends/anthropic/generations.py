"""Tell the generations of Claude apart by their names: newer ones refuse fields that older ones need."""

import re

_BUDGETED = re.compile(
    r"claude-(?:instant|[123]\b)|claude-(?:opus|sonnet|haiku)-4(?:[-.][0-5]\b|-20\d{6}|$)|^(?!.*claude)"
)
_BETWEEN = re.compile(r"claude-(?:opus|sonnet|haiku)-4[-.]6\b")  # takes the fields of both generations


def needs_budget(model: str) -> bool:
    """Return True for a model that takes a budget of reasoning, and no effort: Claude up to 4.5, and any other model.

    Only such a model goes on from a message of the assistant at the end.
    """
    return bool(_BUDGETED.search(model.lower()))


def chooses_itself(model: str) -> bool:
    """Return True for a model that refuses budgets of reasoning and parameters of sampling: Claude from 4.7 on."""
    return not needs_budget(model) and not _BETWEEN.search(model.lower())


def fitting_effort(level: str, model: str) -> str:
    """Return the level of effort that a model of this name takes in the place of any level."""
    if level == "minimal":
        return "low"
    return level if level != "xhigh" or chooses_itself(model) else "max"
