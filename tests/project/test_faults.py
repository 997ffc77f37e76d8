"""Test each row of the fault matrix and the page that shows it."""

import asyncio
import logging
import re

import pytest
import uvloop
from starlette.requests import Request

from faults import matrix, page, rows, ways

CASES = [pytest.param(cells, row, id=row.name) for all, cells, _ in page.SECTIONS.values() for row in all]


@pytest.fixture
def unlogged():
    """Disable logging, as pytest keeps log records with their exceptions and frames."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("unlogged")
@pytest.mark.parametrize(("cells", "row"), CASES)
def test_fault_row_has_its_outcome_and_leaves_nothing_behind(cells, row):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(cells(row))
    assert not {name: str(cell) for name, cell in found.items() if cell.wrong}


class Leaking:
    """An endpoint that calls `leak` with each request before it answers."""

    def __init__(self, endpoint, leak, kept):
        self._endpoint, self._leak, self._kept = endpoint, leak, kept

    async def __call__(self, scope, receive, send):
        self._leak(scope, self._kept)
        await self._endpoint(scope, receive, send)


def keeps_the_request(scope, kept):
    kept.append(Request(scope))


def keeps_a_text(scope, kept):
    kept.append(scope["path"])


def makes_a_cycle(scope, kept):
    scope["of"] = Request(scope)


@pytest.mark.parametrize(
    ("leak", "found"),
    [
        (keeps_the_request, "1 starlette.requests.Request became 3"),
        (keeps_a_text, r"\d+ builtins.str became \d+"),
        (makes_a_cycle, "1 starlette.requests.Request became 3, until they are collected"),
    ],
)
async def test_fault_cell_fails_if_memory_leaks(leak, found):
    async with matrix.site_of({}) as site:
        way, row = ways.Chat(streamed=True), rows.NO_ANSWER[2]
        assert (await matrix.cell(row, way, site)).wrong == ()
        kept = site.app.state.kept = []
        site.app.model_endpoints["/v1/chat/completions"] = Leaking(
            site.app.model_endpoints["/v1/chat/completions"], leak, kept
        )
        assert [one for one in (await matrix.cell(row, way, site)).wrong if re.fullmatch(found, one)]


def test_fault_page_has_every_row_and_no_failure():
    text = page.FILE.read_text("utf-8")
    assert text.startswith(page.HEAD), "make faults"
    assert re.findall(r"^\| ([^|]+) \|", text, re.MULTILINE) == page.names(), "make faults"
    assert "**" not in text and "LATE" not in text
