"""Hold the tools of one response, and run a round of them in place of an upstream call."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from math import inf
from typing import Any, Protocol, Self

from msgspec import Struct, json
from msgspec.structs import replace

from gateway import config
from gateway.builtin_tools import (
    BuiltinTool,
    BuiltinToolResult,
    BuiltinToolRun,
    Sources,
    ToolLoop,
    ToolLoopLimits,
    with_builtin_tools,
)
from gateway.errors import Problem
from gateway.events import Event
from gateway.request import ApprovedToolCall, Request, ToolName
from gateway.server.ids import new_id
from gateway.server.upstream import DataCallback
from gateway.warnings import Warnings

Used = Callable[[], Awaitable[object]]
ToolRoundWork = Callable[[Callable[[BuiltinToolResult], None], Used], Coroutine[Any, Any, None]]

_encode = json.Encoder().encode
ResultCallback = Callable[[BuiltinToolResult], None]


class ToolRoundCall:
    """A round of tools with the interface of an upstream call.

    Its data are lists of BuiltinToolResult as JSON; the first list is empty and marks the start.
    work: started at once with two functions.  The first one takes each result.  The second one returns when all results
    so far were read and more are waited for.  `read` raises the errors of `work`.
    """

    def __init__(self, work: ToolRoundWork) -> None:
        self._results: list[BuiltinToolResult] = []
        self._begun = False
        self._news = asyncio.Event()
        self._news.set()
        self._used = asyncio.Event()
        self._used.set()
        self._task = asyncio.create_task(work(self._take, self._used.wait))
        self._task.add_done_callback(self._end)

    async def ready(self, seconds: float = inf, _callback: DataCallback | None = None, /) -> bool:
        """Wait until `read` has results or the round is over; return False after `seconds`."""
        if not self._results:
            self._used.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == inf else max(seconds, 0)):
                await self._news.wait()
        return self._news.is_set()

    def read(self) -> bytes:
        """Return the results since the last call as JSON, b"" at the end."""
        results, self._results = self._results, []
        over = self._begun and self._task.done() and not results
        self._begun = True
        if over:
            self._task.result()
            return b""
        if not self._task.done():
            self._news.clear()
        return _encode(results)

    @property
    def over(self) -> bool:
        """False: only `read` shows the end."""
        return False

    def report_outcome(self, problem: Problem | None) -> None:
        """Do nothing: no backend takes part."""

    def close(self) -> None:
        """Cancel running tools."""
        self._task.cancel()

    def _take(self, result: BuiltinToolResult) -> None:
        self._results.append(result)
        self._used.clear()
        self._news.set()

    def _end(self, task: asyncio.Task[None]) -> None:
        """Fetch the exception of a cancelled task, as both would keep each other in memory."""
        if task.cancelled():
            with suppress(asyncio.CancelledError):
                task.result()
        self._news.set()


class ToolOffer(Struct, frozen=True):
    """The tools of a provider; events: for the client, such as a list of tools."""

    tools: Sequence[BuiltinTool]
    events: Sequence[Event] = ()


class ToolProvider(Protocol):
    """The interface of a provider of tools for one response."""

    async def list_tools(self) -> ToolOffer:
        """Return the tools.  Raises nothing: if they cannot be listed, the events report it."""

    async def run(self, run: BuiltinToolRun) -> BuiltinToolResult:
        """Run a tool call.  Raises nothing, and may be cancelled."""

    async def close(self) -> None:
        """Release the provider's resources, at the end of the response."""


class ToolsetOptions(Struct, frozen=True):
    """Further settings of a response with tools.

    approved: calls that run first.  max_calls: the client's limit of tool calls, None for the operator's.
    uses: further limits of the client, each of some tools together.
    loop: the tool loop, which decides on the events for the client.  sources: collects the sources that tools find.
    served: fields of the request that the tools replace.
    """

    approved: Sequence[ApprovedToolCall] = ()
    max_calls: int | None = None
    uses: Mapping[frozenset[ToolName], int] = {}
    loop: type[ToolLoop] = ToolLoop
    sources: Sources | None = None
    served: Set[str] = frozenset()


_OPEN = ToolsetOptions()


class Toolset:
    """The tools of one response: an async context manager.  Call `open`, then `run` for each round of tools."""

    def __init__(
        self, providers: Sequence[ToolProvider], settings: config.ToolSettings, terms: ToolsetOptions = _OPEN
    ) -> None:
        self._providers, self._settings, self._terms = providers, settings, terms
        self._calls = settings.calls if terms.max_calls is None else min(terms.max_calls, settings.calls)
        self._owners: dict[ToolName, ToolProvider] = {}
        self.tools: list[BuiltinTool] = []

    async def open(self) -> ToolLoop:
        """List the tools of all providers at once, and return the tool loop.

        Of two tools with the same name, the first is used.
        """
        offers = await asyncio.gather(*(provider.list_tools() for provider in self._providers))
        for provider, offer in zip(self._providers, offers, strict=True):
            for ours in offer.tools:
                named = ToolName(ours.tool.name, ours.tool.namespace)
                if named not in self._owners:
                    self._owners[named] = provider
                    self.tools.append(ours)
        events = [event for offer in offers for event in offer.events]
        limits, terms = ToolLoopLimits(self._calls, self._settings.rounds, self._terms.uses), self._terms
        return terms.loop(self.tools, limits, new_id, events, terms.approved, terms.sources)

    def add_to_request(self, request: Request, ledger: Warnings) -> Request:
        """Return the request with these tools."""
        rest = {name: value for name, value in request.rest.items() if name not in self._terms.served}
        return with_builtin_tools(replace(request, rest=rest), [ours.tool for ours in self.tools], ledger)

    async def run(self, due: Iterable[BuiltinToolRun], tell: ResultCallback) -> None:
        """Run all calls at once; report each result when it arrives."""
        await asyncio.gather(*(self._one(run, tell) for run in due))  # a cancelled TaskGroup is a reference cycle

    async def _one(self, run: BuiltinToolRun, tell: ResultCallback) -> None:
        provider = self._owners[ToolName(run.ours.tool.name, run.ours.tool.namespace)]
        try:
            async with asyncio.timeout(self._settings.seconds):
                result = await provider.run(run)
        except TimeoutError:
            why = f"The tool did not respond within {self._settings.seconds:g} s (tools.seconds)."
            result = BuiltinToolResult(run.id, why, run.ours.failed(why))
        tell(result)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for provider in self._providers:
            await provider.close()
