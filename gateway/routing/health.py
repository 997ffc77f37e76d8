"""A circuit breaker and a recent failure rate for one backend, and a budget for retries.

Times are seconds of a monotonic clock.  A closed circuit admits all requests, an open one none.  A half-open circuit
admits one request, the trial.  The trial closes the circuit, or opens it again for twice as long.  If a trial takes
long, a further one may start.
"""

from collections.abc import Callable
from math import inf
from typing import Literal, NewType

CircuitState = Literal["closed", "open", "half_open"]
AttemptToken = NewType("AttemptToken", int)

_STRAY = AttemptToken(0)
_FAILURES = 5  # consecutive failures that open the circuit
_LONGEST = 30.0  # seconds of a pause, at most; the first is one
_TRIAL = 2.0  # seconds until the next trial: a whole response may take minutes, too long for others to wait
_JITTER = 0.2  # spreads the trials of many gateways
_REST = 60.0  # seconds, at most, of a pause that a backend requires
_PRICE = 5  # first attempts per retry
_MAX = 10 * _PRICE  # the maximum of the balance of a RetryBudget, and its start
_HALF_LIFE = 10.0  # seconds, of an outcome's weight
_MEMORY = 60.0  # seconds after which an ejection counts as the first again


class Health:
    """The health of one backend, for all its models.  random: draws from [0, 1).

    An AttemptToken is the generation of the circuit in which an attempt began.  Outcomes of an older generation are
    outdated and do not count.
    """

    def __init__(self, random: Callable[[], float]) -> None:
        self._random = random
        self._generation = AttemptToken(1)
        self._failures = 0  # consecutive ones, while closed
        self._openings = 0  # consecutive ones; 0: closed
        self._open_until = -inf
        self._trials = 0  # trials in progress
        self._alone_until = -inf  # end of the latest trial's exclusive time; -inf: no trial is in progress
        self._paused_until = -inf
        self._ejections = 0
        self._ejected_until = -inf
        self._good = self._bad = 0.0  # outcomes, with their weights at _counted_at
        self._counted_at = -inf

    def state(self, now: float) -> CircuitState:
        """Return the state of the circuit."""
        if not self._openings:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    def admits(self, now: float) -> bool:
        """Return True if a request may go to the backend; ejection is not considered."""
        return now >= self._open_until and now >= self._paused_until and now >= self._alone_until

    def ejected(self, now: float) -> bool:
        """Return True while other backends are preferred, if there are any."""
        return now < self._ejected_until

    def back_in(self, now: float) -> float:
        """Return the seconds until the backend admits a request, as far as is known; 0 if it does."""
        return max(self._open_until - now, self._paused_until - now, self._alone_until - now, 0.0)

    def begin(self, now: float) -> AttemptToken:
        """Count a request that goes to the backend; it is the trial if the circuit is half open.

        The caller calls this right after the choice, before any await.  It reports one outcome per attempt:
        `record_success`, `record_failure`, `record_request_failure` or `record_no_outcome`.  A failure may follow a
        success if the response breaks off.  The outcome of a request that the backend does not admit never counts.
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
        """Return False if the circuit has changed since: a request that waited in a queue should choose again."""
        return attempt == self._generation

    def record_success(self, attempt: AttemptToken, now: float) -> bool:
        """Count a response that began: content, or an end without any.  Return True if that closed the circuit."""
        if attempt != self._generation:
            return False
        self._failures = 0
        self._age(now)
        self._good += 1
        if not self._openings:
            return False
        self._close()
        return True

    def record_failure(self, attempt: AttemptToken, now: float) -> None:
        """Count a failure of the backend.

        It refused or lost the connection, timed out, returned 502, 503 or 504, or no valid response.
        """
        if not self.is_current(attempt):
            return
        self._failures += 1
        self._age(now)
        self._bad += 1
        if self._openings or self._failures >= _FAILURES:
            self._open(now)

    def record_request_failure(self, attempt: AttemptToken, now: float) -> None:
        """Count a failure that the request may have caused, a 500.  It neither opens nor closes the circuit."""
        if self.is_current(attempt):
            self._age(now)
            self._bad += 1
            self.record_no_outcome(attempt)

    def record_no_outcome(self, attempt: AttemptToken) -> None:
        """End an attempt without an outcome: the client disconnected, or the backend required a pause.

        Another request may be the trial then, unless other trials are in progress: those decide.
        """
        if self._openings and self.is_current(attempt):
            self._trials -= 1
            if not self._trials:
                self._alone_until = -inf
                self._renew()

    def pause(self, now: float, seconds: float) -> None:
        """Pause the backend for the time that it requires, at most 60 s.

        The pause is no failure, and no outcome of an attempt.
        """
        self._paused_until = max(self._paused_until, now + min(seconds, _REST))

    def record_probe(self, now: float, *, succeeded: bool) -> None:
        """Count the result of a probe.

        A good result ends the pause but does not close the circuit.  A bad one counts as a failure.
        """
        if succeeded and now < self._open_until:
            self._open_until = now
        elif not succeeded and self._alone_until == -inf and now >= self._open_until:
            self.record_failure(self._generation, now)

    def eject(self, now: float) -> None:
        """Pause an outlier for 1 s, and twice as long if the last ejection was recent.

        The outcomes so far are deleted, so that only new ones count when it is back.
        """
        recent = now - self._ejected_until < _MEMORY
        self._ejections = self._ejections + 1 if recent else 1
        self._ejected_until = now + self._pause_seconds(self._ejections)
        self._good = self._bad = 0.0

    @property
    def share(self) -> float:
        """The share of failures among the outcomes, between 0 and 1; recent ones weigh more.  0 without outcomes."""
        return self._bad / (self._good + self._bad or 1.0)

    def weight(self, now: float) -> float:
        """Return the weighted number of outcomes in `share`; each counts half after 10 s."""
        return (self._good + self._bad) * self._decay(now)

    def _age(self, now: float) -> None:
        """Reduce the weight of old outcomes."""
        decay = self._decay(now)
        self._good, self._bad, self._counted_at = self._good * decay, self._bad * decay, now

    def _decay(self, now: float) -> float:
        decay: float = 0.5 ** ((now - self._counted_at) / _HALF_LIFE)
        return decay

    def _open(self, now: float) -> None:
        self._openings += 1
        self._open_until = now + self._pause_seconds(self._openings)
        self._turn()

    def _close(self) -> None:
        """Close the circuit and forget all earlier failures."""
        self._openings = 0
        self._good = self._bad = 0.0
        self._turn()

    def _turn(self) -> None:
        self._failures = self._trials = 0
        self._alone_until = -inf
        self._renew()

    def _renew(self) -> None:
        """Start a new generation: outcomes of earlier attempts no longer count."""
        self._generation = AttemptToken(self._generation + 1)

    def _pause_seconds(self, times: int) -> float:
        jitter = 1 + _JITTER * (2 * self._random() - 1)
        return min(_LONGEST, 2.0 ** min(times - 1, 5)) * jitter


class RetryBudget:
    """A budget of 10 retries, and one more per 5 first attempts, so that a failing backend does not get ever more."""

    def __init__(self) -> None:
        self._saved = _MAX

    def count_first_attempt(self) -> None:
        """Count a first attempt."""
        if self._saved < _MAX:
            self._saved += 1

    def spend_retry(self) -> bool:
        """Spend a retry and return True; return False if the budget is used up."""
        if self._saved < _PRICE:
            return False
        self._saved -= _PRICE
        return True
