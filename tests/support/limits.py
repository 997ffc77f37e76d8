"""API keys with limits, and the check that they hold across gateways."""

import asyncio
from datetime import UTC, datetime

import httpx

from support.app import HELLO_MESSAGES
from support.wait import DEADLINE, idle, now

REQUESTS, TOKENS = 100, 1350  # per minute

USED = 9  # tokens of a request; it reserves up to 20

CONNECTIONS = 8  # per key

PATIENCE = 30  # refusals until a client gives up: 3 s; workers learn of returned tokens within a second

ANN, BOB = ({"authorization": f"Bearer {name}-{'k' * 20}"} for name in ("ann", "bob"))

LIMITS = {"ann": {"requests_per_minute": REQUESTS}, "bob": {"tokens_per_minute": TOKENS}}

KEYS = {"keys": [{"name": name, "key": f"{name}-{'k' * 20}", "limits": limits} for name, limits in LIMITS.items()]}

BODY = {"model": "m", "messages": HELLO_MESSAGES, "max_tokens": 17}


async def ask_on(root, headers, admitted):
    """Send requests until many refusals show that nothing is left; new connections reach all workers."""
    refused = 0
    anew = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=root, headers=headers, timeout=DEADLINE, verify=False, limits=anew) as client:
        while refused < PATIENCE:
            answer = await client.post("/v1/chat/completions", json=BODY)
            if answer.status_code == 200:
                admitted.append(answer)
            else:
                assert answer.status_code == 429 and int(answer.headers["retry-after"]) <= 120
                refused += 1
                await idle(0.1)  # per minute


async def check(roots, who, cost, limit):
    """Check that all allowed requests are admitted, and no more.

    If a minute begins meanwhile, a part of the limit is free again.
    """
    admitted, begun = [], now()
    await asyncio.gather(*(ask_on(root, who, admitted) for root in roots for _ in range(CONNECTIONS // len(roots))))
    ended, used = now(), len(admitted) * cost
    minute = ended // 60 * 60
    more = limit * (ended - minute) / 60 if begun < minute else 0
    assert 0.98 * limit <= used <= 1.02 * limit + more, f"{len(admitted)} came in within {ended - begun:.1f} s"


GROUP_BUDGET = 1000  # tokens per month

TEAM = {
    "groups": {"team": {"tokens_per_month": GROUP_BUDGET}},
    "keys": [{"name": name, "key": f"{name}-{'k' * 20}", "group": "team"} for name in ("ann", "bob")],
}


async def check_group_budget(*roots):
    """Use up the budget of a group by two keys on all gateways, and check that it ends at the right token."""
    begun, admitted = month(), []
    async with asyncio.timeout(80):
        await asyncio.gather(*(use_up(root, who, admitted) for root in roots for who in (ANN, BOB) for _ in range(2)))
    budgets = 1 + (month() - begun)
    assert 0 <= budgets * GROUP_BUDGET - len(admitted) * USED < 20 * budgets, f"{len(admitted)} came in"


def month():
    """Return the number of this month."""
    today = datetime.fromtimestamp(now(), UTC)
    return today.year * 12 + today.month


async def use_up(root, headers, admitted):
    """Send requests until the budget has ended; a refusal while others run may be too early."""
    refused = 0
    anew = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=root, headers=headers, timeout=DEADLINE, verify=False, limits=anew) as client:
        while refused < PATIENCE:
            answer = await client.post("/v1/chat/completions", json=BODY)
            if answer.status_code == 200:
                admitted.append(answer)
                continue
            assert answer.status_code == 429 and f"{GROUP_BUDGET} tokens per month" in answer.text
            refused += 1
            await idle(0.1)  # a second or more until all tokens of others are given back


async def check_all(*roots):
    """Check the limits of both keys."""
    async with asyncio.timeout(80):
        await asyncio.gather(check(roots, ANN, 1, REQUESTS), check(roots, BOB, USED, TOKENS))
