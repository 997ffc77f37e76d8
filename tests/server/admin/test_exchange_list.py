"""Test the list of requests: its filters, its order and its counts."""

import pytest
from msgspec.structs import replace

from gateway.errors import BadRequest
from gateway.recording import ExchangeSummary
from gateway.server.admin.exchange_list import ExchangeFilter, exchange_filter, exchange_page
from gateway.server.admin.overview_model import WorkersView
from gateway.server.observability.metric_values import SharedFolder
from support.app import gateway, problem
from support.overview import CHAT
from support.upstream import HELLO
from support.worker_processes import gateway_with

WORKERS = WorkersView(1, 1)


def at(seconds):
    return f"2026-01-31T12:00:{seconds:02}.000+00:00"


ONE = ExchangeSummary(
    id="r-1", started=at(1), endpoint=CHAT, model="qwen3-8b", backend="rig", format="hermes_json", live=False, status=200,
    error=None, first_byte=0.1, duration=0.4, output_tokens=2, ledger=["dropped:stop"], entries=9, bytes=900, cut=False,
    key="ci", prompt="Find the Error", tools_called=["grep"],
)  # fmt: skip
FAILED = replace(
    ONE, id="r-2", started=at(2), status=502, error="upstream_lost", ledger=[], key="", tools_called=[], prompt=""
)
LIVE = replace(ONE, id="r-0", started=at(0), live=True, status=None, ledger=[])


def found(**query):
    page = exchange_page([ONE, FAILED, LIVE], exchange_filter(query), {("r-1", at(1))}, WORKERS)
    return [one.id for one in page.exchanges]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["r-0", "r-2", "r-1"]),
        ({"status": "live"}, ["r-0"]),
        ({"status": "error"}, ["r-2"]),
        ({"status": "2xx"}, ["r-1"]),
        ({"status": "502"}, ["r-2"]),
        ({"warning": "dropped"}, ["r-1"]),
        ({"warning": "any"}, ["r-1"]),
        ({"code": "repaired"}, []),
        ({"key": "ci", "status": "200"}, ["r-1"]),
        ({"endpoint": "/v1/responses"}, []),
        ({"backend": "rig", "model": "qwen"}, ["r-0", "r-2", "r-1"]),
        ({"backend": "other"}, []),
        ({"model": "glm"}, []),
        ({"q": " find the error"}, ["r-0", "r-1"]),
        ({"q": "GREP", "status": "200"}, ["r-1"]),
        ({"q": "upstream_lost"}, ["r-2"]),
        ({"q": "r-2"}, ["r-2"]),
        ({"since": at(1)}, ["r-2", "r-1"]),
        ({"since": "2026-01-31T13:00:02 01:00"}, ["r-2"]),
        ({"before": at(2)}, ["r-1"]),
        ({"limit": "1"}, ["r-0"]),
    ],
)
def test_exchange_list_is_filtered(query, expected):
    assert found(**query) == expected


def test_exchange_list_counts_all_and_those_that_fit():
    page = exchange_page([ONE, FAILED, LIVE], ExchangeFilter(status="error", limit=1), {("r-1", at(1))}, WORKERS)
    assert (page.total, page.matching, page.keys, page.models) == (3, 1, ["ci"], ["qwen3-8b"])
    (row,) = page.exchanges
    assert not row.kept
    assert exchange_page([ONE], ExchangeFilter(), {("r-1", at(1))}, WORKERS).exchanges[0].kept


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"limit": "²"}, {"since": "x"}, {"before": "12"}]
)
def test_exchange_list_refuses_an_invalid_filter(query):
    with pytest.raises(BadRequest) as refused:
        exchange_filter(query)
    assert refused.value.problem.param in query


async def test_exchange_list_reports_an_invalid_filter():
    async with gateway(HELLO, inspector={"enabled": True}) as site:
        answer = await site.client.get("/admin/exchanges?limit=all")
        assert problem(answer)[::3] == (400, "limit")


async def test_exchange_list_has_the_requests_of_all_workers(tmp_path):
    one, two = (SharedFolder(tmp_path / f"{number}.tally") for number in range(2))
    on = {"inspector": {"enabled": True}}
    async with gateway_with(one, **on) as first, gateway_with(two, **on) as other:
        ids = {(await site.chat()).headers["x-request-id"] for site in (first, other)}
        page = (await first.client.get("/admin/exchanges")).json()
    assert {row["id"] for row in page["exchanges"]} == ids and page["workers"]["heard"] == page["total"] == 2
    assert sorted(row["kept"] for row in page["exchanges"]) == [False, True]
