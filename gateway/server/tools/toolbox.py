"""The tools of one answer."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, Self

from msgspec import Struct

from gateway import config
from gateway.events import Event
from gateway.hosted import Limits, Loop, Ours, Result, Run
from gateway.request import Approved, Named
from gateway.server.ids import new_id

Tell = Callable[[Result], None]


class Offer(Struct, frozen=True):
    """told: what the client is told of it."""

    tools: Sequence[Ours]
    told: Sequence[Event] = ()


class Provider(Protocol):
    """offer: what it has; where that cannot be known it says so in what is told, and raises nothing.

    run: raises nothing either, and may be broken off.  close: at the end of the answer.
    """

    async def offer(self) -> Offer: ...
    async def run(self, run: Run) -> Result: ...
    async def close(self) -> None: ...


class Toolbox:
    """To be entered: `open`, then `run` for each round of tools.

    most: calls that the client allows; None: as many as the operator.
    """

    def __init__(
        self,
        providers: Sequence[Provider],
        settings: config.Tools,
        approved: Sequence[Approved] = (),
        most: int | None = None,
        loop: type[Loop] = Loop,
    ) -> None:
        self._providers, self._settings, self._approved, self._loop = providers, settings, approved, loop
        self._calls = settings.calls if most is None else min(most, settings.calls)
        self._owners: dict[Named, Provider] = {}
        self.tools: list[Ours] = []

    async def open(self) -> Loop:
        """Asks all of them at once what they have; of two tools of one name the first is taken."""
        offers = await asyncio.gather(*(provider.offer() for provider in self._providers))
        for provider, offer in zip(self._providers, offers, strict=True):
            for ours in offer.tools:
                named = Named(ours.tool.name, ours.tool.namespace)
                if named not in self._owners:
                    self._owners[named] = provider
                    self.tools.append(ours)
        told = [event for offer in offers for event in offer.told]
        return self._loop(self.tools, Limits(self._calls, self._settings.rounds), new_id, told, self._approved)

    async def run(self, due: Iterable[Run], tell: Tell) -> None:
        """All at once; each result is told as soon as it is there."""
        async with asyncio.TaskGroup() as group:
            for run in due:
                group.create_task(self._one(run, tell))

    async def _one(self, run: Run, tell: Tell) -> None:
        provider = self._owners[Named(run.ours.tool.name, run.ours.tool.namespace)]
        try:
            async with asyncio.timeout(self._settings.seconds):
                result = await provider.run(run)
        except TimeoutError:
            why = f"The tool did not answer within {self._settings.seconds:g} seconds."
            result = Result(run.id, why, run.ours.failed(why))
        tell(result)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for provider in self._providers:
            await provider.close()
