"""Fit a request to the model's context window: `truncation: auto` shortens it, compaction summarizes its history."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from msgspec import Raw
from msgspec.structs import replace

from gateway.events import BuiltinItem, Event, ExtraField, Failure, Usage
from gateway.request import LEADING, Message, Request, insert_after_system, summary_message

_SHARES = (0.2, 0.4, 0.6, 0.8, 1.0)  # of the messages that may be left out
_PROMPT = (
    "Summarise our conversation up to here, so that it can go on from your summary alone. Say what was asked and what "
    "has come of it; what was decided, and why; the names, numbers, paths and pieces of code that will be needed "
    "again; what tools have shown; and what is still to be done, the last request above all. Write only the summary."
)
_OF_THE_ANSWER = ("response_format", "logprobs", "top_logprobs")  # fields that do not apply to a summary
_NO_CONTENT = Usage | ExtraField | Failure


def truncated_versions(request: Request) -> list[Request]:
    """Return the request, followed by up to five shorter versions if it may be shortened, the longest first.

    Messages are left out by groups: an assistant's message with the outputs of its tool calls.
    System messages, the last user message and the last group are kept.
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


def summary_request(request: Request) -> Request:
    """Return the request for a summary of this one, without tool calls."""
    messages = (*request.messages, {"role": "user", "content": _PROMPT})
    rest = {name: value for name, value in request.rest.items() if name not in _OF_THE_ANSWER}
    return replace(
        request,
        messages=messages,
        tool_choice="none",
        max_tokens=None,
        stream=False,
        generates=True,
        rest=rest,
    )


def request_after_summary(request: Request, text: str) -> Request:
    """Return the request with a summary in place of its history.

    System messages, the last user message and the last group stay.
    """
    *_, kept = truncated_versions(replace(request, shorten=True))
    return replace(request, messages=insert_after_system(kept.messages, summary_message(text)))


class CompactionItemFilter:
    """Begin a response with the item of the compaction before it."""

    def __init__(self, item: Raw) -> None:
        self._item: Raw | None = item

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the event, after the compaction's item if it is the first content."""
        if self._item and not isinstance(event, _NO_CONTENT):
            yield BuiltinItem(0, self._item)
            self._item = None
        yield event

    def close(self) -> Iterable[Event]:
        """Return no events."""
        return ()
