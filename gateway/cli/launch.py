"""The command `gateway launch`: print, write or use the settings that a client needs."""

import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

import httpx
import typer
from msgspec import MsgspecError, Struct

from gateway.cli.client_file import LaunchError, SettingsFile
from gateway.launch import CLIENTS, Client, LaunchTarget, OfferedModel, choose_model
from gateway.launch.client import KEY_VARIABLE
from gateway.launch.model_choice import read_backend_states, read_models
from gateway.launch.rendering import render_list, render_settings, shell_lines
from gateway.server.process.config_source import reachable_root, read_config
from gateway.server.upstream.failure_text import cause_text, end_sentence

_DEFAULT_ROOT = "http://127.0.0.1:8900"
_REFUSED = (401, 403)  # statuses for a missing or wrong API key
_SECONDS = 10.0  # for the list of models, for which the gateway may ask slow backends


class LaunchOptions(Struct, frozen=True, kw_only=True):
    """The options of the command.

    url: the root URL of the gateway; None: that of the configuration, else port 8900 of this machine.
    config: the gateway's configuration file.
    model: None: one of the gateway's models that fits.
    file: the client's configuration file; None: the usual one.
    write: merge the settings into that file.
    start: start the client, with the `arguments`.
    """

    client: str
    url: str | None = None
    config: Path | None = None
    model: str | None = None
    file: Path | None = None
    write: bool = False
    start: bool = False
    arguments: tuple[str, ...] = ()


class ClientRunner:
    """Run the commands of clients."""

    def run(self, command: list[str], environment: Mapping[str, str]) -> int:
        """Run a command to its end and return its status."""
        return subprocess.run(command, env=environment, check=False).returncode

    def replace(self, command: list[str], environment: Mapping[str, str]) -> None:
        """Replace this process by the command."""
        os.execvpe(command[0], command, environment)


def print_clients() -> None:
    """Print the list of all clients."""
    typer.echo(render_list(CLIENTS))


def launch(
    options: LaunchOptions,
    environment: Mapping[str, str],
    runner: ClientRunner,
    transport: httpx.BaseTransport | None = None,
) -> None:
    """Print the settings of a client, or write them, or start the client with them.

    environment: the environment variables.  transport: for requests to the gateway; None: a real one.

    Raises LaunchError or ConfigError.
    """
    client = _client(options)
    key = environment.get(KEY_VARIABLE, "").strip()
    target = _target(client, options, _find_gateway(options, key, transport))
    file = _settings_file(client, options, target, environment)
    if options.write:
        if file is None:
            raise LaunchError(f"{client.title} takes its settings from variables and options: use --exec.")
        file.write()
    if options.start:
        if file:
            _check_file(file, client, target, key, written=options.write)
        _start(client, target, key, [*client.command_for(target), *options.arguments], environment, runner)
    elif options.write:
        typer.echo("\n".join(["Start it:\n", *shell_lines(client, target)]))
    else:
        typer.echo("\n\n".join(render_settings(options.client, client, target, str(file.path) if file else "")))


def _client(options: LaunchOptions) -> Client:
    name = options.client
    if name not in CLIENTS:
        near = get_close_matches(name, CLIENTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`gateway launch --list` lists all clients."
        raise LaunchError(f"Unknown client {name!r}; {hint}")
    client = CLIENTS[name]
    if (options.write or options.start) and not client.command:
        raise LaunchError(f"{client.title} is no program: paste the code that `gateway launch {name}` prints.")
    return client


def _settings_file(
    client: Client, options: LaunchOptions, target: LaunchTarget, environment: Mapping[str, str]
) -> SettingsFile | None:
    """Return the client's configuration file: the wanted one, or that at the usual place."""
    if (file := client.file) is None:
        return None
    folder = environment.get(file.variable) or file.folder
    path = options.file or Path(folder).expanduser() / file.name
    return SettingsFile(path, file.format, client.entries_for(target))


def _check_file(file: SettingsFile, client: Client, target: LaunchTarget, key: str, *, written: bool) -> None:
    """Raise LaunchError if the client would use other settings, because of its file."""
    if member := client.file and client.file.environment:
        variables = dict.fromkeys(client.unset, "") | client.environment_for(target, key)
        if others := file.other_variables(member, variables):
            names = ", ".join(others)
            raise LaunchError(
                f"{file.path} sets {names} to other values, which {client.title} prefers: add --write, or remove them."
            )
    elif not (written or file.complete()):
        raise LaunchError(f"{file.path} lacks entries for {target.root} and {target.model!r}: add --write.")


class _Gateway(Struct, frozen=True):
    """The gateway, as far as it is known.

    keyed: it needs an API key.
    models: those that it lists.  configured: the first model of its configuration.
    backends: the names of the backends of each configured model and alias.
    down: the models without a reachable backend.
    problem: why it lists no models.
    """

    root: str
    keyed: bool
    configured: str | None = None
    backends: Mapping[str, Collection[str]] = {}
    down: Collection[str] = ()
    models: Sequence[OfferedModel] = ()
    problem: str = ""


def _find_gateway(options: LaunchOptions, key: str, transport: httpx.BaseTransport | None) -> _Gateway:
    """Return the gateway of the options, with its models if it responds.  Raises LaunchError or ConfigError."""
    known = _configured(options, key)
    root = known.root
    try:
        response = _get(f"{root}/v1/models", key, transport)
        if response.is_success:
            models = read_models(response.content)
            down = _models_down(models, known.backends, _backend_states(root, transport))
            return _Gateway(root, known.keyed, models=models, down=down)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol):
        raise LaunchError(f"{root!r} is not the URL of a gateway, like {_DEFAULT_ROOT}.") from None
    except httpx.LocalProtocolError:
        raise LaunchError(f"The API key in {KEY_VARIABLE} contains control characters.") from None
    except httpx.HTTPError as error:
        cause = end_sentence(cause_text(error, server="gateway", program="it"))
        problem = f"No gateway responds at {root}: {cause} Start it: gateway serve."
        return _Gateway(root, known.keyed, known.configured, problem=problem)
    except MsgspecError:
        raise LaunchError(f"The server at {root} is no gateway: GET /v1/models returns no list of models.") from None
    status = response.status_code
    keyed = known.keyed or status in _REFUSED
    return _Gateway(root, keyed, known.configured, problem=_status_problem(root, status))


def _status_problem(root: str, status: int) -> str:
    """Return what the status of a failed request for the list of models means."""
    if status == 404:
        return (
            f"The server at {root} may be no gateway: it has no /v1/models (HTTP 404). "
            "Give --url the root of a gateway."
        )
    advice = f" Set {KEY_VARIABLE} to an API key that it accepts." if status in _REFUSED else ""
    return f"The gateway at {root} does not list its models: HTTP {status}.{advice}"


def _configured(options: LaunchOptions, key: str) -> _Gateway:
    """Return what the options and the configuration say about the gateway."""
    if options.config is None:
        return _Gateway(_root(options.url or _DEFAULT_ROOT), bool(key))
    config = read_config(options.config)
    server = config.server
    root = options.url or reachable_root(server.host, server.port, "https" if server.tls else "http")
    backends = {
        name: [one.name for one in model.backends]
        for main, model in config.models.items()
        for name in (main, *model.aliases)
    }
    return _Gateway(_root(root), bool(key or config.auth.needs_key), next(iter(config.models), None), backends)


def _root(url: str) -> str:
    return url.rstrip("/").removesuffix("/v1")


def _backend_states(root: str, transport: httpx.BaseTransport | None) -> dict[str, bool]:
    """Return which backends of the gateway are reachable; none if it does not say that."""
    try:
        return read_backend_states(_get(f"{root}/ready", "", transport).content)
    except httpx.HTTPError:
        return {}


def _models_down(
    models: Sequence[OfferedModel], backends: Mapping[str, Collection[str]], states: Mapping[str, bool]
) -> Collection[str]:
    """Return the models without a reachable backend.  A model of unknown backends may use each of them."""
    of_models = {one.id: backends.get(one.id) or states for one in models}
    return [model for model, names in of_models.items() if states and not any(states.get(name, True) for name in names)]


def _get(url: str, key: str, transport: httpx.BaseTransport | None) -> httpx.Response:
    headers = {b"authorization": f"Bearer {key}".encode()} if key else {}
    with httpx.Client(headers=headers, timeout=_SECONDS, trust_env=False, transport=transport) as http:
        return http.get(url)


def _target(client: Client, options: LaunchOptions, gateway: _Gateway) -> LaunchTarget:
    """Choose the model, and report on standard error what may be wrong.  Raises LaunchError if there is no model."""
    choice = choose_model(client, gateway.models, options.model or gateway.configured, gateway.down)
    if choice is None:
        problem = gateway.problem or f"The gateway at {gateway.root} has no model that chats."
        raise LaunchError(f"{problem} Or name a model with --model.", code=1)
    for problem in (*_doubts(gateway, choice.model), *choice.problems):
        typer.echo(f"warning: {problem}", err=True)
    model = choice.model
    return LaunchTarget(root=gateway.root, model=model.id, window=model.context_length, keyed=gateway.keyed)


def _doubts(gateway: _Gateway, model: OfferedModel) -> Iterator[str]:
    """Yield why the gateway may not have the model, or cannot use it now."""
    if gateway.problem:
        yield gateway.problem
    elif model not in gateway.models:
        names = ", ".join(one.id for one in gateway.models)
        yield f"The gateway lists no model {model.id!r}, but it may be an alias. It lists: {names or 'none'}."
    elif model.id in gateway.down:
        yield f"No backend of {model.id!r} is reachable. GET {gateway.root}/ready lists the backends."


def _start(
    client: Client,
    target: LaunchTarget,
    key: str,
    command: list[str],
    environment: Mapping[str, str],
    runner: ClientRunner,
) -> None:
    """Run the set-up and start the client.  Raises LaunchError."""
    if target.keyed and not key:
        raise LaunchError(f"The gateway at {target.root} needs an API key: set {KEY_VARIABLE}.")
    if not shutil.which(command[0], path=environment.get("PATH")):
        raise LaunchError(f"{client.title} is not installed: the PATH has no program {command[0]!r}.", code=1)
    kept = {name: value for name, value in environment.items() if name not in client.unset}
    variables = {**kept, **client.environment_for(target, key)}
    if (setup := client.setup_for(target, key)) and (status := runner.run(setup, variables)):
        raise LaunchError(f"`{setup[0]} {setup[1]}` failed with status {status}.", code=1)
    runner.replace(command, variables)
