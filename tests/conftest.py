"""The two databases of the store.  PostgreSQL is started when a test needs it first, once in a run."""

import itertools

import pytest

from gateway.store import Database
from support.postgres import Postgres

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    with Postgres.temporary() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request, tmp_path):
    """A new, empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gateway.db"
    return request.getfixturevalue("postgres").create(f"test{next(_NUMBERS)}")


@pytest.fixture
async def store(store_url):
    database = Database(store_url)
    yield database
    await database.close()
