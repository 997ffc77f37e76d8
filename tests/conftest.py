"""Fixtures of all tests; support/plugin.py derives the tier of each test."""

import itertools

import pytest

from gateway.store import Database

pytest_plugins = ["support.services", "support.plugin"]
_NUMBERS = itertools.count()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.system)])
def store_url(request, tmp_path):
    """Return the URL of a new, empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/gateway.db"
    return request.getfixturevalue("postgres").create(f"test{next(_NUMBERS)}")


@pytest.fixture
async def store(store_url):
    database = Database(store_url)
    yield database
    await database.close()
