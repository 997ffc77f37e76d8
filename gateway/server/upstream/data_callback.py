"""Define the callback for data that arrives while a task waits for a response."""

from collections.abc import Callable
from enum import Enum


class DataOutcome(Enum):
    """The result of the callback."""

    HANDLED = "handled"  # the data is used, and the task sleeps on
    WAKE = "wake"  # the data is used, and the task has to wake
    DECLINED = "declined"  # the data is unused, and the task has to read it


HANDLED, WAKE, DECLINED = DataOutcome
DataCallback = Callable[[bytes, float], DataOutcome]  # with the data and the time of its arrival by `perf_counter`
