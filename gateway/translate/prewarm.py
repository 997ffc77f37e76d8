"""A prompt that is only read, so that the backend has it in its cache: one token is asked for, and nothing is said."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gateway.events import Event, ExtraField, Failure, Finish, Usage
from gateway.ledger import Warnings
from gateway.request import Request


def lower_prewarm(request: Request, _: Warnings) -> tuple[Request, Sequence["SilenceFilter"]]:
    """The tools stay, and what is said of them: they are part of what is read."""
    return (request, []) if request.generates else (replace(request, max_tokens=1), [SilenceFilter()])


class SilenceFilter:
    """Lets through what was counted, what is said of the whole answer, and its end, which is always a good one."""

    def feed(self, event: Event) -> Iterable[Event]:
        match event:
            case Usage():
                return (Usage(event.prompt, 0, event.cached, kept=event.kept),)
            case Finish():
                return (Finish(event.choice, "stop"),)
            case Failure() | ExtraField(choice=None):
                return (event,)
        return ()

    def close(self) -> Iterable[Event]:
        return ()  # nothing is held back
