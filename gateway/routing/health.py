"""How well one backend is, from what became of requests: a circuit breaker, and the share of failures of late.

Times are seconds of a monotonic clock.  Closed: everything is let through.  Open: nothing.  Half open: one request, the
trial, which closes the circuit or opens it again for twice as long; where it takes its time, another one may try.
"""

from collections.abc import Callable
from math import inf
from typing import Literal, NewType

CircuitState = Literal["closed", "open", "half_open"]
AttemptToken = NewType("AttemptToken", int)

_STRAY = AttemptToken(0)
_FAILURES = 5  # in a row, that open the circuit
_LONGEST = 30.0  # seconds of a pause; the first is one
_TRIAL = 2.0  # seconds until there is another: a whole answer may take minutes, and others shall not wait for it
_JITTER = 0.2  # so that trials of many gateways do not come at once
_REST = 60.0  # seconds that a server may ask for
_HALF_LIFE = 10.0  # seconds, of an outcome's weight
_MEMORY = 60.0  # seconds after which an ejection is the first one again


class Health:
    """Of one backend, whatever models it serves.  random: draws from [0, 1).

    An Attempt is the circuit's generation in which a request began: an outcome of an older one tells of a time that is
    over, and counts for nothing.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._generation = AttemptToken(1)
        self._failures = 0  # in a row, while closed
        self._openings = 0  # in a row; 0: closed
        self._open_until = -inf
        self._trials = 0  # on their way
        self._alone_until = -inf  # the trial that began last; -inf: none is on its way
        self._rest_until = -inf
        self._ejections = 0
        self._ejected_until = -inf
        self._good = self._bad = 0.0  # outcomes, as they weighed at _counted_at
        self._counted_at = -inf

    def state(self, now: float) -> CircuitState:
        if not self._openings:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    def admits(self, now: float) -> bool:
        """True if a request may be put to it; whether it is ejected is another question."""
        return now >= self._open_until and now >= self._rest_until and now >= self._alone_until

    def ejected(self, now: float) -> bool:
        """True while others should be asked in its place, if there are any."""
        return now < self._ejected_until

    def back_in(self, now: float) -> float:
        """Seconds until it admits a request, as far as is known: 0 if it does."""
        return max(self._open_until - now, self._rest_until - now, self._alone_until - now, 0.0)

    def begin(self, now: float) -> AttemptToken:
        """A request is put to it: the trial, if the circuit is half open.

        Has to follow the choice at once, before anything is awaited, and every attempt needs an outcome: `well`, `ill`,
        `poor` or `dropped`.  After `well` there may be an `ill`, where an answer breaks off.  One that is put to it
        though it does not admit any is let be: its outcome counts for nothing.
        """
        if not self._openings:
            return self._generation
        if not self.admits(now):
            return _STRAY
        if self._alone_until == -inf:
            self._renew()
        self._trials += 1
        self._alone_until = now + _TRIAL
        return self._generation

    def is_current(self, attempt: AttemptToken) -> bool:
        """False if the circuit has changed since: one that waited for its turn should choose again then."""
        return attempt == self._generation

    def well(self, attempt: AttemptToken, now: float) -> bool:
        """Note that a response began: content, or an end without any.  Return True if that has closed the circuit."""
        if attempt != self._generation:
            return False
        self._failures = 0
        self._age(now)
        self._good += 1
        if not self._openings:
            return False
        self._close()
        return True

    def ill(self, attempt: AttemptToken, now: float) -> None:
        """A failure that speaks of the server: it refused, timed out, was lost, said 502, 503 or 504, or no answer."""
        if not self.is_current(attempt):
            return
        self._failures += 1
        self._age(now)
        self._bad += 1
        if self._openings or self._failures >= _FAILURES:
            self._open(now)

    def poor(self, attempt: AttemptToken, now: float) -> None:
        """A failure that may be the request's fault, a 500: it is counted, but breaks no circuit, and mends none."""
        if self.is_current(attempt):
            self._age(now)
            self._bad += 1
            self.record_no_outcome(attempt)

    def record_no_outcome(self, attempt: AttemptToken) -> None:
        """There is no outcome, as the client left or the server asked for rest: another may be the trial.

        Where others are on their way it is theirs: one that takes its time is not forgotten for that.
        """
        if self._openings and self.is_current(attempt):
            self._trials -= 1
            if not self._trials:
                self._alone_until = -inf
                self._renew()

    def rest(self, now: float, seconds: float) -> None:
        """Pause the backend for so long as it asked, at most 60 s; no failure, and no outcome of an attempt."""
        self._rest_until = max(self._rest_until, now + min(seconds, _REST))

    def probed(self, now: float, *, well: bool) -> None:
        """Note the result of a probe.  A good one ends the pause, but closes no circuit; a bad one is like `ill`."""
        if well and now < self._open_until:
            self._open_until = now
        elif not well and self._alone_until == -inf and now >= self._open_until:
            self.ill(self._generation, now)

    def eject(self, now: float) -> None:
        """Pause an outlier for 1 s, and twice as long if the last time was not long ago.

        What it did until now is forgotten, so that it is judged by what it does when it is back.
        """
        recent = now - self._ejected_until < _MEMORY
        self._ejections = self._ejections + 1 if recent else 1
        self._ejected_until = now + self._pause(self._ejections)
        self._good = self._bad = 0.0

    @property
    def share(self) -> float:
        """Of failures among its outcomes, between 0 and 1; of late ones above all.  0 without any."""
        return self._bad / (self._good + self._bad or 1.0)

    def weight(self, now: float) -> float:
        """How many outcomes `share` is of; each counts half after 10 s."""
        return (self._good + self._bad) * self._decay(now)

    def _age(self, now: float) -> None:
        """Let old counts lose their weight."""
        decay = self._decay(now)
        self._good, self._bad, self._counted_at = self._good * decay, self._bad * decay, now

    def _decay(self, now: float) -> float:
        decay: float = 0.5 ** ((now - self._counted_at) / _HALF_LIFE)
        return decay

    def _open(self, now: float) -> None:
        self._openings += 1
        self._open_until = now + self._pause(self._openings)
        self._turn()

    def _close(self) -> None:
        """As if it were new: what failed before says nothing of what it is now."""
        self._openings = 0
        self._good = self._bad = 0.0
        self._turn()

    def _turn(self) -> None:
        self._failures = self._trials = 0
        self._alone_until = -inf
        self._renew()

    def _renew(self) -> None:
        """Let attempts that have begun count no longer."""
        self._generation = AttemptToken(self._generation + 1)

    def _pause(self, times: int) -> float:
        jitter = 1 + _JITTER * (2 * self._random() - 1)
        return min(_LONGEST, 2.0 ** min(times - 1, 5)) * jitter
