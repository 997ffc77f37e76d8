"""One round with a backend, ready to be begun, and the one after it where its answer was none."""

from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends.dialects import Dialect
from gateway.calls import Setting
from gateway.fan import Fan
from gateway.formats.chosen import Chosen
from gateway.request import Request
from gateway.translate import Filter
from gateway.translate.promises import Attempt, Promise
from gateway.upstream import Upstream


class Round(Struct, frozen=True):
    """One round, ready to be begun: its body, and how the format of its answer was chosen."""

    request: Request  # as the backend gets it
    body: bytes
    chosen: Chosen
    _dialect: Dialect
    _setting: Setting
    _filters: Sequence[Filter]

    def open(self, _: Request) -> Upstream:
        request, setting = self.request, self._setting
        decoder = self._dialect.decoder(request, setting.ledger)
        return Upstream(decoder, setting, lambda: self.size, self._filters, setting.limit)

    def fan(self) -> Fan:
        """For a server that gives one choice at a time."""
        one, setting = replace(self.request, n=1), self._setting
        opened = (
            Upstream(self._dialect.decoder(one, setting.ledger), setting, lambda: self.size, (), setting.limit)
            for _ in range(self.request.n)
        )
        return Fan([*opened], self._filters)

    def another(self) -> "Round | None":
        """The one that has to follow, once this is over: its answer was none that could be given to anybody."""
        return None

    @property
    def path(self) -> str:
        return self._dialect.path

    def seen_by(self, filter: Filter) -> "Round":
        """The same, with another filter that sees last what is answered."""
        return replace(self, _filters=[*self._filters, filter])

    @property
    def size(self) -> int:
        """Characters of the prompt, near enough for an estimate."""
        tools = [tool.definition for tool in self.request.callable_tools]
        return len(str(self.request.messages)) + len(str(tools))


class Owing(Round, frozen=True):
    """A round whose answer has to be something.  `_after`: makes the round of another attempt."""

    _promise: Promise
    _after: Callable[[Request, Attempt], Round]

    def another(self) -> Round | None:
        promise = self._promise
        return self._after(promise.asking(), promise.failed) if promise.failed else None


class Rounds:
    """Those of one turn, one at a time.  `listening`: gives each what is to hear its answer."""

    def __init__(self, first: Round, listening: Callable[[Round], Round]) -> None:
        self.begin(first, listening)

    def begin(self, first: Round, listening: Callable[[Round], Round]) -> None:
        """Anew, if the one before was never put to the backend."""
        self.now, self._listening = listening(first), listening

    def open(self, request: Request) -> Upstream:
        return self.now.open(request)

    def again(self) -> Request | None:
        """What is to be asked now, if there is to be another round."""
        if not (another := self.now.another()):
            return None
        self.now = self._listening(another)
        return self.now.request
