"""Limit retries to a share of the first attempts, so that a failing backend does not get ever more requests."""

_PRICE = 5  # first attempts per retry
_MAX = 10 * _PRICE  # the maximum of the balance, and its start


class RetryBudget:
    """A budget of 10 retries, and one more per 5 first attempts."""

    def __init__(self) -> None:
        self._saved = _MAX

    def first(self) -> None:
        """Count a first attempt."""
        if self._saved < _MAX:
            self._saved += 1

    def again(self) -> bool:
        """Spend a retry and return True; return False if the budget is used up."""
        if self._saved < _PRICE:
            return False
        self._saved -= _PRICE
        return True
