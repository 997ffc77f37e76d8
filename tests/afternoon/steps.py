"""The steps of the afternoon: each one checks what it did, and returns what it measured."""

import asyncio
import json
import re
from contextlib import contextmanager
from time import perf_counter

from afternoon.dashboards import prometheus
from afternoon.site import ADMIN, BEFORE, MODELS, TEAMS, TOKENS
from gateway.store.migrations import revisions
from replicas.next_release import REVISION, write_next_release
from support.app import bearer
from support.metrics import scrape
from support.wait import DEADLINE, now, until

PEOPLE = 50
_QUARTER = 90 * 86_400  # seconds
_BUDGET, _AT_A_TIME = 2_000, 8  # tokens, and requests in flight at their end
_REFUSED = re.compile(r"the key 'spender': \d+ tokens per month, used (\d+), requested (\d+)\.")


async def start(site):
    """Check that both gateways serve, and that the first one has brought the schema up to date."""
    newest = revisions().get_current_head()
    await until(site.revision, newest)
    for replica in site.replicas:
        await until(lambda client=replica.client: _get_status(client, "/ready"), 200)
    probed = (await site.command("check", "--probe")).splitlines()
    return f"PostgreSQL upgraded from {BEFORE} to {newest}, 2 gateways ready, {len(probed)} checks passed"


async def add_keys(site):
    """Give each person a key that expires, with a budget and a team, one of them by the command."""
    end, begun = int(now()) + _QUARTER, perf_counter()
    limit = {"tokens_per_month": TOKENS}
    for number in range(1, PEOPLE):
        name, team = f"person-{number}", f"team-{number % TEAMS}"
        request = {"name": name, "limits": limit, "group": team, "expires_at": end}
        site.keys[name] = (await site.admin("POST", "/admin/keys", number % 2, json=request))["key"]
    words = "--limit", f"tokens_per_month={TOKENS}", "--group", "team-0", "--expires", "90d"
    site.keys["person-0"] = (await site.command("keys", "add", "person-0", *words)).strip()
    seconds = perf_counter() - begun
    stored = [key for key in (await site.admin("GET", "/admin/keys"))["data"] if key["source"] == "store"]
    assert len(stored) == PEOPLE and all(key["expires_at"] >= end and key["group"] for key in stored)
    return f"{PEOPLE} keys with expiry, budget and team in {seconds:.1f} s"


async def send_traffic(site):
    """Use each key for each API, streamed and whole, over both gateways."""
    for replica in range(2):
        await _knows(site, site.keys["person-0"], replica)
    begun = perf_counter()
    sent = await site.send(site.keys.values())
    seconds = perf_counter() - begun
    assert {name for name, _ in await _added_up(site, "key")} == site.keys.keys()
    return f"{sent} requests of {PEOPLE} keys in {seconds:.1f} s, all answered"


async def show_dashboard(site):
    """Wait until Prometheus has a number for each expression of the dashboard; send requests meanwhile."""
    targets = [f"127.0.0.1:{replica.port}" for replica in site.replicas]
    async with prometheus(site.folder, targets, ADMIN) as found:
        missing = found.expressions
        with _naming(lambda: f"no data: {missing}"):
            async with asyncio.timeout(DEADLINE):
                while missing := await found.without_data():
                    await site.send([site.keys["person-1"]])
        alerts = len(await found.rules())
        await until(found.rules, ["ok"] * alerts)
        assert {*await found.keys()} >= site.keys.keys()
        cost = sum((await until(found.costs, site.costs)).values())
        return (
            f"{len(found.expressions)} expressions have data, {alerts} alerts are evaluated, {PEOPLE} keys are named;"
            f" the panel of costs has the model servers' tokens at their prices ({cost:.6f})"
        )


async def revoke(site):
    """Revoke a key at one gateway, and measure the time until both refuse it."""
    key, seconds = site.keys.pop("person-2"), []
    for replica in range(2):
        assert (await site.ask(key, replica=replica)).status_code == 200
    begun = perf_counter()
    await site.admin("DELETE", "/admin/keys/person-2")
    for replica in range(2):
        await until(lambda here=replica: _status(site, key, here), 401)
        seconds.append(perf_counter() - begun)
    assert max(seconds) < 1
    last = (await site.admin("GET", "/admin/keys/log"))["data"][0]
    assert (last["actor"], last["action"], last["key"]) == ("key:ops", "key.revoked", "person-2")
    return "refused after {:.0f} ms there and {:.0f} ms at the other gateway".format(*(1000 * one for one in seconds))


async def expire(site):
    """Add a key for two seconds, and wait until both gateways say that it has expired."""
    request = {"name": "guest", "expires_at": int(now()) + 3}
    key = (await site.admin("POST", "/admin/keys", json=request))["key"]
    assert await _status(site, key, 0) == 200
    for replica in range(2):
        await until(lambda here=replica: _has_expired(site, key, here))
    assert now() >= request["expires_at"]
    return "both gateways refuse a key that has expired, and say so"


async def spend_budget(site):
    """Spend a budget at both gateways at once, until each refuses with nothing in flight."""
    request = {"name": "spender", "limits": {"tokens_per_month": _BUDGET}}
    key = (await site.admin("POST", "/admin/keys", json=request))["key"]
    await _knows(site, key, 1)
    before = _tokens(site)
    await asyncio.gather(*(_spend(site, key, place % 2) for place in range(_AT_A_TIME)))
    for replica in range(2):
        used, reserved = await _refusal(site, key, replica, before)
        assert used == _tokens(site) - before <= _BUDGET < used + reserved
    return f"{used} of {_BUDGET} tokens used by {_AT_A_TIME} clients; the next request would reserve {reserved}"


async def add_up(site):
    """Compare the usage in the store with the model servers' own counts, and with the metrics."""
    by_key = await _added_up(site, "key")
    total = json.loads(await site.command("usage", "--json"))["total"]
    for name in ("requests", "input_tokens", "cached_tokens", "output_tokens"):
        assert sum(by_key[key, of] for key, of in by_key if of == name) == total[name]
        assert sum(site.counts[model, name] for model in MODELS) == total[name]
    metrics = [await scrape(replica, ADMIN) for replica in site.replicas]
    for kind in ("input", "cached", "output"):
        counted = sum(one.sum("gateway_tokens_total", kind=kind) for one in metrics)
        assert counted == total[f"{kind}_tokens"]
    failed = sum(one.sum("gateway_upstream_errors_total") for one in metrics)
    return (
        f"{total['requests']} requests, {total['input_tokens']} + {total['output_tokens']} tokens in the store, in"
        f" /metrics and at the model servers; {failed:.0f} attempts failed there and were repeated"
    )


async def roll_back(site):
    """Upgrade a gateway to the next release and back; the other one serves meanwhile."""
    second, people = site.replicas[1], [*site.keys.values()][:5]
    await second.stop()
    await second.start(code=write_next_release(site.folder / "next"))
    await site.send(people)
    await until(site.revision, REVISION)
    await second.stop()
    await second.start()
    sent = await site.send(people)
    assert await site.revision() == REVISION
    await _added_up(site, "model")
    return f"schema {REVISION} and back: {sent} requests answered, keys and usage as before"


STEPS = start, add_keys, send_traffic, show_dashboard, revoke, expire, spend_budget, add_up, roll_back


async def _added_up(site, by):
    """Wait until the usage of both gateways is in the store, and return it by a column."""
    await site.admin("GET", "/admin/usage", 1)
    await until(lambda: site.usage("model"), site.counts)
    return await site.usage(by)


async def _knows(site, key, replica):
    """Wait until a gateway accepts a new key."""
    await until(lambda: _status(site, key, replica), 200)


async def _status(site, key, replica):
    return await _get_status(site.replicas[replica].client, "/v1/models", headers=bearer(key))


async def _get_status(client, path, **more):
    return (await client.get(path, **more)).status_code


def _tokens(site):
    return sum(amount for (_, name), amount in site.counts.items() if name in ("input_tokens", "output_tokens"))


async def _spend(site, key, replica):
    """Send requests until one is refused."""
    while (answer := await site.ask(key, replica=replica)).status_code == 200:
        pass
    assert answer.status_code == 429, answer.text


async def _refusal(site, key, replica, before):
    """Wait for a refusal that counts all tokens; return the tokens used, and those that the request would reserve."""
    found = ()

    async def counts_all():
        nonlocal found
        answer = await site.ask(key, replica=replica)
        if answer.status_code == 200:
            return False
        found = tuple(map(int, _REFUSED.search(answer.text).groups()))
        return found[0] == _tokens(site) - before

    await until(counts_all)
    return found


async def _has_expired(site, key, replica):
    answer = await site.ask(key, replica=replica)
    return answer.status_code == 401 and "has expired" in answer.text


@contextmanager
def _naming(cause):
    """Give a timeout its cause."""
    try:
        yield
    except TimeoutError:
        raise AssertionError(cause()) from None
