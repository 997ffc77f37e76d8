"""Read stored objects of a gateway over HTTP, as one tenant or another."""

from support.app import bearer
from support.jobs import get
from support.wait import until

_KEYS = {name: f"{name}-{'k' * 20}" for name in ("ann", "bob")}
TENANTS = {"keys": [{"name": name, "key": key} for name, key in _KEYS.items()]}
ANN, BOB = map(bearer, _KEYS.values())


async def get_json(client, path, **params):
    """Return the body of a GET below /v1 that succeeds."""
    response = await client.get(f"/v1/{path}", params=params)
    assert response.status_code == 200, response.text
    return response.json()


async def item_texts(client, path):
    """Return the texts of a list of items, the oldest first."""
    return [item["content"][0]["text"] for item in (await get_json(client, path, order="asc", limit=100))["data"]]


async def stored(site, id):
    """Wait until a response is stored, and return it."""
    responses = []

    async def missing():
        responses.append(await get(site, id))
        return responses[-1].status_code == 404

    await until(missing, False)
    return responses[-1].json()
