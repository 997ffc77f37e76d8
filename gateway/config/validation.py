"""Convert a document to a Config: check the schema and the links between sections, and explain all errors.

explanation.py has the words.  Each fault has one message: the faults that it causes are left out.
"""

import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Protocol, get_args
from urllib.parse import urlsplit

from pydantic import ValidationError

from gateway.config.auth import AuthSettings
from gateway.config.backends import KindName
from gateway.config.document import ConfigDocument
from gateway.config.errors import ConfigError, KeyPath, dotted_path
from gateway.config.explanation import (
    closest,
    explain_schema_error,
    independent_errors,
    mapping_error,
    nearest_name,
)
from gateway.config.schema import Config, ServerSettings

# The names of the format that the model's own template describes.
TEMPLATE_FORMATS = ("response_template", "hf", "beam")
_SECTIONS = Config.known_keys()
_HERE = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")  # a server on the last two has the others as well
PathError = tuple[KeyPath, str]  # the path of a wrong value, and the text of the error
# The value with the contents of the files that it names, and its errors by their paths below its key.
CheckedValue = tuple[object, Sequence[PathError]]
# Yields the name and the fault of each wrong parameter, for a model at backends of these kinds.
ParameterCheck = Callable[[Mapping[str, Any], Collection[str]], Iterable[tuple[str, str]]]


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


def _no_check(_: Mapping[str, Any], __: Collection[str]) -> Iterable[tuple[str, str]]:
    return ()


def build_config(
    document: ConfigDocument,
    formats: Collection[str],
    flags: Mapping[str, object] | None = None,
    files: ConfigFiles = AS_WRITTEN,
    check_parameters: ParameterCheck = _no_check,
) -> Config:
    """Return the configuration in a document.

    formats: the valid names for `models.*.format`.
    flags: keys of `server` that the command line sets; they override the document.  None: not set.
    files: reads the files that the configuration names.
    check_parameters: finds the faults of `models.*.defaults` and `models.*.overrides`.

    Raises a ConfigError with all faults, those of the document included, in the order of their lines.
    """
    data = _with_flags(document, flags or {})
    faulty_keys = {fault.key for fault in document.faults}
    for path, text in chain(_link_errors(data), _parameter_errors(data, check_parameters)):
        if dotted_path(path) not in faulty_keys:
            document.add_error(path, text)
    data = _with_tls(document, _with_templates(document, data, files), files)
    config = None
    try:
        config = Config.model_validate(
            _with_only_backend(data), context={"formats": formats}, by_alias=True, by_name=False
        )
    except ValidationError as error:
        known = {fault.key for fault in document.faults}
        for detail in independent_errors(error.errors(include_url=False), known, document.written):
            document.add_error(*explain_schema_error(detail, document.written, formats))
    if document.faults or config is None:
        raise ConfigError(sorted(document.faults, key=lambda fault: fault.line or 0))
    return config


def is_exposed(server: ServerSettings, auth: AuthSettings) -> bool:
    """Return True if other machines can connect without a key, and the configuration does not allow that."""
    return not (auth.needs_key or auth.open or is_loopback(server.host))


def has_open_pages(config: Config) -> bool:
    """Return True if clients without a key may see the pages: on a loopback address, or with the inspector."""
    return not config.auth.needs_key and (is_loopback(config.server.host) or config.inspector.enabled)


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches an address.  A name other than localhost may mean any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _with_flags(document: ConfigDocument, flags: Mapping[str, object]) -> dict[str, Any]:
    data = document.data
    if not isinstance(data, dict):
        document.add_error((), mapping_error((), data))
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


def _with_only_backend(data: dict[str, Any]) -> dict[str, Any]:
    """Fill in the only backend for models that name none."""
    backends, models = _mapping(data, "backends"), _mapping(data, "models")
    if len(backends) != 1 or not models:
        return data
    only = {"backends": list(backends)}
    filled = {name: {**(model or {}), **only} if _names_no_backend(model) else model for name, model in models.items()}
    return {**data, "models": filled}


def _link_errors(data: dict[str, Any]) -> Iterator[PathError]:
    """Yield errors between the sections.  The data may have any shape: the schema has not checked it yet."""
    models, backends = _mapping(data, "models"), _mapping(data, "backends")
    readable = bool(backends) or not _misses_backends(data)
    servers = _mapping(_mapping(_mapping(data, "tools"), "mcp"), "servers")
    for name, model in models.items():
        if readable:
            yield from _target_errors(model, ("models", name), backends)
        yield from _template_errors(model, ("models", name))
        yield from _fallback_errors(name, model, models)
        yield from _mcp_server_errors(name, model, servers)
    yield from _cache_errors(backends)
    yield from _alias_errors(models)
    yield from _exposure_errors(data)
    yield from _stored_key_errors(data)
    yield from _group_errors(data)
    yield from _header_errors(data)
    yield from _readiness_errors(data)
    yield from _own_address_errors(_mapping(data, "server"), backends)


def _misses_backends(data: dict[str, Any]) -> bool:
    """Return True if the section of the backends has another name or form, which is a fault of its own."""
    return bool(data.get("backends")) or any(closest(name, ["backends"]) for name in data if name not in _SECTIONS)


def _cache_errors(backends: Mapping[str, object]) -> Iterator[PathError]:
    """Yield an error for each backend whose API has no points of the prompt cache to set."""
    for name in backends:
        backend = _mapping(backends, name)
        if backend.get("cache") == "auto" and backend.get("kind") != "anthropic":
            yield ("backends", name, "cache"), "only backends of kind 'anthropic' take 'auto'; remove this key"


def _target_errors(model: object, path: KeyPath, backends: Collection[str]) -> Iterator[PathError]:
    if _names_no_backend(model) and len(backends) != 1:
        right = f"add backends: […], {nearest_name('', backends)}" if backends else "add a backend to backends first"
        yield path, f"names no backend; {right}"
    path = (*path, "backends")
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


def _fallback_errors(name: str, model: object, models: Collection[str]) -> Iterator[PathError]:
    others = [other for other in models if other != name]
    for index, entry in enumerate(_list(model, "fallback")):
        other = entry.get("model") if isinstance(entry, dict) else entry
        if isinstance(other, str) and other not in others:
            yield ("models", name, "fallback", index), f"unknown other model {other!r}; {nearest_name(other, others)}"


def _mcp_server_errors(name: str, model: object, servers: Collection[str]) -> Iterator[PathError]:
    for index, label in enumerate(_list(model, "mcp")):
        if isinstance(label, str) and label not in servers:
            yield (
                ("models", name, "mcp", index),
                f"unknown server {label!r} in tools.mcp.servers; {nearest_name(label, servers)}",
            )


def _template_errors(model: object, path: KeyPath) -> Iterator[PathError]:
    given = model if isinstance(model, dict) else {}
    wanted, there = given.get("format") in TEMPLATE_FORMATS, given.get("response_template") is not None
    if wanted and not there:
        yield (*path, "format"), "needs the key response_template: a template, or the path of a file that contains one"
    if there and not wanted:
        yield (*path, "response_template"), "requires format: response_template"


def _parameter_errors(data: dict[str, Any], check: ParameterCheck) -> Iterator[PathError]:
    for name, model in _mapping(_with_only_backend(data), "models").items():
        kinds = [*_kinds(_mapping(data, "backends"), _list(model, "backends"))]
        defaults, overrides = _mapping(model, "defaults"), _mapping(model, "overrides")
        for key, parameters in (("defaults", defaults), ("overrides", overrides)):
            for parameter, text in check(parameters, kinds):
                yield ("models", name, key, parameter), text
        for parameter in defaults.keys() & overrides.keys():
            yield ("models", name, "defaults", parameter), "is also in overrides, which apply always; remove one"


def _kinds(backends: Mapping[str, Any], targets: Collection[object]) -> Iterator[str]:
    """Yield the valid kinds of a model's backends."""
    for target in targets:
        found = backends.get(str(target.get("name") if isinstance(target, dict) else target))
        kind = (found.get("kind") or "openai") if isinstance(found, dict) else None
        if kind in get_args(KindName):
            yield str(kind)


def _alias_errors(models: Mapping[str, object]) -> Iterator[PathError]:
    owners = {name: name for name in models}
    for name, model in models.items():
        for index, alias in enumerate(entry for entry in _list(model, "aliases") if isinstance(entry, str)):
            if alias in owners:
                yield ("models", name, "aliases", index), f"{alias!r} is already a name of model {owners[alias]!r}"
            owners.setdefault(alias, name)


def _exposure_errors(data: dict[str, Any]) -> Iterator[PathError]:
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


def _stored_key_errors(data: dict[str, Any]) -> Iterator[PathError]:
    """Yield an error for stored keys without a named database: the default one depends on the working directory."""
    if _mapping(data, "auth").get("stored_keys") is True and not _mapping(data, "store").get("url"):
        yield ("auth", "stored_keys"), "requires store.url, the database with the keys"


def _group_errors(data: dict[str, Any]) -> Iterator[PathError]:
    """Yield an error for each key of a group without budgets, which would have no limit."""
    auth = _mapping(data, "auth")
    groups = _mapping(auth, "groups")
    for index, key in enumerate(_list(auth, "keys")):
        group = key.get("group") if isinstance(key, dict) else None
        if isinstance(group, str) and group not in groups:
            yield ("auth", "keys", index, "group"), f"unknown group {group!r}; {nearest_name(group, groups)}"


def _header_errors(data: dict[str, Any]) -> Iterator[PathError]:
    """Yield an error for users of a proxy without a trusted proxy: any client could send the header."""
    if _mapping(data, "auth").get("header") and not _list(_mapping(data, "server"), "forwarded_allow_ips"):
        yield ("auth", "header"), "requires server.forwarded_allow_ips, the addresses of the proxy"


def _readiness_errors(data: dict[str, Any]) -> Iterator[PathError]:
    """Yield an error for a check of a Redis that the gateway does not use."""
    for index, name in enumerate(_list(_mapping(data, "server"), "ready")):
        if name == "redis" and not _mapping(data, "limits").get("url"):
            yield ("server", "ready", index), "'redis' requires limits.url; remove it, or set limits.url"


def _own_address_errors(server: dict[str, Any], backends: Mapping[str, object]) -> Iterator[PathError]:
    """Yield an error for each backend that is the gateway itself, which would call itself for ever."""
    own = _comparable_host(server.get("host") or ServerSettings().host), str(server.get("port", ServerSettings().port))
    for name, backend in backends.items():
        url = backend.get("url") if isinstance(backend, dict) else None
        if isinstance(url, str) and _host_and_port(url) == own:
            yield (
                ("backends", name, "url"),
                f"is the gateway's own address (server.port {own[1]}); write the address of the model server",
            )


def _host_and_port(url: str) -> tuple[str, str]:
    """Return the host and port of a URL; empty for another text."""
    try:
        parts = urlsplit(url)
        return _comparable_host(parts.hostname or ""), str(parts.port or {"https": 443}.get(parts.scheme, 80))
    except ValueError:
        return "", ""


def _comparable_host(host: object) -> str:
    """Return `here` for each usual address of this machine itself."""
    return "here" if host in _HERE else str(host)


def _names_no_backend(model: object) -> bool:
    return model is None or (isinstance(model, dict) and not model.get("backends"))


def _mapping(data: object, key: str) -> dict[str, Any]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}


def _list(data: object, key: str) -> list[Any]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, list) else []
