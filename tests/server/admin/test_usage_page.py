"""Test the page of usage: its rows, its costs, its parameters and who may see it."""

from datetime import date

import pytest

from gateway.config.models import PriceSettings
from gateway.errors import BadRequest
from gateway.server.admin import routes
from gateway.server.admin.usage_page import columns_of, parse_page_query, usage_table
from gateway.store.records import UsageSums
from support.app import bearer, gateway, problem
from support.upstream import HELLO

TODAY = date(2026, 11, 27)
PRICE = PriceSettings(input=1, output=10)
DAY = (TODAY - date(1970, 1, 1)).days
OPS = "ops-and-long-enough"
AUTH = {"keys": [{"name": "ops", "key": OPS, "scopes": ["inference", "admin"]}, {"name": "ci", "key": "ci-key"}]}
KEPT = {"store": {"usage": True}}


def sums(requests=1, input=0, cached=0, output=0):
    return UsageSums(requests, input, cached, output, 500 * requests)


def table(by, rows, prices=None):
    return usage_table(*parse_page_query("7", by, TODAY), rows, prices or {})


def test_usage_page_shows_thirty_days_by_key_unless_told_otherwise():
    days, query = parse_page_query(None, None, TODAY)
    assert (days, str(query.since), str(query.until), query.by) == (30, "2026-10-29", "2026-11-27", ("key",))
    assert columns_of(query) == ("key", "model")
    assert columns_of(parse_page_query("7", "model", TODAY)[1]) == ("model",)


@pytest.mark.parametrize(("days", "by", "param"), [("8", None, "days"), ("x", "key", "days"), ("7", "owner", "by")])
def test_usage_page_refuses_other_parameters(days, by, param):
    with pytest.raises(BadRequest) as caught:
        parse_page_query(days, by, TODAY)
    assert caught.value.problem.param == param


def test_usage_page_sums_models_and_puts_the_largest_output_first():
    rows = [
        (("ann", "a"), sums(2, 10, 0, 5)),
        (("ann", "b"), sums(1, 1, 0, 5)),
        (("bob", "a"), sums(1, 7, 0, 40)),
        (("", "a"), sums(1)),
    ]
    found = table("key", rows)
    shown = [(line.name, line.sums.requests, line.sums.output_tokens, line.share) for line in found.lines]
    assert shown == [("bob", 1, 40, 100), ("ann", 3, 10, 25), ("–", 1, 0, 0)]
    assert (found.total.sums.requests, found.total.sums.milliseconds, found.priced) == (5, 2500, False)
    assert {line.cost for line in [*found.lines, found.total]} == {None}


def test_usage_page_shows_the_newest_day_first():
    found = table("day", [((DAY - 1, "a"), sums(output=9)), ((DAY, "a"), sums(output=1))])
    assert [line.name for line in found.lines] == ["2026-11-27", "2026-11-26"]


def test_usage_page_applies_the_prices_of_models():
    rows = [(("ann", "a"), sums(1, 2_000_000, 500_000, 100_000)), (("ann", "b"), sums()), (("bob", "b"), sums())]
    found = table("key", rows, {"a": PRICE})
    assert [(line.name, line.cost) for line in found.lines] == [("ann", 3), ("bob", None)]
    assert (found.total.cost, found.priced, found.unpriced) == (3, True, ["b"])
    cheaper = PriceSettings(input=1, output=10, cached=0)
    assert table("key", rows, {"a": cheaper}).total.cost == 2.5


def test_usage_page_sums_the_rows_behind_two_hundred():
    prices = {"a": PRICE}
    rows = [((f"k{n:03}", "a" if n == 201 else "b"), sums(1, 0, 0, 1000 - n)) for n in range(203)]
    lines = table("key", rows, prices).lines
    assert (len(lines), lines[-1].name, lines[-1].sums.requests) == (201, "3 more", 3)
    assert lines[-1].cost == pytest.approx(799 * 10 / 1e6)


def test_usage_page_escapes_names():
    text = routes.render_usage(table("key", [(("<b>", "<i>"), sums())], {"a": PRICE}))
    assert "&lt;b&gt;" in text and "<b>" not in text and "Without a price: &lt;i&gt;." in text


async def test_usage_page_has_the_requests_of_the_store():
    async with gateway(HELLO, model={"price": {"input": 100_000, "output": 1_000_000}}, **KEPT) as site:
        assert "No request of these days is over." in (await site.client.get("/usage")).text
        await site.chat()
        text = (await site.client.get("/usage?by=model&days=7")).text
        assert '<th scope="row">m</th>' in text and '<td class="r">2.70</td>' in text
        assert 'href="/usage?days=7&amp;by=day"' in text and 'aria-current="page">Usage' in text
        assert problem(await site.client.get("/usage?days=1"))[::3] == (400, "days")


async def test_usage_page_says_how_to_keep_usage():
    async with gateway(HELLO) as site:
        answer = await site.client.get("/usage")
    assert answer.status_code == 200 and "No usage is kept" in answer.text and "url: sqlite" in answer.text


async def test_usage_page_asks_for_a_key_of_the_scope_admin():
    async with gateway(HELLO, auth=AUTH, **KEPT) as site:
        prompt = await site.client.get("/usage")
        assert prompt.status_code == 200 and 'id="key-form"' in prompt.text
        assert 'href="/usage" aria-current="page"' in prompt.text
        assert (await site.client.get("/usage", headers=bearer("ci-key"))).status_code == 403
        assert "Table of usage" in (await site.client.get("/usage", headers=bearer(OPS))).text
