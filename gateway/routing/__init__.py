"""Choose backends, count retries and queue requests: pure state; time and randomness are arguments.

The steps of a request: `Balancer.choose` names a BalancerMember.  `Health.begin` counts the request there at once.
The member's FairQueue says when it begins.  The outcome goes back to `Health`.  A RetryBudget allows a retry or not.
"""

from gateway.routing.balancer import BackendLoad, Balancer, BalancerMember
from gateway.routing.budget import RetryBudget
from gateway.routing.health import AttemptToken, Health
from gateway.routing.turnstile import FairQueue, QueueEntry

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
