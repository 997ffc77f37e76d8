"""A conversation that a summary takes the place of: how a model is asked for one, and how it goes on from there."""

from collections.abc import Iterable

from msgspec import Raw
from msgspec.structs import replace

from gateway.events import BuiltinItem, Event, ExtraField, Failure, Usage
from gateway.request import Request, insert_after_system, summary_message
from gateway.shortening import truncated_versions

_PROMPT = (
    "Summarise our conversation up to here, so that it can go on from your summary alone. Say what was asked and what "
    "has come of it; what was decided, and why; the names, numbers, paths and pieces of code that will be needed "
    "again; what tools have shown; and what is still to be done, the last request above all. Write only the summary."
)
_OF_THE_ANSWER = ("response_format", "logprobs", "top_logprobs")  # what is asked of it, and not of a summary
_NO_CONTENT = Usage | ExtraField | Failure


def summary_request(request: Request) -> Request:
    """The request for a summary of all that this one says; it may call nothing."""
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
    """The request with a summary of it instead of all but its instructions and what is to be answered."""
    *_, kept = truncated_versions(replace(request, shorten=True))
    return replace(request, messages=insert_after_system(kept.messages, summary_message(text)))


class CompactionItemFilter:
    """A filter by which an answer begins with the item of the compaction before it."""

    def __init__(self, item: Raw) -> None:
        self._item: Raw | None = item

    def feed(self, event: Event) -> Iterable[Event]:
        if self._item and not isinstance(event, _NO_CONTENT):
            yield BuiltinItem(0, self._item)
            self._item = None
        yield event

    def close(self) -> Iterable[Event]:
        return ()
