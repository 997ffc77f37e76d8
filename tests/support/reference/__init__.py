"""Generate the reference pages of the documentation from the code."""

from support.paths import ROOT
from support.reference import cli, configuration, errors, http_api, metrics, schema, warnings

_DOCS = ROOT / "docs/reference"
# The function that returns the text of each file: the pages, and the JSON schema of the configuration.
GENERATORS = {
    schema.FILE: schema.written,
    _DOCS / "cli.md": cli.page,
    _DOCS / "configuration.md": configuration.page,
    _DOCS / "errors.md": errors.page,
    _DOCS / "http-api.md": http_api.page,
    _DOCS / "metrics.md": metrics.page,
    _DOCS / "warnings.md": warnings.page,
}
