"""Check what the README and the description of the package show: the same stream of a real server, before and after."""

import json
import re

import pytest

from support.paths import ROOT
from support.pipeline import payloads
from support.recorded_servers import EXCHANGES, replay

STREAM = "transformers/tools_auto_stream"
PAGES = ["README.md", "deploy/pypi.md"]
# Row of the README: row of the performance page.
MEASURED = {
    "CPU of a whole response, 32 at a time ²": "whole answer, 32 at a time: CPU",
    "CPU of a line in a burst ²": "burst, native text: CPU",
    "Memory at rest ²": "idle: memory",
}


def shown(page):
    """Return the choices of a page: of the server, and of the gateway; None stands for any that are left out."""
    blocks = re.findall(r"^```json\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.M | re.S)
    return [[None if line == "…" else json.loads(line) for line in block.splitlines()] for block in blocks]


def choices(data):
    """Return the choices of a stream."""
    return [choice for payload in payloads(data) for choice in payload["choices"]]


def in_order(lines, stream):
    """Return True if the stream has these choices one after the other, with more of them only where None stands."""
    rest, skips = iter(stream), True  # the first choice has the role
    for line in lines:
        if line is None:
            skips = True
            continue
        found = next((i for i, choice in enumerate(rest) if line.items() <= choice.items()), None)
        if found is None or (found and not skips):
            return False
        skips = False
    return next(rest, None) is None


@pytest.mark.parametrize("page", PAGES)
def test_readme_shows_the_stream_of_a_server_before_and_after(page):
    before, after = shown(page)
    assert in_order(before, choices(EXCHANGES[STREAM].body))
    assert in_order(after, choices(replay(STREAM).data))
    assert not in_order(before, choices(replay(STREAM).data)), "the repair is what the page shows"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_readme_of_the_package_has_no_links_into_the_repository():
    links = re.findall(r"\]\(([^)]*)\)", (ROOT / "deploy/pypi.md").read_text("utf-8"))
    assert all(link.startswith("https://") for link in links)


@pytest.mark.parametrize(("row", "measured"), MEASURED.items())
def test_readme_has_the_figures_of_the_performance_page(row, measured):
    lines = json.loads((ROOT / "docs/explanation/performance.json").read_text("utf-8"))["lines"]
    (found,) = (line for line in lines if line["name"] == measured)
    values = [found["values"][program] for program in ("gateway", "LiteLLM", "smg")]
    unit = found["unit"].partition("/")[0]
    cells = [f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}" for value in values]
    assert f"| {' | '.join([row, *cells])} |" in (ROOT / "README.md").read_text("utf-8")
