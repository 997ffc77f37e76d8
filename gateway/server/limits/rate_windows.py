"""The arithmetic of one limit.  Pure: the time is an argument, in Unix seconds.

Minutes and days begin at multiples of their length.  Days and months are those of UTC, so all processes use the same
windows.  The use in the last minute is estimated: the count of this window, and the share of the previous one that is
less than a minute old.  A day and a month are budgets: they do not slide.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil, inf
from typing import Literal

from msgspec import Struct

from gateway.config.limits import GroupSettings, RateLimitSettings
from gateway.store.records import UsageSlot

LimitUnit = Literal["requests", "tokens"]
LimitPeriod = Literal["minute", "day", "month"]
_MINUTE, _DAY = 60, 86_400
_ROUNDING = 1e-6  # keeps a client that returns at the exact second from being early by a rounding error
_RULES: tuple[tuple[str, LimitUnit, LimitPeriod], ...] = (
    ("requests_per_minute", "requests", "minute"),
    ("tokens_per_minute", "tokens", "minute"),
    ("tokens_per_day", "tokens", "day"),
    ("tokens_per_month", "tokens", "month"),
)


class RateLimit(Struct, frozen=True):
    """A limit: `amount` of `unit` in a period.

    owner: the key, group or model, for error messages; key: the name of its counts in the store.
    budget: the name of a budget in the header of responses; "" for a limit per minute.
    """

    owner: str
    key: str
    unit: LimitUnit
    amount: int
    period: LimitPeriod
    budget: str = ""

    @property
    def is_sliding(self) -> bool:
        """True for a limit per minute, whose window slides; a day and a month begin at midnight UTC."""
        return self.period == "minute"

    @property
    def unit_name(self) -> str:
        """The unit and the period, for error messages."""
        return f"{self.unit} per {self.period}"

    def window(self, now: float) -> tuple[int, int]:
        """Return the first second of the window at this time, and the one after its last."""
        if self.period == "month":
            return _month(now)
        seconds = _MINUTE if self.is_sliding else _DAY
        start = int(now // seconds) * seconds
        return start, start + seconds

    def slot(self, now: float) -> UsageSlot:
        """Return the slot of the window at this time."""
        start, end = self.window(now)
        return UsageSlot(self.key, start, 2 * end - start)

    def slots(self, now: float) -> list[UsageSlot]:
        """Return all slots that count at this time, this window first."""
        slot = self.slot(now)
        return [slot, self.slot(slot.start - 1)] if self.is_sliding else [slot]

    def state_at(self, counts: Mapping[UsageSlot, int], cost: int, now: float) -> "RateLimitState":
        """Return the state of the limit for a request of this cost; `counts` include the request already."""
        taken, *before = [max(0, counts[slot]) for slot in self.slots(now)]
        return RateLimitState(self, cost, now, max(0, taken - cost), sum(before))


class RateLimitState(Struct, frozen=True):
    """The state of a limit for a request; the counts of both windows do not include the request."""

    limit: RateLimit
    cost: int
    now: float
    used_in_window: int
    used_in_previous_window: int

    @property
    def rest(self) -> float:
        """The seconds until this window ends."""
        return self.end - self.now

    @property
    def end(self) -> int:
        """The time at which this window ends."""
        return self.limit.window(self.now)[1]

    @property
    def used(self) -> int:
        """The amount used, without the request."""
        if not self.used_in_previous_window:
            return self.used_in_window
        return ceil(self.used_in_previous_window * self.rest / _MINUTE - _ROUNDING) + self.used_in_window

    @property
    def is_within(self) -> bool:
        """True if the request fits."""
        return self.used + self.cost <= self.limit.amount

    @property
    def wait(self) -> float:
        """The seconds until the request fits, if nothing else is used meanwhile; infinite if it never does."""
        room = self.limit.amount - self.cost
        if room < 0:
            return inf
        if not self.limit.is_sliding:
            return self.rest
        if self.used_in_window <= room:
            return self.rest - _MINUTE * (room - self.used_in_window) / self.used_in_previous_window
        return self.rest + _MINUTE * (1 - room / self.used_in_window)

    @property
    def left(self) -> int:
        """The amount that remains for other requests, after this one if it fits."""
        return max(0, self.limit.amount - self.used - (self.cost if self.is_within else 0))

    @property
    def reset(self) -> float:
        """The seconds until the whole amount is available again."""
        return self.rest + (_MINUTE if self.limit.is_sliding and self.used_in_window + self.cost else 0)


def rate_limits(kind: str, name: str, settings: RateLimitSettings | GroupSettings) -> list[RateLimit]:
    """Return the limits of a key, a group or a model that are set."""
    return [
        RateLimit(owner_text(kind, name), f"{kind}/{name}/{rule}", unit, amount, period, _budget(kind, period))
        for rule, unit, period in _RULES
        if (amount := getattr(settings, rule, 0))
    ]


def owner_text(kind: str, name: str) -> str:
    """Return the name of a key, group or model for error messages."""
    return f"the {kind} '{name}'"


def _budget(kind: str, period: LimitPeriod) -> str:
    """Return the name of a budget in responses: that of a key is the bare period."""
    return "" if period == "minute" else f"{kind}-{period}".removeprefix("key-")


def _month(now: float) -> tuple[int, int]:
    first = datetime.fromtimestamp(now, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    year, month = divmod(first.year * 12 + first.month, 12)
    return int(first.timestamp()), int(datetime(year, month + 1, 1, tzinfo=UTC).timestamp())
