"""The command `gateway doctor`: choose the servers to examine, and report or write the findings."""

import asyncio
import json
import logging
import os
import shlex
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

import typer
from msgspec import Struct

from gateway import config, formats
from gateway.backends.model_metadata import ModelMetadata
from gateway.cli.doctor_runner import ModelExaminer
from gateway.config import Config, ConfigDocument, ConfigError, ConfigFault, KindName, UnreadableFile, build_config
from gateway.doctor.checks import is_missing, run_checks
from gateway.doctor.config_merge import merge_config
from gateway.doctor.probe_requests import PROBE_REQUESTS
from gateway.doctor.report import ExaminedModel, ExaminedServer, report_json, report_table
from gateway.errors import GatewayError
from gateway.server.process.config_files import read_text
from gateway.server.process.config_source import ConfigSource, NoServerFound, has_content, read_config
from gateway.server.upstream import model_registry
from gateway.server.upstream.backend import Backend
from gateway.server.upstream.discovery import PORTS, DiscoveredServer, discover, discovered_config, identify
from gateway.server.upstream.model_registry import BackendRoute, unknown_model_error

_ANSWER_SECONDS = 120.0  # for one response
_NO_SUCH = "The server does not list this model."
_ANY_PORT = {"port": 0}  # no gateway runs, so no server can be the gateway itself
_ONLY_EMBEDDINGS = frozenset(("embeddings",))


class DoctorOptions(Struct, frozen=True, kw_only=True):
    """The options of the command.

    url: the one server to examine; None: the backends of the file, or all servers on this machine.
    kind: the kind of that server; None: detect it.
    models: the model names at the server; empty: all.
    key: the environment variable with the server's API key.
    file: a configuration file; with `write` it may be missing.
    write: write the findings to the file.
    seconds: for the whole examination.
    only: names of the verdicts that count; empty: all.
    """

    url: str | None = None
    kind: str | None = None
    models: tuple[str, ...] = ()
    key: str | None = None
    file: Path | None = None
    write: bool = False
    seconds: float = 900.0
    only: tuple[str, ...] = ()


def examine_servers(options: DoctorOptions, out: TextIO, ports: Mapping[int, KindName] = PORTS) -> list[ExaminedServer]:
    """Examine the servers and return the findings.

    out: the stream for the progress bar.
    ports: the ports to search on this machine, with the kind of server at each.

    Raises ConfigError or NoServerFound.
    """
    logging.getLogger("gateway").addHandler(logging.NullHandler())  # the verdicts report each failure once
    file = options.file
    known = read_config(file) if file and not (options.write and _is_blank(file)) else Config()
    return asyncio.run(_examine_all(options, known, out, ports))


def _is_blank(file: Path) -> bool:
    """Return True for a file without a configuration yet, which `--write` may fill."""
    try:
        return not (file.exists() and has_content(read_text(file)))
    except UnreadableFile:
        return False  # reading it as a configuration says why


def report_result(servers: Sequence[ExaminedServer], options: DoctorOptions, *, as_json: bool) -> int:
    """Print the findings, write them to the file with `write`, and return the exit code.  Raises ConfigError."""
    typer.echo(_report_text(servers, as_json=as_json))
    if options.file and options.write:
        _write(options.file, servers)
        typer.echo(f"Written to {options.file}.  Start the gateway:\n\n  {start_command(options.file)}\n", err=True)
    return 0 if all(server.well for server in servers) else 1


def start_command(file: Path, here: Path | None = None) -> str:
    """Return the command that serves a configuration file.  here: the current directory."""
    option = "" if file.absolute() == (here or Path.cwd()) / "gateway.yaml" else f" --config {shlex.quote(str(file))}"
    return f"gateway serve{option}"


def _report_text(servers: Sequence[ExaminedServer], *, as_json: bool) -> str:
    """Return the findings and their configuration as text."""
    block = merge_config("", servers) if not all(server.failed for server in servers) else ""
    if as_json:
        return json.dumps({"servers": report_json(servers), "config": block}, ensure_ascii=False, indent=2)
    head = "\n\n# For the gateway's configuration; --write adds it to the file.\n"
    return report_table(servers) + (head + block.rstrip() if block else "")


def _write(file: Path, servers: Sequence[ExaminedServer]) -> None:
    """Merge the findings into the file.  Raises ConfigError if the result is no valid configuration."""
    text = merge_config(read_text(file) if file.exists() else "", servers, str(file))
    ConfigSource(file).config(text)
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError([ConfigFault(str(file), None, "", f"cannot be written: {error.strerror}")]) from None


class _ServerToExamine(Struct, frozen=True):
    """A server and the models to examine, as in ExaminedServer; `problem`: why there are none."""

    backend: Backend
    settings: config.BackendSettings
    models: Sequence[str] = ()
    listed_models: Sequence[str] = ()
    names: Mapping[str, str] = MappingProxyType({})
    embedding_models: Mapping[str, ModelMetadata] = MappingProxyType({})
    problem: str = ""


async def _examine_all(
    options: DoctorOptions, known: Config, out: TextIO, ports: Mapping[int, KindName]
) -> list[ExaminedServer]:
    until = asyncio.get_running_loop().time() + options.seconds
    examined = []
    async with _open_servers(options, known, ports) as opened:
        probes = len(PROBE_REQUESTS) * sum(len(server.models) for server in opened)
        with typer.progressbar(length=probes, label="examining", file=out, hidden=not out.isatty()) as bar:
            for server in opened:
                examined.append(await _examine(server, options, known, until, lambda: bar.update(1)))
    return examined


async def _examine(
    server: _ServerToExamine, options: DoctorOptions, known: Config, until: float, tick: Callable[[], None]
) -> ExaminedServer:
    settings, backend = server.settings, server.backend
    examiner = ModelExaminer(backend, settings, until, _ANSWER_SECONDS, tick)
    models, missing = [], []
    for model in server.models:
        findings = await examiner.examine(model, known.models.get(server.names.get(model, "")))
        if model in options.models and is_missing(findings):
            missing.append(model)
        else:
            models.append(ExaminedModel(model, findings, run_checks(findings, options.only)))
    listed = [one.id for one in backend.last_list()]
    problems = [unknown_model_error(model, listed).problem.message for model in missing]
    return ExaminedServer(
        name=backend.name,
        kind=settings.kind,
        url=settings.url,
        key=f"${{{options.key}}}" if options.key else "",
        listed_models=tuple(one for one in server.listed_models if one not in missing),
        names=server.names,
        models=tuple(models),
        embedding_models=server.embedding_models,
        problem=server.problem or "  ".join(problems),
    )


@asynccontextmanager
async def _open_servers(
    options: DoctorOptions, known: Config, ports: Mapping[int, KindName]
) -> AsyncIterator[list[_ServerToExamine]]:
    backends: list[Backend] = []
    try:
        servers = []
        for name, settings in (await _find_servers(options, known, ports)).items():
            backends.append(Backend(name, settings))
            servers.append(await _choose_models(backends[-1], settings, options, known))
        yield servers
    finally:
        for backend in backends:
            await backend.close()


async def _find_servers(
    options: DoctorOptions, known: Config, ports: Mapping[int, KindName]
) -> Mapping[str, config.BackendSettings]:
    """Return the servers to examine, by their names in a configuration."""
    if options.url is None and known.backends:
        return known.backends
    if options.url is not None:
        return await _server_at_url(options.url, options, known)
    found = await discover(ports)
    if not found:
        text = ", ".join(f"{kind} {port}" for port, kind in ports.items())
        raise NoServerFound(
            f"no model server was found on this machine (ports tried: {text}); name one: gateway doctor URL"
        )
    return build_config(discovered_config(found), formats.format_names()).backends


async def _server_at_url(url: str, options: DoctorOptions, known: Config) -> Mapping[str, config.BackendSettings]:
    """Return the server at a URL: as it is configured, else with a new name and its detected kind."""
    key = os.environ.get(options.key) if options.key else None
    if options.key and not key:
        raise ConfigError([ConfigFault("--key-env", None, "", f"the environment variable {options.key} is not set")])
    fields = {"url": url, "kind": options.kind or "openai", "api_key": key}
    server = ("backends", "server")
    document = ConfigDocument("", {"backends": {"server": fields}}, flags={(*server, "url"): "URL", server: "URL"})
    document.flags[*server, "kind"] = "--kind"
    settings = build_config(document, formats.format_names(), _ANY_PORT).backends["server"]
    if configured := {name: one for name, one in known.backends.items() if one.url == settings.url}:
        return configured
    kind = (
        settings.kind
        if options.kind or settings.unused_version
        else await identify(settings.url, {"authorization": f"Bearer {key}"} if key else {})
    )
    (name,) = build_config(
        discovered_config([DiscoveredServer(kind, settings.url, ())], known.backends), formats.format_names(), _ANY_PORT
    ).backends
    return {name: settings.model_copy(update={"kind": kind})}


async def _choose_models(
    backend: Backend, settings: config.BackendSettings, options: DoctorOptions, known: Config
) -> _ServerToExamine:
    """Choose the models to examine: those of the options, else the configured ones, else the listed ones.

    Models that only make embeddings are examined if the options name them.
    """
    listed: list[str] = []
    name_one = f"Name a model: gateway doctor {settings.url} --model NAME"
    try:
        listed = [one.id for one in await backend.models()]
        problem = _NO_SUCH if listed else f"The server lists no models.  {name_one}"
    except GatewayError as error:
        message = _with_url(error.problem.message, backend, known)
        problem = _key_advice(message, backend, options, known) or f"{message}  {name_one}"
    names = {
        model.upstream_model or name: name
        for name, model in known.models.items()
        if any(target.name == backend.name for target in model.backends)
    }
    if options.models:
        models = [model for model in options.models if options.url or model in (names or listed)]
    else:
        models = [*names] or listed
    embedding = {} if options.models else await _embedding_models(backend, models)
    if not models:
        return _ServerToExamine(backend, settings, problem=problem)
    chatting = [model for model in models if model not in embedding]
    return _ServerToExamine(backend, settings, chatting, models if names else listed, names, embedding)


def _with_url(message: str, backend: Backend, known: Config) -> str:
    """Return the problem of a server with its URL, instead of the key of a configuration that does not have it."""
    if backend.name in known.backends:
        return message
    field, url = f"backends.{backend.name}.url", backend.settings.url
    return message.replace(f"set {field} to the new address", "use the new address").replace(field, url)


def _key_advice(message: str, backend: Backend, options: DoctorOptions, known: Config) -> str:
    """Return the problem of a server that wants another API key, with the place of the key; "" for another problem."""
    field = f"backends.{backend.name}.api_key"
    if field not in message:
        return ""
    if backend.name in known.backends:
        return message
    command = f"name its variable: gateway doctor {backend.settings.url} --key-env VAR"
    return message.replace(f"set {field}", command).replace(f"check {field}", f"check {options.key}")


async def _embedding_models(backend: Backend, models: Sequence[str]) -> dict[str, ModelMetadata]:
    """Return the models that only make embeddings, with their metadata."""
    routes = [BackendRoute(model, config.ModelSettings(), backend, model) for model in models]
    known = {route.model: await model_registry.metadata_of_route(route) for route in routes}
    return {model: one for model, one in known.items() if one.abilities == _ONLY_EMBEDDINGS}
