"""Pages as HTML, and what a browser may do with them: run the scripts and use the styles that come from here, no more.

Whatever is put into a template is escaped.  The first page waits for the import of Jinja, as most gateways serve none.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from gateway import __version__
from gateway.formats import format_names
from gateway.server.console.document import Overview, format_duration

if TYPE_CHECKING:
    from jinja2 import Environment

_HERE = Path(__file__).parent
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_SAFE = {"x-content-type-options": "nosniff", "cross-origin-resource-policy": "same-origin"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types console"
)
# Headers of a page: it is not cached, and its links send no referrer.
HEADERS: Mapping[str, str] = MappingProxyType(
    {
        **_SAFE,
        "content-security-policy": _POLICY,
        "cross-origin-opener-policy": "same-origin",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }
)
ASSET_HEADERS: Mapping[str, str] = MappingProxyType({**_SAFE, "cache-control": "no-cache"})


def render_overview(root: str, seen: Overview | None) -> str:
    """The page `/`.  root: where the gateway is asked; seen: None for a client that has to send a key."""
    return _templates().get_template("overview.html").render(root=root, seen=seen, version=__version__)


def render_inspector() -> str:
    """The page `/inspector`, the same for everybody."""
    return _templates().get_template("inspector.html").render(formats=sorted(format_names()), version=__version__)


@cache
def assets() -> Mapping[str, tuple[bytes, str]]:
    """By name: what it is, and its type."""
    return {file.name: (file.read_bytes(), _TYPES[file.suffix]) for file in (_HERE / "assets").iterdir()}


@cache
def _templates() -> "Environment":
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - see above

    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["brief"] = format_duration
    return made
