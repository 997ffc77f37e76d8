"""Which backend is asked, how often, and who waits: pure state, that is told the time and where chance comes from.

A request's way: `Balancer.choose` names a Member; `Health.begin` notes that it is put to it, at once; its Turnstile
says when; what came of it goes back to its Health, and whether it may be tried again is asked of the Budget.
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
