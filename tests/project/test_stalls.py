"""Test the tool that measures for how long a request stops the event loop."""

import pytest

from stalls import __main__ as stalls
from stalls.bodies import CHAT, ROWS
from support.upstream import HELLO


def test_stalls_have_a_body_for_each_name_and_endpoint():
    names = [(row.name, row.path) for row in ROWS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("stall", "growth", "wrong"), [(0.0501, 0, "a stall of 50 ms"), (0, 17 << 20, "17 MB more memory")]
)
def test_stalls_fail_beyond_their_bounds(stall, growth, wrong):
    assert [*stalls.wrong("row", stall, growth, 16 << 20)] == [f"row: {wrong}"]
    assert not [*stalls.wrong("row", 0.05, 16 << 20, 16 << 20)]


async def test_stalls_measure_a_gateway_in_a_process_of_its_own(capsys):
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    await stalls.row("a name", CHAT, body, HELLO, 1)
    assert capsys.readouterr().out.startswith(f"| a name | {CHAT} | 0.0 |")
