"""Write all pages and goldens that are generated: `make regenerate`, for the diff to be read.

Tests compare the same files; costs, which are measured, are those of support/costs.py.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gateway.backends.page import page as backends_page
from gateway.formats import FORMATS, catalogue
from support import backend_requests, recorded_servers
from support.paths import ROOT


def pages() -> dict[Path, str]:
    """Return the pages of docs/ that are made from tables of the gateway."""
    docs = ROOT / "docs"
    return {docs / "backends.md": backends_page(), docs / "formats.md": catalogue.page(FORMATS)}


def goldens() -> Iterator[tuple[Path, str]]:
    """Yield the goldens of the recordings, a file for each server, and of the requests, a file for each kind."""
    for server in recorded_servers.SERVERS:
        yield recorded_servers.golden_file(server), recorded_servers.written(recorded_servers.goldens(server))
    for kind in backend_requests.KINDS:
        yield backend_requests.golden_file(kind), backend_requests.written(backend_requests.goldens(kind)) + "\n"


def main() -> None:
    for path, text in (*pages().items(), *goldens()):
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)}\n")
    subprocess.run([sys.executable, "-m", "conformance", "recordings"], check=True)


if __name__ == "__main__":
    main()
