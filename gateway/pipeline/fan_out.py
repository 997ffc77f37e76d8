"""Several upstream rounds as the choices of one, where a server gives but one choice at a time.

To a Pipeline it is an UpstreamReader; which of its members the bytes are of, is said before: `current`.
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
    """filters: see all choices, so that they are one answer; the members have none."""

    feed_one = None
    done = False  # as far as is known before all of their bodies have ended

    def __init__(self, members: Sequence[UpstreamReader], filters: Sequence[EventFilter] = ()) -> None:
        self._members, self._filters = members, filters
        self._counted: dict[int, Usage] = {}  # by member
        self._ended: list[Event] = []  # events of ended upstreams that are not passed on yet
        self.current = 0

    def answered(self, content_type: str) -> None:
        self._members[self.current].answered(content_type)

    def feed(self, data: bytes) -> list[Event]:
        return self._told(self._member.feed(data) if data else ())

    def end(self) -> Problem | None:
        """The current one's body came to its end; what that brings is told with what comes next.  Why it failed."""
        ended = [*self._merged(self._member.close())]
        self._ended += ended
        return next((event.problem for event in ended if isinstance(event, Failure)), None)

    def close(self) -> list[Event]:
        """End all choices."""
        return [*self._told(()), *transforms.close_filters(self._filters)]

    def fail(self, problem: Problem) -> list[Event]:
        """The current one's body broke off, and the answer with it."""
        return [*self._told(self._member.fail(problem)), *transforms.close_filters(self._filters)]

    @property
    def usage(self) -> Usage:
        return _sum(member.usage for member in self._members)

    @property
    def _member(self) -> UpstreamReader:
        return self._members[self.current]

    def _told(self, events: Iterable[Event]) -> list[Event]:
        ended, self._ended = self._ended, []
        return [*transforms.apply_filters(self._filters, [*ended, *self._merged(events)])]

    def _merged(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield events of one upstream as a choice of the whole; its failure is the failure of all."""
        for event in events:
            if isinstance(event, Failure):
                yield from self._lost(event.problem)
                yield event
            else:
                yield self._placed(event, self.current)

    def _lost(self, problem: Problem) -> Iterator[Event]:
        """Yield the usage of the other upstreams."""
        for place, member in enumerate(self._members):
            if place != self.current:
                events = member.fail(problem)
                yield from (self._placed(event, place) for event in events if not isinstance(event, Failure))

    def _placed(self, event: Any, place: int) -> Event:  # noqa: ANN401 - any event but Failure
        if isinstance(event, Usage):
            self._counted[place] = event
            return _sum(self._counted.values())
        if isinstance(event, ExtraField) and event.choice is None:
            return event
        placed: Event = replace(event, choice=place) if place else event
        return placed


def _sum(usages: Iterable[Usage]) -> Usage:
    """The prompt is one, however often it was read."""
    first, *more = usages
    return sum((replace(usage, prompt=0, cached=0, kept=0) for usage in more), first)
