"""Test the list of what was not passed as it came: each entry once, and not too many."""

import pytest

from gateway.warnings import Warnings
from support.app import gateway
from support.sse import comments
from support.upstream import DONE, chunk, head


def test_ledger_names_all_entries_where_they_are_few():
    ledger = Warnings()
    for number in range(48):
        ledger.add("forwarded", f"u{number}")
    assert ledger.header_value().split(", ") == ledger.listed() == [f"forwarded:u{number}" for number in range(48)]


def test_ledger_names_the_first_entries_of_a_code_and_counts_the_others():
    ledger = Warnings()
    ledger.add("dropped", "user")
    for number in range(60):
        ledger.add("forwarded", f"u{number}")
        ledger.add("forwarded", "u0")
    named = ["dropped:user", *(f"forwarded:u{number}" for number in range(16))]
    assert ledger.header_value() == ", ".join([*named, "forwarded:+44"])
    assert ledger.listed() == [*named, "forwarded:+44"]
    assert ledger.codes() == {"dropped": 1, "forwarded": 60} and len(ledger.entries()) == 61


def test_ledger_counts_later_entries_of_a_code_by_themselves():
    ledger = Warnings()
    for number in range(15):
        ledger.add("forwarded", f"u{number}")
    assert ledger.header_value().count(",") == 14
    for number in range(15, 60):
        ledger.add("forwarded", f"u{number}")
    ledger.add("repaired", "content")
    assert ledger.take_unsent() == "forwarded:u15, repaired:content, forwarded:+44"
    assert ledger.take_unsent() == ""


def test_ledger_keeps_a_thousand_entries():
    ledger = Warnings()
    for number in range(5000):
        ledger.add("forwarded", f"u{number}")
    assert len(ledger.entries()) == 1024 and ledger.listed()[-1] == "forwarded:+1008"


def test_ledger_tells_each_code_however_many_entries_there_are():
    """A warning that strict mode refuses for is not lost behind a thousand others."""
    ledger = Warnings()
    for number in range(1100):
        ledger.add("forwarded", f"u{number}")
    for name in ("top_k", "min_p"):
        ledger.add("dropped", name)
    assert [entry for entry in ledger.entries() if entry.startswith("dropped:")] == ["dropped:top_k"]
    assert ledger.codes() == {"forwarded": 1024, "dropped": 1}


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
async def test_warnings_of_a_stream_that_comes_at_once_are_in_the_header_alone(path):
    data = b"".join([chunk("Hi"), chunk(finish="stop"), DONE])

    async def send_at_once(writer):
        writer.write(head() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data))
        await writer.drain()

    body = {"model": "m", "stream": True, "surprise": 1, "max_tokens": 9}
    prompt = {"input": "Hello"} if path == "responses" else {"messages": [{"role": "user", "content": "Hello"}]}
    async with gateway([send_at_once]) as site:
        response = await site.client.post(f"/v1/{path}", json=body | prompt)
    assert "forwarded:surprise" in response.headers["x-gateway-warnings"].split(", ")
    assert comments(response.text) == []
