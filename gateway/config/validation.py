"""Convert a document to a Config: check the schema and the links between sections, and explain all errors.

Each message says which value is right.  Messages show no secrets and no variables.
"""

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, Protocol, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.config.document import ConfigDocument
from gateway.config.errors import ConfigError, KeyPath
from gateway.config.schema import AuthSettings, Config, ServerSettings
from gateway.config.types import SettingsSection

_MAPPING = "should be a mapping, one `key: value` per line"
_WORDS = {
    "bool_parsing": "should be true or false",
    "bool_type": "should be true or false",
    "dict_type": _MAPPING,
    "finite_number": "should be finite; 0 means no limit",
    "float_parsing": "should be a number",
    "float_type": "should be a number",
    "greater_than": "should be more than {gt}",
    "greater_than_equal": "should be {ge} or more",
    "int_from_float": "should be a whole number",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "less_than_equal": "should be {le} or less",
    "missing": "is missing",
    "model_type": _MAPPING,
    "string_too_short": "should not be empty",
    "string_type": "should be a string; write it in quotes",
    "too_short": "should have at least one entry",
    "tuple_type": "should be a list, one `- entry` per line",
    "wrong": "{text}",
}
_SHOWN = {"bool_parsing", "float_parsing", "greater_than_equal", "int_from_float", "int_parsing", "less_than_equal"}
_MANY = 16
BROUGHT = ("response_template", "hf", "beam")  # the names of the format that the model's own template describes
# The value with the contents of the files that it names, and its faults by the path below its key.
CheckedValue = tuple[object, Sequence[tuple[KeyPath, str]]]


def explain_schema_error(
    detail: ErrorDetails, written: Mapping[KeyPath, str], formats: Iterable[str]
) -> tuple[KeyPath, str]:
    """Return the path of a schema error and its explanation.

    written: the original texts of values with variables, which replace the values in the explanation.
    """
    path = tuple(step for step in detail["loc"] if step != "[key]")
    value = written.get(path, detail["input"])
    kind = detail["type"]
    if kind == "extra_forbidden":
        return path, f"unknown key; {nearest_name(str(path[-1]), _keys_beside(path))}"
    if kind == "format":
        return path, f"unknown format {value!r}; {nearest_name(str(value), _ordered(formats))}"
    if kind == "literal_error":
        return path, f"unknown value {value!r}; one of: {detail['ctx']['expected']}"
    text = _WORDS[kind].format(**detail.get("ctx", {})) if kind in _WORDS else detail["msg"]
    return path, f"{text}, not {value!r}" if kind in _SHOWN else text


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return a text that suggests the nearest known name and lists the known names."""
    names = list(known)
    if not names:
        return "none is configured"
    nearest = get_close_matches(name, names, 1)
    more = ", …" if len(names) > _MANY else ""
    listed = f"one of: {', '.join(islice(names, _MANY))}{more}"
    return f"did you mean {nearest[0]!r}? {listed}" if nearest else listed


def _ordered(formats: Iterable[str]) -> list[str]:
    return sorted(formats, key=lambda name: (name not in ("auto", "native"), name))


def _keys_beside(path: KeyPath) -> Collection[str]:
    """Return the keys of the section that contains the last step of a path."""
    kind: object = Config
    for step in path[:-1]:
        if isinstance(kind, type) and issubclass(kind, SettingsSection):
            names = {field.serialization_alias or name: field.annotation for name, field in kind.model_fields.items()}
            kind = names[str(step)]
        else:
            kind = _section(kind)
    return _section(kind).known_keys()


def _section(kind: object) -> type[SettingsSection]:
    """Return the section class that a type is or contains."""
    return next(arg for arg in (kind, *get_args(kind)) if isinstance(arg, type) and issubclass(arg, SettingsSection))


class ConfigFiles(Protocol):
    """The contents of the files that a configuration names."""

    def template(self, given: object) -> CheckedValue:
        """Return a model's `response_template`, read from its file if it is a path."""

    def tls(self, given: Mapping[str, Any]) -> CheckedValue:
        """Return the section `server.tls` with its paths resolved."""


class _UncheckedFiles:
    """A ConfigFiles that reads no files and finds no faults."""

    def template(self, given: object) -> CheckedValue:
        """Return the value as it is."""
        return given, ()

    def tls(self, given: Mapping[str, Any]) -> CheckedValue:
        """Return the value as it is."""
        return given, ()


AS_WRITTEN = _UncheckedFiles()


def build_config(
    document: ConfigDocument,
    formats: Collection[str],
    flags: Mapping[str, object] | None = None,
    files: ConfigFiles = AS_WRITTEN,
) -> Config:
    """Return the configuration in a document.

    formats: the valid names for `models.*.format`.
    flags: keys of `server` that the command line sets; they override the document.  None: not set.
    files: reads the files that the configuration names.

    Raises a ConfigError with all faults, those of the document included, in the order of their lines.
    """
    data = _with_flags(document, flags or {})
    for path, text in _links(data):
        document.add_error(path, text)
    data = _with_tls(document, _with_templates(document, data, files), files)
    config = None
    try:
        config = Config.model_validate(_completed(data), context={"formats": formats}, by_alias=True, by_name=False)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            document.add_error(*explain_schema_error(detail, document.written, formats))
    if document.faults or config is None:
        raise ConfigError(sorted(document.faults, key=lambda fault: fault.line or 0))
    return config


def is_exposed(server: ServerSettings, auth: AuthSettings) -> bool:
    """Return True if other machines can connect without a key, and the configuration does not allow that."""
    return not (auth.keys or auth.open or is_loopback(server.host))


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches an address.  A name other than localhost may mean any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _with_flags(document: ConfigDocument, flags: Mapping[str, object]) -> dict[str, Any]:
    data = document.data
    if not isinstance(data, dict):
        document.add_error((), _MAPPING)
        data = {}
    given = {name: value for name, value in flags.items() if value is not None}
    server = data.get("server") or {}
    if not given or not isinstance(server, dict):
        return data
    document.flags |= {("server", name): f"--{name}" for name in given}
    return {**data, "server": {**server, **given}}


def _with_templates(document: ConfigDocument, data: dict[str, Any], files: ConfigFiles) -> dict[str, Any]:
    found = {}
    for name, model in _mapping(data, "models").items():
        if isinstance(model, dict) and model.get("response_template") is not None:
            template, faults = files.template(model["response_template"])
            for path, text in faults:
                document.add_error(("models", name, "response_template", *path), text)
            found[name] = {**model, "response_template": template}
    return {**data, "models": {**data["models"], **found}} if found else data


def _with_tls(document: ConfigDocument, data: dict[str, Any], files: ConfigFiles) -> dict[str, Any]:
    server = _mapping(data, "server")
    if not isinstance(server.get("tls"), dict):
        return data
    found, faults = files.tls(server["tls"])
    for path, text in faults:
        document.add_error(("server", "tls", *path), text)
    return {**data, "server": {**server, "tls": found}}


def _completed(data: dict[str, Any]) -> dict[str, Any]:
    """Fill in the only backend for models that name none."""
    backends, models = _mapping(data, "backends"), _mapping(data, "models")
    if len(backends) != 1 or not models:
        return data
    only = {"backends": list(backends)}
    filled = {name: {**(model or {}), **only} if _homeless(model) else model for name, model in models.items()}
    return {**data, "models": filled}


def _links(data: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    """Yield errors between the sections.  The data may have any shape: the schema has not checked it yet."""
    models = _mapping(data, "models")
    backends = _mapping(data, "backends")
    servers = _mapping(_mapping(_mapping(data, "tools"), "mcp"), "servers")
    for name, model in models.items():
        if _homeless(model) and len(backends) != 1:
            yield ("models", name), f"names no backend; {nearest_name('', backends)}"
        yield from _targets(model, ("models", name, "backends"), backends)
        yield from _template(model, ("models", name))
        yield from _fallbacks(name, model, models)
        yield from _servers(name, model, servers)
    yield from _aliases(models)
    yield from _exposure(data)


def _targets(model: object, path: KeyPath, backends: Collection[str]) -> Iterator[tuple[KeyPath, str]]:
    seen: set[str] = set()
    for index, entry in enumerate(_list(model, "backends")):
        name = entry.get("name") if isinstance(entry, dict) else entry
        if not isinstance(name, str):
            continue
        if name not in backends:
            yield (*path, index), f"unknown backend {name!r}; {nearest_name(name, backends)}"
        if name in seen:
            yield (*path, index), f"backend {name!r} is listed twice"
        seen.add(name)


def _fallbacks(name: str, model: object, models: Collection[str]) -> Iterator[tuple[KeyPath, str]]:
    others = [other for other in models if other != name]
    for index, entry in enumerate(_list(model, "fallback")):
        other = entry.get("model") if isinstance(entry, dict) else entry
        if isinstance(other, str) and other not in others:
            yield ("models", name, "fallback", index), f"unknown other model {other!r}; {nearest_name(other, others)}"


def _servers(name: str, model: object, servers: Collection[str]) -> Iterator[tuple[KeyPath, str]]:
    for index, label in enumerate(_list(model, "mcp")):
        if isinstance(label, str) and label not in servers:
            yield (
                ("models", name, "mcp", index),
                f"unknown server {label!r} in tools.mcp.servers; {nearest_name(label, servers)}",
            )


def _template(model: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    given = model if isinstance(model, dict) else {}
    wanted, there = given.get("format") in BROUGHT, given.get("response_template") is not None
    if wanted and not there:
        yield (*path, "format"), "needs the key response_template: a template, or the path of a file that contains one"
    if there and not wanted:
        yield (*path, "response_template"), "requires format: response_template"


def _aliases(models: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    owners = {name: name for name in models}
    for name, model in models.items():
        for index, alias in enumerate(entry for entry in _list(model, "aliases") if isinstance(entry, str)):
            if alias in owners:
                yield ("models", name, "aliases", index), f"{alias!r} is already a name of model {owners[alias]!r}"
            owners.setdefault(alias, name)


def _exposure(data: dict[str, Any]) -> Iterator[tuple[KeyPath, str]]:
    try:
        server = ServerSettings.model_validate({"host": _mapping(data, "server").get("host")})
        auth = AuthSettings.model_validate(data.get("auth"))
    except ValidationError:
        return  # the schema check reports their faults
    if is_exposed(server, auth):
        yield (
            ("server", "host"),
            f"on {server.host} other machines could use the gateway without a key; "
            "set auth: {keys: […]}, or auth: {open: true} to admit every client, or listen on 127.0.0.1",
        )


def _homeless(model: object) -> bool:
    return model is None or (isinstance(model, dict) and not model.get("backends"))


def _mapping(data: object, key: str) -> dict[str, Any]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _list(data: object, key: str) -> list[Any]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, list) else []
