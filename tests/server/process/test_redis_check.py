"""Test the check of the Redis that counts usage."""

import pytest

from gateway.server.process.dependencies import redis_problem
from support.cli import closing_server
from support.ports import free_port


def test_redis_check_says_why_redis_refuses(redis_url):
    assert redis_problem(redis_url) == ""
    assert redis_problem(redis_url.replace("redis://", "redis://ada:wrong@")) == (
        "Redis refuses the login; check the user and the password in limits.url"
    )
    scheme, _, rest = redis_url.partition("://")
    assert redis_problem(f"{scheme}://{rest.partition('/')[0]}/99999") == (
        "Redis reports: DB index is out of range; is it Redis, and is limits.url right?"
    )


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("redis://127.0.0.1:{port}/0", "connection refused; is Redis running?"),
        ("redis://no.invalid:{port}/0", "the host name cannot be resolved; check limits.url"),
    ],
)
def test_redis_check_says_why_redis_cannot_be_reached(url, words):
    assert redis_problem(url.format(port=free_port())) == words


def test_redis_check_recognizes_another_server():
    with closing_server() as port:
        assert redis_problem(f"redis://127.0.0.1:{port}/0").startswith(
            "Redis reports: Connection closed by server; is it"
        )
