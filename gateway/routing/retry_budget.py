"""How many retries there may be: a share of the first attempts, so that a failing server is not asked ever more."""

_PRICE = 5  # first attempts that pay for a retry
_MOST = 10 * _PRICE  # what is saved at most, and there from the start


class RetryBudget:
    """Allows 10 retries, and one more for each 5 first attempts."""

    def __init__(self) -> None:
        self._saved = _MOST

    def first(self) -> None:
        """A request is tried for the first time."""
        if self._saved < _MOST:
            self._saved += 1

    def again(self) -> bool:
        """Return True if a retry is allowed, which is then spent."""
        if self._saved < _PRICE:
            return False
        self._saved -= _PRICE
        return True
