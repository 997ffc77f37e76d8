"""Which backend is asked, how often, and who waits: pure state, that is told the time and where chance comes from.

A request's way: `Balancer.choose` names a Member; `Health.begin` notes that it is put to it, at once; its Turnstile
says when; what came of it goes back to its Health, and whether it may be tried again is asked of the Budget.
"""

from gateway.routing.balancer import Balancer, Load, Member
from gateway.routing.budget import Budget
from gateway.routing.health import Attempt, Health
from gateway.routing.turnstile import Ticket, Turnstile

__all__ = ["Attempt", "Balancer", "Budget", "Health", "Load", "Member", "Ticket", "Turnstile"]
