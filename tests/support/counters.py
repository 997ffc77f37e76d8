"""Where uses are counted, as fixtures; a module asks for them by `pytest_plugins`."""

import itertools

import pytest

from support.redis_server import RedisServer

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def redis_server():
    with RedisServer.temporary() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def counted(request, tmp_path):
    """Sections of a config: a new store, or Redis with a database of its own, that does the counting."""
    store = {"url": f"sqlite:///{tmp_path}/gateway.db"}
    if request.param == "postgresql":
        store = {"url": request.getfixturevalue("postgres").create(f"counted{next(_NUMBERS)}")}
    if request.param == "redis":
        url = request.getfixturevalue("redis_server").url.removesuffix("/0")
        return {"store": store, "limits": {"url": f"{url}/{next(_NUMBERS)}"}}
    return {"store": store}
