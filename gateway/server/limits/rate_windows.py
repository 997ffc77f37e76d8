"""The arithmetic of one limit.  Pure: the time is an argument, in Unix seconds.

Windows begin at multiples of their length.  So a day is a UTC day, and all processes use the same windows.  The use in
the last minute is estimated: the count of this window, and the share of the previous one that is less than a minute
old.
"""

from collections.abc import Mapping
from math import ceil, inf
from typing import Literal

from msgspec import Struct

from gateway.config.schema import RateLimitSettings
from gateway.store.records import UsageSlot

LimitUnit = Literal["requests", "tokens"]
_MINUTE, _DAY = 60, 86_400
_ROUNDING = 1e-6  # keeps a client that returns at the exact second from being early by a rounding error
_RULES: tuple[tuple[str, LimitUnit, int], ...] = (
    ("requests_per_minute", "requests", _MINUTE),
    ("tokens_per_minute", "tokens", _MINUTE),
    ("tokens_per_day", "tokens", _DAY),
)


class RateLimit(Struct, frozen=True):
    """A limit: `amount` of `unit` in `seconds`.

    owner: the key or model, for error messages; key: the name of its counts in the store.
    """

    owner: str
    key: str
    unit: LimitUnit
    amount: int
    seconds: int

    @property
    def is_sliding(self) -> bool:
        """True for a limit per minute, whose window slides; a window per day begins at midnight UTC."""
        return self.seconds == _MINUTE

    @property
    def unit_name(self) -> str:
        """The unit and the period, for error messages."""
        return f"{self.unit} per {'minute' if self.is_sliding else 'day'}"

    def slot(self, now: float) -> UsageSlot:
        """Return the slot of the window at this time."""
        start = int(now // self.seconds) * self.seconds
        return UsageSlot(self.key, start, start + 2 * self.seconds)

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
        return self.limit.seconds - self.now % self.limit.seconds

    @property
    def used(self) -> int:
        """The amount used, without the request."""
        return ceil(self.used_in_previous_window * self.rest / self.limit.seconds - _ROUNDING) + self.used_in_window

    @property
    def is_within(self) -> bool:
        """True if the request fits."""
        return self.used + self.cost <= self.limit.amount

    @property
    def wait(self) -> float:
        """The seconds until the request fits, if nothing else is used meanwhile; infinite if it never does."""
        room, seconds = self.limit.amount - self.cost, self.limit.seconds
        if room < 0:
            return inf
        if not self.limit.is_sliding:
            return self.rest
        if self.used_in_window <= room:
            return self.rest - seconds * (room - self.used_in_window) / self.used_in_previous_window
        return self.rest + seconds * (1 - room / self.used_in_window)

    @property
    def left(self) -> int:
        """The amount that remains for other requests, after this one if it fits."""
        return max(0, self.limit.amount - self.used - (self.cost if self.is_within else 0))

    @property
    def reset(self) -> float:
        """The seconds until the whole amount is available again."""
        return self.rest + (self.limit.seconds if self.limit.is_sliding and self.used_in_window + self.cost else 0)


def rate_limits(kind: str, name: str, settings: RateLimitSettings) -> list[RateLimit]:
    """Return the limits of a key or a model that are set."""
    return [
        RateLimit(owner_text(kind, name), f"{kind}/{name}/{rule}", unit, amount, seconds)
        for rule, unit, seconds in _RULES
        if (amount := getattr(settings, rule))
    ]


def owner_text(kind: str, name: str) -> str:
    """Return the name of a key or model for error messages."""
    return f"the {kind} '{name}'"
