"""`truncation: auto`: shorter versions of a request whose prompt does not fit into the model's window."""

from collections.abc import Sequence
from itertools import accumulate

from msgspec.structs import replace

from gateway.request import LEADING, Message, Request

_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # of what may be left out


def truncated_versions(request: Request) -> list[Request]:
    """The request, and where it may be shortened up to five versions, each without more of its oldest messages.

    What is left out is left out by whole groups, an assistant's message and the outputs of its calls; system
    messages, the last user message and the last group are kept.
    """
    if not request.shorten:
        return [request]
    groups = _groups(request.messages)
    droppable = _droppable(groups)
    sizes = [*accumulate(len(str(groups[i])) for i in droppable)]
    counts = {sum(size <= share * sizes[-1] for size in sizes) or 1 for share in _SHARES} if sizes else set()
    return [request, *(_without(request, groups, set(droppable[:count])) for count in sorted(counts))]


def _groups(messages: Sequence[Message]) -> list[list[Message]]:
    groups: list[list[Message]] = []
    for message in messages:
        if message["role"] == "tool" and groups:
            groups[-1].append(message)
        else:
            groups.append([message])
    return groups


def _droppable(groups: Sequence[Sequence[Message]]) -> list[int]:
    roles = [group[0]["role"] for group in groups]
    last_user = max((i for i, role in enumerate(roles) if role == "user"), default=-1)
    kept = {last_user, len(groups) - 1}
    return [i for i, role in enumerate(roles) if role not in LEADING and i not in kept]


def _without(request: Request, groups: Sequence[Sequence[Message]], left_out: set[int]) -> Request:
    kept = tuple(message for i, group in enumerate(groups) if i not in left_out for message in group)
    return replace(request, messages=kept)
