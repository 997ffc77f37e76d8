"""Test how the wait is read that a backend states."""

import pytest

from gateway.backends.openai.error_mapping import stated_wait

LATER, EARLIER = "Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:27:30 GMT"
NOW = 1792567650.5  # half a second after EARLIER


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "0"}, "0"),
        ({"retry-after": " 7 "}, "7"),
        ({"retry-after": "1.2"}, "2"),
        ({"retry-after": "1.", "retry-after-ms": "9000"}, "1"),
        ({"retry-after-ms": "1500"}, "2"),
        ({"retry-after": "1" * 10}, None),
        ({"retry-after": "9" * 5000}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon", "retry-after-ms": "soon"}, None),
        ({"retry-after": LATER, "date": EARLIER}, "30"),
        ({"retry-after": LATER, "date": "?"}, "30"),
        ({"retry-after": LATER}, "30"),
        ({"retry-after": EARLIER, "date": LATER}, "0"),
        ({"retry-after": "Wed, 21 Oct 99999999999999999999 07:28:00 GMT"}, None),
    ],
)
def test_wait_is_read_in_all_forms(headers, wait):
    assert stated_wait(headers, NOW) == wait
