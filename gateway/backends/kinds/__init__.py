"""The kinds of servers, one file each, with the `ROW` of the kind.  The name of the file is the name of the kind."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType

from gateway.backends.kind import Kind
from gateway.backends.kind_row import KindRow


def _rows() -> Iterator[tuple[str, KindRow]]:
    for module in iter_modules(__path__):
        yield module.name, import_module(f"{__name__}.{module.name}").ROW


ROWS: Mapping[str, KindRow] = MappingProxyType(dict(sorted(_rows(), key=lambda row: row[1].position)))
KINDS: Mapping[str, Kind] = MappingProxyType({name: row.kind for name, row in ROWS.items()})
