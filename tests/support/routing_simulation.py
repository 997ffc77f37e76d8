"""Simulate a thousand backends and a hundred thousand requests on a virtual clock; half of the backends die and return.

A run of the tests that is not thorough has a fifth of each.

All random values come from one seed, so that runs are equal.  `PYTHONPATH=tests python -m simulation` prints the
results.
"""

import sys
from bisect import bisect
from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from statistics import mean, pstdev

from gateway.routing import AttemptToken, Balancer, BalancerMember, FairQueue, Health, QueueEntry, RetryBudget
from support.sampling import thorough

_SCALE = 1 if thorough() else 5
BACKENDS, REQUESTS, KEYS = 1_000 // _SCALE, 100_000 // _SCALE, 5_000 // _SCALE
RATE = 800.0 / _SCALE  # requests a second
SERVICE = 5.0  # seconds of a response; its first tenth is silent
SILENT = 0.1
ZIPF = 0.6  # the most frequent key has about a hundredth of the requests with keys
ROOM, LENGTH = 8, 32  # concurrent requests per unit of weight, and waiting ones
REFUSAL, TIMEOUT = 0.001, 5.0  # seconds until an attempt at a dead backend fails, by the kind of failure
HANGING = 0.2  # share of the dead that accept connections and send nothing
RETRIES = 2
WARM, DEATH, RETURN, END = 10.0, 40.0, 65.0, 125.0
PHASES = {"steady": (WARM, DEATH), "half of them dead": (DEATH, RETURN), "all are back": (RETURN, END)}


class Backend:
    """A backend: the gateway's state of it, and its real state."""

    def __init__(self, number, clock, random):
        self.member = BalancerMember(
            f"backend-{number}", float(random.randint(1, 4)), 0, Health(random.random), FairQueue(0, LENGTH)
        )
        self.member.load.limit = ROOM * int(self.member.weight)
        self.clock, self.dead, self.hangs = clock, False, False
        self.tries = {}  # in their order
        self.worked = defaultdict(float)  # by phase: seconds of all requests
        self.back_at = None  # time of its first response since its return
        self._since = 0.0

    def account(self, phase):
        """Account for the time so far, before the load changes."""
        self.worked[phase] += self.member.load.total * (self.clock.now - self._since)
        self._since = self.clock.now


class Clock:
    """A virtual clock, which calls functions in the order of time."""

    def __init__(self):
        self.now = 0.0
        self._due = []
        self._numbers = count()

    def after(self, seconds, call, *args):
        """Call a function after this time."""
        heappush(self._due, (self.now + seconds, next(self._numbers), call, args))

    def run(self):
        """Run until nothing is due."""
        while self._due:
            self.now, _, call, args = heappop(self._due)
            call(*args)


@dataclass
class SimulatedRequest:
    """A request.  seconds: the duration of its response."""

    key: str | None
    seconds: float
    tried: set = field(default_factory=set)


@dataclass(eq=False)
class Try:
    """One attempt of a request."""

    request: SimulatedRequest
    backend: Backend
    attempt: AttemptToken
    ticket: QueueEntry | None = None
    spoke: bool = False
    lost: bool = False  # it can only fail


@dataclass
class Phase:
    """The counts of a phase."""

    requests: int = 0
    attempts: int = 0
    waited: int = 0
    keyed: int = 0  # first attempts with a key whose preferred backend is alive
    kept: int = 0  # of those, attempts at the preferred backend
    failed: int = 0  # errors for the client
    cut: int = 0  # responses with content when the backend died


class Simulation:
    """The simulation."""

    def __init__(self, seed=1):
        self.random = Random(seed)
        self.clock = Clock()
        self.backends = [Backend(number, self.clock, self.random) for number in range(BACKENDS)]
        self.named = {backend.member.name: backend for backend in self.backends}
        members = [backend.member for backend in self.backends]
        self.balancer, self.budget = Balancer(members, self.random.random), RetryBudget()
        self.preferred = self._preferred(members)
        self.dying = self.random.sample(self.backends, BACKENDS // 2)
        self.phases = defaultdict(Phase)
        self._shares = [*accumulate(place**-ZIPF for place in range(1, KEYS + 1))]
        self._left = REQUESTS

    def _preferred(self, members):
        """Return the backend of each key while all are healthy and idle."""
        idle = [BalancerMember(one.name, one.weight, 0, Health(self.random.random), FairQueue(0, 0)) for one in members]
        balancer = Balancer(idle, self.random.random)
        return {key: self.named[balancer.choose(0.0, key, ()).name] for key in map(str, range(KEYS))}

    def run(self):
        """Run the simulation."""
        self.clock.after(0.0, self.arrive)
        self.clock.after(DEATH, self.die)
        self.clock.after(RETURN, self.come_back)
        self.clock.run()
        return self

    @property
    def phase_name(self):
        """The name of the current phase."""
        return next((name for name, (begin, end) in PHASES.items() if begin <= self.clock.now < end), "")

    @property
    def phase(self):
        """The current phase."""
        return self.phases[self.phase_name]

    def die(self):
        """Kill half of the backends."""
        for backend in self.dying:
            backend.dead, backend.hangs = True, self.random.random() < HANGING
            for one in backend.tries:
                self.lose(one)

    def come_back(self):
        """Bring the dead backends back."""
        for backend in self.dying:
            backend.dead = False

    def arrive(self):
        """Let a request arrive, and schedule the next one."""
        self._left -= 1
        if self._left:
            self.clock.after(self.random.expovariate(RATE), self.arrive)
        key = None
        if self.random.random() < 0.5:
            key = str(bisect(self._shares, self.random.random() * self._shares[-1]))
        self.phase.requests += 1
        self.budget.count_first_attempt()
        self.attempt(SimulatedRequest(key, self.random.expovariate(1 / SERVICE)))

    def attempt(self, request):
        """Send the request to a backend, or let it wait there; if the queue is full, choose a different one."""
        member = self.balancer.choose(self.clock.now, request.key, request.tried)
        if not member:
            self.phase.failed += 1
            return
        one = Try(request, self.named[member.name], member.health.begin(self.clock.now))
        one.backend.account(self.phase_name)
        one.ticket = member.load.acquire(request.key or "", 1.0, lambda: self.clock.after(0.0, self.turn, one))
        if not one.ticket:
            member.health.record_no_outcome(one.attempt)
            self.elsewhere(one)
        elif one.ticket.has_slot:
            self.put(one)
        else:
            self.phase.waited += 1

    def turn(self, one):
        """Start a waiting attempt, or choose again if the circuit has changed."""
        if one.backend.member.health.is_current(one.attempt):
            self.put(one)
        else:
            self.leave(one)
            self.attempt(one.request)

    def elsewhere(self, one):
        """Try another backend."""
        one.request.tried.add(one.backend.member.name)
        self.attempt(one.request)

    def put(self, one):
        """Start an attempt."""
        phase, preferred = self.phase, self.preferred.get(one.request.key)
        phase.attempts += 1
        if preferred and not preferred.dead and not one.request.tried:
            phase.keyed += 1
            phase.kept += one.backend is preferred
        one.backend.tries[one] = None
        if one.backend.dead:
            self.lose(one)
        else:
            self.clock.after(one.request.seconds * SILENT, self.speak, one)
            self.clock.after(one.request.seconds, self.end, one)

    def speak(self, one):
        """Note the first content of a response."""
        if not one.lost:
            one.spoke = True
            if self.clock.now >= RETURN and one.backend.back_at is None:
                one.backend.back_at = self.clock.now
            one.backend.member.health.record_success(one.attempt, self.clock.now)

    def end(self, one):
        """End a response."""
        if not one.lost:
            self.leave(one)

    def lose(self, one):
        """Let an attempt fail after the time that a dead backend takes."""
        one.lost = True
        self.clock.after(TIMEOUT if one.backend.hangs else REFUSAL, self.fail, one)

    def fail(self, one):
        """End a failed attempt, and retry if allowed."""
        self.leave(one)
        one.backend.member.health.record_failure(one.attempt, self.clock.now)
        if one.spoke:
            self.phase.cut += 1
        elif len(one.request.tried) < RETRIES and self.budget.spend_retry():
            self.elsewhere(one)
        else:
            self.phase.failed += 1

    def leave(self, one):
        """Give back the slot."""
        one.backend.account(self.phase_name)
        one.backend.tries.pop(one, None)
        one.backend.member.load.release(one.ticket)

    # Results

    def loads(self, name):
        """Return the average load per unit of weight of each backend that is alive in the phase."""
        begin, end = PHASES[name]
        dead = set(self.dying if name == "half of them dead" else ())
        living = [one for one in self.backends if one not in dead]
        return [one.worked[name] / (end - begin) / one.member.weight for one in living]

    def back_after(self, share):
        """Return the seconds after the return until this share of the dead has responded again; None: never."""
        times = sorted(one.back_at - RETURN for one in self.dying if one.back_at is not None)
        place = round(share * len(self.dying)) - 1
        return times[place] if place < len(times) else None

    @property
    def attempts(self):
        """The number of attempts."""
        return sum(phase.attempts for phase in self.phases.values())

    def table(self):
        """Yield the lines of a table."""
        yield "| phase | requests | attempts | failed | cut off | waited | load | its deviation | its maximum | kept |"
        yield "| --- |" + " --: |" * 9
        for name in PHASES:
            phase, loads = self.phases[name], self.loads(name)
            cells = [
                name, phase.requests, phase.attempts, f"{phase.failed / phase.requests:.2%}", phase.cut, phase.waited,
                f"{mean(loads):.2f}", f"{pstdev(loads) / mean(loads):.2f}", f"{max(loads) / mean(loads):.2f}",
                f"{phase.kept / phase.keyed:.1%}",
            ]  # fmt: skip
            yield f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    done = Simulation().run()
    shares = ", ".join(f"{share:.0%} after {done.back_after(share):.1f} s" for share in (0.5, 0.95, 0.99))
    sys.stdout.write("\n".join([*done.table(), "", f"Of those that died, answered again: {shares}.", ""]))
