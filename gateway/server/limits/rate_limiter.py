"""Admit requests by the limits of keys, groups and models, and count their tokens at the end.

Before a model has counted the tokens of a request, they are estimated.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import ceil, inf
from types import TracebackType
from typing import Self, get_args

from msgspec import Struct
from msgspec.structs import replace
from starlette.types import Message, Send

from gateway.backends.openai.usage import estimate_tokens_from_characters, text_characters
from gateway.config import ApiKey, Config, ModelSettings
from gateway.config.limits import RateLimitSettings
from gateway.errors import GatewayError, RateLimited
from gateway.request import Request
from gateway.server.limits.counters import LenientCounter, SlotCounts, StoreCounter, UsageCounter
from gateway.server.limits.rate_windows import LimitUnit, RateLimit, RateLimitState, owner_text, rate_limits
from gateway.store.database import Database
from gateway.store.records import UsageSlot

SettleCallback = Callable[[int | None], Awaitable[None]]
RenewCallback = Callable[[int], Awaitable[None]]
_SOON = 1.0  # seconds; the end of a running response is unknown
_KNOWN = 1.0  # seconds that a refusal applies to other requests; other processes may return tokens meanwhile
_MAX = 1 << 40  # upper bound for the tokens that a backend reports for one request
_UNITS: tuple[LimitUnit, ...] = get_args(LimitUnit)
_FIELDS = ("limit", "remaining", "reset")
HEADERS = tuple(f"x-ratelimit-{field}-{unit}" for unit in _UNITS for field in _FIELDS)
BUDGETS_HEADER = "x-gateway-budgets"
_Rules = tuple[list[RateLimit], list[tuple[str, int]]]  # rate limits, and per owner the number of concurrent requests
_NO_RULES: _Rules = [], []


class RateLimitPermit:
    """The admission of a request; the end of the `async with` block ends it.

    headers: the `x-ratelimit-…` headers of the response, and its budgets.
    used: returns the tokens used, called at the end of the block.  Without it, the tokens are 0 after a GatewayError,
    and the estimate otherwise.
    end: called at the end of the block with the tokens used, or with None to keep the estimate.
    renew: settles the tokens used, and counts another request.
    """

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        end: SettleCallback | None = None,
        renew: RenewCallback | None = None,
    ) -> None:
        self.headers = headers or {}
        self.used: Callable[[], int] | None = None
        self._end, self._renew = end, renew

    def with_headers(self, send: Send) -> Send:
        """Return a `send` that adds the headers to the response."""
        if not self.headers:
            return send
        added = [(name.encode(), value.encode()) for name, value in self.headers.items()]

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        return tell

    async def renew(self) -> None:
        """Settle the tokens of this request, which are known, and admit another one instead.  Raise RateLimited."""
        assert self.used
        tokens, self.used = self.used(), None
        if self._renew:
            await self._renew(tokens)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: TracebackType | None) -> None:
        if isinstance(error, GatewayError):
            error.headers = {**self.headers, **error.headers}
        if self._end:
            await self._end(self._used_tokens(error))

    def _used_tokens(self, error: BaseException | None) -> int | None:
        """Return the tokens used; None to keep the estimate."""
        if self.used:
            return self.used()
        return 0 if isinstance(error, GatewayError) else None


class ConcurrentRequests:
    """Limit concurrent requests per key and model.

    workers: processes that share the limits.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._taken: Counter[str] = Counter()

    def take(self, wanted: Iterable[tuple[str, int]]) -> Callable[[], None]:
        """Take one slot for each name; return a function that releases them.

        wanted: names with their number of concurrent requests, for all workers; 0 is no limit.  Raises RateLimited.
        """
        most = {name: max(1, places // self._workers) for name, places in wanted if places}
        for name, places in most.items():
            if self._taken[name] >= places:
                message = (
                    f"Rate limit reached for {name}: {places} concurrent requests. Retry when one of them is complete."
                )
                raise RateLimited(message, _SOON, {})
        self._taken.update(most.keys())
        return lambda: self._let_go(most)

    def _let_go(self, names: Iterable[str]) -> None:
        for name in names:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]


class _ExhaustedLimit(Struct, frozen=True):
    """A limit that refused a request; until then, requests of at least that cost are refused without counting."""

    standing: RateLimitState
    until: float

    def refuses(self, limit: RateLimit, cost: int, now: float) -> bool:
        """Return True if a request of this cost is refused as well.  A clock that was set back ends the refusal."""
        standing = self.standing
        return standing.now <= now < self.until and cost >= standing.cost and limit == standing.limit


class RateLimiter:
    """The rate limits of a process.  clock: Unix seconds."""

    def __init__(self, config: Config, store: Database, clock: Callable[[], float] = time.time) -> None:
        self._counter = LenientCounter(_counter(config, store))
        self._places = ConcurrentRequests(config.server.workers)
        self._full: dict[str, _ExhaustedLimit] = {}
        self._known: dict[str, dict[str, tuple[RateLimitSettings, _Rules]]] = {"model": {}, "key": {}}
        self._of_group = {name: rate_limits("group", name, group) for name, group in config.auth.groups.items()}
        self._clock = clock

    def apply_to(self, key: ApiKey | None, model: str, settings: ModelSettings) -> bool:
        """Return True if a limit applies to a request."""
        if self._rules("model", model, settings.limits) is not _NO_RULES:
            return True
        if key is None:
            return False
        return self._rules("key", key.name, key.limits) is not _NO_RULES or bool(self._of_group.get(key.group or ""))

    async def acquire(
        self, key: ApiKey | None, model: str, settings: ModelSettings, estimate: Callable[[], int]
    ) -> RateLimitPermit:
        """Admit a request, or raise RateLimited.

        estimate: returns the expected tokens of the request, called only if a limit counts tokens.
        """
        if not self.apply_to(key, model, settings):
            return RateLimitPermit()
        of_model = self._rules("model", model, settings.limits)
        of_key = self._rules("key", key.name, key.limits) if key else _NO_RULES
        of_group = self._of_group.get(key.group, []) if key and key.group else []
        limits, places = of_model[0] + of_key[0] + of_group, of_model[1] + of_key[1]
        let_go = self._places.take(places)
        try:
            taken = await self._take(limits, estimate)
        except BaseException:
            let_go()
            raise
        end, renew = partial(self._end, taken, let_go), partial(self._renew, taken, limits, estimate)
        return RateLimitPermit(_headers(taken), end, renew)

    async def ping(self) -> None:
        """Return if the counter responds.  Raises StoreFailed."""
        await self._counter.ping()

    async def close(self) -> None:
        """Close the counter."""
        await self._counter.close()

    def _rules(self, kind: str, name: str, settings: RateLimitSettings) -> _Rules:
        """Return the limits of this key or model, cached until its settings change."""
        known = self._known[kind].get(name)
        if known and known[0] is settings:
            return known[1]
        limits, places = (
            rate_limits(kind, name, settings),
            [(owner_text(kind, name), settings.concurrent)] if settings.concurrent else [],
        )
        rules = (limits, places) if limits or places else _NO_RULES
        self._known[kind][name] = settings, rules
        return rules

    async def _take(self, limits: Sequence[RateLimit], estimate: Callable[[], int]) -> list[RateLimitState]:
        """Count the request; return the state of each limit, empty if nothing could be counted."""
        tokens = estimate() if any(limit.unit == "tokens" for limit in limits) else 0
        costs = {limit: cost for limit in limits if (cost := 1 if limit.unit == "requests" else tokens)}
        now = self._clock()
        self._check(costs, now)
        amounts = {slot: 0 for limit in costs for slot in limit.slots(now)}
        amounts |= {limit.slot(now): cost for limit, cost in costs.items()}

        def standings(counts: SlotCounts) -> list[RateLimitState]:
            return [limit.state_at(counts, cost, now) for limit, cost in costs.items()]

        counts = amounts and await self._counter.take(
            amounts, lambda counts: all(one.is_within for one in standings(counts))
        )
        found = standings(counts) if counts else []
        if any(not one.is_within for one in found):
            self._full |= {
                one.limit.key: _ExhaustedLimit(one, now + min(_KNOWN, one.wait, one.rest))
                for one in found
                if not one.is_within
            }
            raise _refused(found)
        return found

    def _check(self, costs: Mapping[RateLimit, int], now: float) -> None:
        """Raise RateLimited for a cost above the limit, or for a limit that is known to be exhausted."""
        for limit, cost in costs.items():
            if cost > limit.amount:
                raise _refused([RateLimitState(limit, cost, now, 0, 0)])
            full = self._full.get(limit.key)
            if full and full.refuses(limit, cost, now):
                raise _refused([replace(full.standing, cost=cost, now=now)])

    async def _renew(
        self, taken: list[RateLimitState], limits: Sequence[RateLimit], estimate: Callable[[], int], used: int
    ) -> None:
        """Settle what was taken, and take it for another request; it keeps its place among the concurrent ones."""
        before = [*taken]
        taken.clear()  # settled, even if nothing more can be taken
        await self._settle(before, used)
        taken += await self._take(limits, estimate)

    async def _end(self, taken: Sequence[RateLimitState], let_go: Callable[[], None], used: int | None) -> None:
        let_go()
        await self._settle(taken, used)

    async def _settle(self, taken: Sequence[RateLimitState], used: int | None) -> None:
        """Return unused tokens to the window that they were taken from, and count additional ones now."""
        amounts: dict[UsageSlot, int] = {}
        for one in taken:
            more = 0 if used is None or one.limit.unit == "requests" else min(used, _MAX) - one.cost
            if more < 0:
                self._full.pop(one.limit.key, None)
            if more:
                amounts[one.limit.slot(one.now if more < 0 else self._clock())] = more
        if amounts:
            await self._counter.add(amounts)


def _counter(config: Config, store: Database) -> UsageCounter:
    if not config.limits.url:
        return StoreCounter(store)
    from gateway.server.limits.redis_counter import RedisCounter  # noqa: PLC0415 - its client takes 40 ms to import

    return RedisCounter(config.limits.url.get_secret_value())


def _refused(standings: Sequence[RateLimitState]) -> RateLimited:
    """Return the error for the exceeded limit with the longest wait."""
    worst = max((one for one in standings if not one.is_within), key=lambda one: one.wait)
    limit = worst.limit
    if worst.wait == inf:
        message = (
            f"The request may use {worst.cost} {limit.unit}, but the limit of {limit.owner} is {limit.amount}"
            f" {limit.unit_name}. Send a smaller request."
        )
        return RateLimited(message, inf, {})
    end = f" The {limit.period} ends at {datetime.fromtimestamp(worst.end, UTC):%Y-%m-%dT%H:%M:%SZ}."
    message = (
        f"Rate limit reached for {limit.owner}: {limit.amount} {limit.unit_name}, used {worst.used},"
        f" requested {worst.cost}.{end if limit.budget else ''} Try again in {ceil(worst.wait)} s."
    )
    return RateLimited(message, worst.wait, _headers(standings))


def _headers(standings: Sequence[RateLimitState]) -> dict[str, str]:
    """Return the headers: for each unit, of the limit with the least remaining; and what is left of all budgets."""
    fields: dict[str, str] = {}
    for unit in _UNITS:
        those = [one for one in standings if one.limit.unit == unit]
        if those:
            least = min(those, key=lambda one: one.left)
            values = least.limit.amount, least.left, f"{ceil(least.reset)}s"
            fields |= {f"x-ratelimit-{field}-{unit}": str(value) for field, value in zip(_FIELDS, values, strict=True)}
    if budgets := [f"{one.limit.budget}={one.left}/{one.limit.amount}" for one in standings if one.limit.budget]:
        fields[BUDGETS_HEADER] = ", ".join(budgets)
    return fields


def estimate_tokens(request: Request) -> int:
    """Return the tokens of the prompt and the longest response that the request allows, at least 1.

    A response without a limit counts when it ends.
    """
    tools = [tool.definition for tool in request.callable_tools]
    past = request.past.characters if request.past else 0
    characters = text_characters((request.messages, tools, request.rest.get("prompt"))) + past
    return max(estimate_tokens_from_characters(characters) + (request.max_tokens or 0) * request.n, 1)
