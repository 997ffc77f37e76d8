"""How many may be asked at a time, in one process."""

from collections import Counter
from collections.abc import Callable, Iterable

from gateway.errors import RateLimited

_SOON = 1.0  # seconds, as the end of a response is unknown


class ConcurrentRequests:
    """workers: processes that share what there is."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._taken: Counter[str] = Counter()

    def take(self, wanted: Iterable[tuple[str, int]]) -> Callable[[], None]:
        """A place of each that is named with how many there are (0: any number), and how it is let go.

        Raises RateLimited.
        """
        most = {name: max(1, places // self._workers) for name, places in wanted if places}
        for name, places in most.items():
            if self._taken[name] >= places:
                message = f"Rate limit reached for {name}: {places} requests at a time. Try again when one has ended."
                raise RateLimited(message, _SOON, {})
        self._taken.update(most.keys())
        return lambda: self._let_go(most)

    def _let_go(self, names: Iterable[str]) -> None:
        for name in names:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]
