"""Write all generated pages and goldens: `make regenerate`, for the diff to be read.

Tests compare the same files.  Costs are measured: support/costs.py writes them.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from clients.pages import CLIENTS_PAGE
from conformance import __main__ as conformance
from conformance import page
from conformance.parts import recordings
from gateway.backends import KINDS
from gateway.backends.docs_page import kinds_page as backends_page
from gateway.formats import FORMATS, docs_page
from gateway.launch import CLIENTS
from gateway.launch.docs_page import clients_page
from support import backend_requests, recorded_servers, reference
from support.paths import ROOT


def pages() -> dict[Path, str]:
    """Return the pages that are made from tables of the gateway, and from results of the conformance tests."""
    docs = ROOT / "docs/reference"
    return {
        docs / "backends.md": backends_page(),
        ROOT / CLIENTS_PAGE: clients_page(CLIENTS),
        docs / "formats.md": docs_page.formats_page(FORMATS),
        docs / "conformance.md": page.page(page.read()),
    }


def goldens() -> Iterator[tuple[Path, str]]:
    """Yield the goldens of the recordings, a file for each server, and of the requests, a file for each kind."""
    for server in recorded_servers.SERVERS:
        yield recorded_servers.golden_file(server), recorded_servers.written(recorded_servers.goldens(server))
    for kind in KINDS:
        yield backend_requests.golden_file(kind), backend_requests.written(backend_requests.goldens(kind)) + "\n"


def main() -> None:
    """Write all generated files that differ."""
    _write(goldens())
    known = {name: value for name, value in page.read()["recordings"].items() if name != "date"}
    if known != recordings():  # this compares the goldens
        conformance.ran("recordings")  # sets today's date
    _write(pages().items())
    _write((path, generate()) for path, generate in reference.GENERATORS.items())


def _write(files: Iterable[tuple[Path, str]]) -> None:
    for path, text in files:
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
