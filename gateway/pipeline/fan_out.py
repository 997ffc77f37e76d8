"""Merge several upstream rounds into one with several choices, for servers that generate one choice at a time.

A Pipeline uses a FanOut as its RoundSource.  The relay sets `current` to the member that the next bytes belong to.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from gateway import transforms
from gateway.errors import Problem
from gateway.events import Event, ExtraField, Failure, Usage
from gateway.pipeline.upstream_reader import UpstreamReader
from gateway.transforms import EventFilter


class FanOut:
    """Merge rounds of one choice each.

    members: one reader per choice, without filters.
    filters: applied to the merged events, so that they see all choices.
    """

    single_chunk_decoder = None
    done = False  # unknown until all bodies have ended

    def __init__(self, members: Sequence[UpstreamReader], filters: Sequence[EventFilter] = ()) -> None:
        self._members, self._filters = members, filters
        self._counted: dict[int, Usage] = {}  # by member
        self._ended: list[Event] = []  # events of ended members that are not passed on yet
        self.current = 0

    def set_content_type(self, content_type: str) -> None:
        """Pass on the content type of the current member's response."""
        self._members[self.current].set_content_type(content_type)

    def feed(self, data: bytes) -> list[Event]:
        """Return the events of the current member's data, after those of ended members."""
        return self._filtered(self._member.feed(data) if data else ())

    def end(self) -> Problem | None:
        """End the current member, whose body has ended, and return its problem if it failed.

        Its last events go out with the next ones.
        """
        ended = [*self._merged(self._member.close())]
        self._ended += ended
        return next((event.problem for event in ended if isinstance(event, Failure)), None)

    def close(self) -> list[Event]:
        """End all choices, and return the last events."""
        return [*self._filtered(()), *transforms.close_filters(self._filters)]

    def fail(self, problem: Problem) -> list[Event]:
        """Fail all choices, because the current member's body broke off, and return the last events."""
        return [*self._filtered(self._member.fail(problem)), *transforms.close_filters(self._filters)]

    @property
    def usage(self) -> Usage:
        """The usage of all members, with the prompt counted once."""
        return _sum(member.usage for member in self._members)

    @property
    def _member(self) -> UpstreamReader:
        return self._members[self.current]

    def _filtered(self, events: Iterable[Event]) -> list[Event]:
        ended, self._ended = self._ended, []
        return [*transforms.apply_filters(self._filters, [*ended, *self._merged(events)])]

    def _merged(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events of the current member as those of its choice; its failure is the failure of all."""
        for event in events:
            if isinstance(event, Failure):
                yield from self._lost(event.problem)
                yield event
            else:
                yield self._with_choice(event, self.current)

    def _lost(self, problem: Problem) -> Iterator[Event]:
        """Yield the usage of the other members."""
        for choice, member in enumerate(self._members):
            if choice != self.current:
                events = member.fail(problem)
                yield from (self._with_choice(event, choice) for event in events if not isinstance(event, Failure))

    def _with_choice(self, event: Any, choice: int) -> Event:  # noqa: ANN401 - any event but Failure
        if isinstance(event, Usage):
            self._counted[choice] = event
            return _sum(self._counted.values())
        if isinstance(event, ExtraField) and event.choice is None:
            return event
        numbered: Event = replace(event, choice=choice) if choice else event
        return numbered


def _sum(usages: Iterable[Usage]) -> Usage:
    """Return the sum, with the prompt counted once, although each member read it."""
    first, *more = usages
    return sum((replace(usage, prompt=0, cached=0, cache_written=0) for usage in more), first)
