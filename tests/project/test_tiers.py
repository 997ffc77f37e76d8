"""Test how the tier of a test is derived, and that unit tests are held to theirs."""

import asyncio
import os
import socket
import sqlite3
import subprocess
import time
from contextlib import suppress
from textwrap import dedent

import pytest

from support.guard import NotPure, pure
from support.paths import TESTS
from support.tiers import Tier, imports_of, named_tests, tier_of


@pytest.fixture
def module(tmp_path):
    """Return a function that writes a module of tests."""

    def write(text):
        file = tmp_path / "test_it.py"
        file.write_text(dedent(text))
        return file

    return write


@pytest.mark.parametrize(
    ("body", "tier"),
    [
        ("assert 1 + 1 == 2", Tier.unit),
        ("from gateway.sse import Framing", Tier.unit),
        ("asyncio.open_connection('127.0.0.1', 1)", Tier.edge),
        ("gateway()", Tier.edge),
        ("subprocess.run(['ls'])", Tier.system),
        ("helper()", Tier.system),
        ("Holder.method()", Tier.edge),
        ("VALUE", Tier.edge),
        ("bearer('key')", Tier.unit),
        ("bench.request_sorts.SORTS", Tier.unit),
        ("bench.rounds.Track()", Tier.system),
    ],
)
def test_tier_follows_the_names_that_a_test_uses(module, body, tier):
    file = module(
        f"""
        import asyncio, bench, subprocess
        from support.app import bearer, gateway
        from support import postgres as server

        class Holder:
            def method(self):
                return gateway()

        VALUE, OTHER = gateway, 1

        def helper():
            return another()

        def another():
            return server.Postgres

        def test_it():
            {body}
        """
    )
    assert named_tests(file) == ["test_it"]
    assert tier_of(file, "test_it") == tier


def test_tier_counts_the_fixtures_of_a_test(module):
    file = module(
        """
        import pytest

        @pytest.fixture
        def folder(services):
            return services("postgres")

        def test_it(folder):
            pass

        def test_other(store):
            pass
        """
    )
    assert tier_of(file, "test_it") == Tier.system
    assert tier_of(file, "test_other") == Tier.edge


def test_tier_of_a_circle_of_helpers_is_found(module):
    file = module("def a():\n    b()\ndef b():\n    a()\ndef test_it():\n    a()\n")
    assert tier_of(file, "test_it") == Tier.unit


def test_imports_of_a_module_are_dotted_names(module):
    file = module("import gateway.errors\nimport os.path as path\nfrom gateway.store import jobs as j\n")
    assert imports_of(file) == {"gateway", "os.path", "gateway.store.jobs"}


def test_tiers_all_have_tests():
    found = {tier_of(file, name) for file in TESTS.rglob("test_*.py") for name in named_tests(file)}
    assert found == {*Tier}


# The guard


def connect():
    with socket.socket() as one, suppress(ConnectionError):
        one.connect(("127.0.0.1", 9))


def listen():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))


@pytest.mark.parametrize(
    "act",
    [
        connect,
        listen,
        lambda: subprocess.run(["true"], check=True),
        lambda: os.system("true"),
        lambda: sqlite3.connect(":memory:").close(),
        lambda: time.sleep(0.001),  # steady: the guard refuses it
        lambda: asyncio.run(asyncio.sleep(0.001)),  # steady: the guard refuses it
    ],
)
def test_guard_refuses_what_a_unit_test_does_not_do(act):
    with pytest.raises(NotPure, match="the test is a unit test"), pure("the test"), suppress(NotPure):
        act()  # code under test might suppress the error, too
    act()


def test_guard_lets_pure_code_pass():
    with pure("the test"):
        assert asyncio.run(asyncio.sleep(0, 7)) == 7
