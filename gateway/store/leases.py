"""When others need not believe any more that somebody is at work on a row."""

from sqlalchemy import Column, ColumnElement, or_

_LONGEST = 3600  # seconds; no lease is as long, so one that ends later was written by a clock that was ahead
LONGEST_MS = _LONGEST * 1000


def lease_ended(until: Column[int], now: int | ColumnElement[int], second: int = 1) -> ColumnElement[bool]:
    """Match rows whose lease has ended, few without this condition; `second`: units of time in a second."""
    return or_(until <= now, until > now + _LONGEST * second)
