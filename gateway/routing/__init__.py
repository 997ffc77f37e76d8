"""Choose backends, count retries and queue requests: pure state; time and randomness are arguments.

The steps of a request: `Balancer.choose` returns a BalancerMember.  `Health.begin` counts the request there at once.
The member's FairQueue starts it when it has a slot.  The outcome goes back to `Health`.  A RetryBudget permits or
denies a retry.
"""

from gateway.routing.balancer import BackendLoad, Balancer, BalancerMember
from gateway.routing.fair_queue import FairQueue, QueueEntry
from gateway.routing.health import AttemptToken, Health, RetryBudget

__all__ = [
    "AttemptToken",
    "BackendLoad",
    "Balancer",
    "BalancerMember",
    "FairQueue",
    "Health",
    "QueueEntry",
    "RetryBudget",
]
