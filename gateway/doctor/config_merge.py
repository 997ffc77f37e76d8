"""Merge the findings into the text of a configuration.  All other text stays, comments included."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from gateway.config import ConfigError, ConfigFault
from gateway.doctor.report import ExaminedServer
from gateway.formats import canonical_name

_WIDTH = 1 << 16  # no existing line is wrapped


def merge_config(text: str, servers: Sequence[ExaminedServer], file: str = "") -> str:
    """Return the text of a valid configuration with the servers and models added, and with missing settings filled in.

    Existing values stay.  Raises a ConfigError with a fault for each value that differs from the findings.

    All listed models of a server are added, even those that were not examined: a backend that any model names serves
    only the models that name it.
    """
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width, yaml.preserve_quotes = _WIDTH, True
    document = yaml.load(text)
    kept = "" if document else text  # a document without data has comments at most
    document = document or CommentedMap()
    backends, models = _YamlMapping(document, "backends"), _YamlMapping(document, "models")
    conflicts = [one for server in servers if not server.failed for one in _add(server, backends, models)]
    if conflicts:
        raise ConfigError([ConfigFault(file, None, key, text) for key, text in conflicts])
    out = StringIO()
    yaml.dump(document, out)
    return kept + out.getvalue()


class _YamlMapping:
    """A mapping of the document.

    New entries go first: a comment behind the last entry may belong to the next section.
    """

    def __init__(self, document: CommentedMap, name: str) -> None:
        if document.get(name) is None:
            document[name] = CommentedMap()
        self.entries: CommentedMap = document[name]
        self._added = 0

    def add(self, key: str, entry: dict[str, Any]) -> None:
        """Insert an entry behind those added before."""
        self.entries.insert(self._added, key, entry)
        self._added += 1


def _add(server: ExaminedServer, backends: _YamlMapping, models: _YamlMapping) -> Iterator[tuple[str, str]]:
    """Add a server and its models; yield the conflicts, as a key and the existing value."""
    if server.name in backends.entries:
        _ignore(backends.entries[server.name], server.ignores)
    else:
        if len(backends.entries) == 1:
            _settle(models.entries, *backends.entries)
        key = {"api_key": server.key} if server.key else {}
        ignores = {"ignores": _flow(*server.ignores)} if server.ignores else {}
        backends.add(server.name, {"kind": server.kind, "url": server.url, **key, **ignores})
    found = {one.model: {"format": one.findings.format, "thought": one.findings.thought} for one in server.models}
    for model in dict.fromkeys((*server.listed_models, *found)):
        keys = [key for key, data in models.entries.items() if _is(key, data or {}, model, server.name)]
        for key in keys or [_new(models, model, server)]:
            yield from _learn(models.entries, key, found.get(model, {}))


def _ignore(backend: CommentedMap, names: Sequence[str]) -> None:
    """Add the fields that are not listed yet."""
    there = backend.get("ignores")
    new = [name for name in names if name not in (there or ())]
    if there is not None:
        there.extend(new)
    elif new:
        backend.insert(0, "ignores", _flow(*new))


def _settle(models: CommentedMap, only: str) -> None:
    """Write the only backend into the models that name none: it will not be the only one any more."""
    for key, data in [*models.items()]:
        if data is None:
            models[key] = {"backends": _flow(only)}
        elif not data.get("backends"):
            data["backends"] = _flow(only)


def _is(key: str, data: Mapping[str, Any], model: str, backend: str) -> bool:
    """Return True for the entry of a model at this backend.  An entry without backends belongs to the only one."""
    names = [one["name"] if isinstance(one, dict) else one for one in data.get("backends") or (backend,)]
    return (data.get("upstream_model") or key) == model and backend in names


def _new(models: _YamlMapping, model: str, server: ExaminedServer) -> str:
    """Add an entry, and return its key: the model's name if that is free, else with the server's name before it."""
    name = server.names.get(model, model)
    key = name if name not in models.entries else f"{server.name}/{name}"
    upstream = {"upstream_model": model} if key != model else {}
    models.add(key, {"backends": _flow(server.name), **upstream})
    return key


def _learn(models: CommentedMap, key: str, found: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Fill in missing settings; yield the conflicts.

    A configured format is no conflict if the server itself parsed everything.
    """
    for name, value in found.items():
        there = canonical_name((models[key] or {}).get(name) or "auto")
        if value is None or there == value or (value == "native" and there != "auto"):
            continue
        if there != "auto":
            yield (
                f"models.{key}.{name}",
                f"is {there}, but the doctor found {value}; remove the key to have that written",
            )
        elif models[key] is None:
            models[key] = {name: value}
        else:
            models[key][name] = value


def _flow(*entries: str) -> CommentedSeq:
    """Return a list in flow style, on one line."""
    flow = CommentedSeq(entries)
    flow.fa.set_flow_style()
    return flow
