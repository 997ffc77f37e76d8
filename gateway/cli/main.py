"""The command `gateway`.  Exit codes: 0 success, 1 problems found, 2 usage or configuration error.

Each command imports its modules when it runs, so that `--help` and `--version` respond at once.
"""
# ruff: noqa: PLC0415

import gc
import os
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway import __version__
from gateway.cli import completion, keys, usage
from gateway.cli.errors import exit_on_bad_input, exit_on_error
from gateway.cli.options import (
    LOCAL_FILE,
    AsJson,
    AsJsonLines,
    AsServer,
    AsTest,
    ClientArguments,
    ClientFilePath,
    ClientModel,
    ClientName,
    ConfigFile,
    Features,
    GatewayUrl,
    KeyVariable,
    ListClients,
    Models,
    PieceSize,
    Recordings,
    ReplayEndpoint,
    ReplayFormat,
    ServerAddress,
    ServerKind,
    ServerPort,
    ServerUrl,
    StartClient,
    TestDirectory,
    Timed,
    TimeLimit,
    Write,
    WriteSettings,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main() -> None:
    """Run the command line, or complete it for a script of `gateway completion`."""
    completion.register_shells_if_completing()
    app(prog_name="gateway")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gateway {__version__}")
        raise typer.Exit


@app.callback()
def gateway(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """An OpenAI-compatible gateway that repairs and completes what local model servers stream.

    Exit codes: 0 success, 1 problems found, 2 usage or configuration error.
    """


@app.command()
def serve(
    config: ConfigFile = None,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on; default: 127.0.0.1.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="N", help="Port to listen on, 0 for any free port; default: 8900.")
    ] = None,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Number of worker processes; default: 1.")] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="If no server is found, serve a small model in an embedded llama.cpp.")
    ] = False,
) -> None:
    """Serve, until Ctrl-C.

    Serves the models of the configuration file and reloads it when it changes.  The other options override the file.
    Without --config and ./gateway.yaml, it looks for model servers on this machine (Ollama 11434, vLLM 8000, llama.cpp
    8080, LM Studio 1234, SGLang 30000) and serves their models.
    """
    gc.set_threshold(200_000)  # imported objects stay alive: collections among them took 0.05 s of the start

    from gateway.server.process.config_source import ConfigSource, resolve_config
    from gateway.server.process.supervisor import run_gateway

    flags = {"host": host, "port": port, "workers": workers}
    source = ConfigSource(config, flags) if config else None
    with exit_on_error(), resolve_config(source, flags, sys.stderr, demo_wanted=demo) as (settings, greeting):
        run_gateway(settings, greeting=greeting, source=source)


def _schema(wanted: bool) -> None:
    if wanted:
        from importlib import resources

        typer.echo(resources.files("gateway.config").joinpath("gateway.schema.json").read_text("utf-8"), nl=False)
        raise typer.Exit


@app.command()
def check(
    config: ConfigFile = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print the whole configuration, with defaults and masked secrets."),
    ] = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Check the backends, the store, Redis, the certificate and the packages of extras."
        ),
    ] = False,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema", callback=_schema, is_eager=True, help="Print the JSON schema of configurations, for editors."
        ),
    ] = False,
) -> None:
    """Check a configuration.

    Errors go to standard error, one a line with file, line and key; the exit code is 2 then.  With --verbose, comments
    at the end name the format of each model.  With --probe, the exit code is 1 if one of its checks fails.
    """
    from gateway.cli import check as check_command
    from gateway.server.process.config_source import read_config

    if config is None:
        raise typer.BadParameter("there is no ./gateway.yaml; use --config FILE or set GATEWAY_CONFIG.")
    with exit_on_error():
        settings = read_config(config)
    for line in check_command.effective_lines(settings) if verbose else [check_command.summary_line(settings)]:
        typer.echo(line)
    valid, dates = check_command.certificate_line(settings)
    if dates and not probe and (verbose or not valid):
        typer.echo(dates, err=not valid)
    if probe and not check_command.probe(settings, typer.echo):
        raise typer.Exit(1)


@app.command()
def formats(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show everything about this format.")] = None,
    names: Annotated[bool, typer.Option("--names", help="Print only the names, one per line.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print all formats as a page of Markdown.")] = False,
) -> None:
    """List the formats that a model may have.

    A format is how a family of models writes thoughts and tool calls; its name goes to `models.*.format`.  An alias is
    the name that another server has for the format; the configuration accepts it as well.
    """
    from gateway.cli.suggestions import unknown_format
    from gateway.formats import FORMATS, canonical_name, docs_page

    if names:
        typer.echo("\n".join(FORMATS))
    elif markdown:
        typer.echo(docs_page.formats_page(FORMATS), nl=False)
    elif name is None:
        typer.echo(docs_page.format_table(FORMATS))
    elif row := FORMATS.get(canonical_name(name)):
        typer.echo(docs_page.format_section(row))
    else:
        raise typer.BadParameter(f"{unknown_format(name)}.")


@app.command()
def doctor(  # noqa: PLR0913, PLR0917 - its options
    url: ServerUrl = None,
    config: ConfigFile = None,
    kind: ServerKind = None,
    model: Models = None,
    key_env: KeyVariable = None,
    only: Features = None,
    seconds: TimeLimit = 900,
    as_json: AsJson = False,
    write: Write = False,
) -> None:
    """Find out which features a server has, by requests to its models.

    Without a URL, it examines the backends of the configuration, or else the servers on this machine.  Each model gets
    about 20 requests.  They show what streams, which tool calls and thoughts the server parses, and which fields it
    ignores.  The exit code is 1 if there are problems.
    """
    from gateway.cli.doctor import DoctorOptions, examine_servers, report_result
    from gateway.cli.suggestions import unknown_check
    from gateway.doctor.checks import CHECKS

    if strange := [name for name in only or () if name not in CHECKS]:
        raise typer.BadParameter(unknown_check(strange[0], CHECKS))
    file = config or (LOCAL_FILE if write else None)
    options = DoctorOptions(
        url=url, kind=kind, models=tuple(model or ()), key=key_env, file=file, write=write, seconds=seconds,
        only=tuple(only or ()),
    )  # fmt: skip
    with exit_on_error(interrupted=1):
        raise typer.Exit(report_result(examine_servers(options, sys.stderr), options, as_json=as_json))


@app.command()
def replay(  # noqa: PLR0913, PLR0917 - its options
    files: Recordings,
    format: ReplayFormat = None,
    endpoint: ReplayEndpoint = None,
    cut: PieceSize = None,
    test: AsTest = False,
    into: TestDirectory = Path("tests/replays"),
    serve: AsServer = False,
    host: ServerAddress = "127.0.0.1",
    port: ServerPort = 8000,
    timed: Timed = False,
    as_json: AsJsonLines = False,
) -> None:
    """Replay recordings: through this gateway, to compare the results, or as a model server for any client.

    The differences are printed; the exit code is 1 if there are any.  With another format or endpoint, only the
    content, the end and the usage are compared.  Otherwise the whole response is compared, except for ids and times.
    """
    from gateway.cli import replay as replay_command

    with exit_on_bad_input():
        ways = replay_command.parse_options(format, endpoint, cut, timed=timed)
        if serve:
            replay_command.serve(files, host, port, sys.stdout, timed=timed)
        elif test:
            replay_command.save_golden(files, into, sys.stdout)
        elif not replay_command.compare(files, ways, sys.stdout, as_json=as_json):
            raise typer.Exit(1)


@app.command()
def launch(  # noqa: PLR0913, PLR0917 - its options
    client: ClientName = None,
    arguments: ClientArguments = None,
    url: GatewayUrl = None,
    config: ConfigFile = None,
    model: ClientModel = None,
    file: ClientFilePath = None,
    write: WriteSettings = False,
    start: StartClient = False,
    names: ListClients = False,
) -> None:
    """Set up a client for a gateway, such as Codex or Claude Code.

    Prints the settings, with one of the gateway's models that fits the client.  `--write` merges them into the client's
    file, keeps all others and shows the changes.  `--exec` starts the client.  If the gateway has keys, set
    GATEWAY_KEY: no key is printed or written to a file.  The exit code is 1 if there is no model or no program.
    """
    from gateway.cli.client_file import LaunchError
    from gateway.cli.launch import ClientRunner, LaunchOptions, print_clients
    from gateway.cli.launch import launch as launch_client

    if names or client is None:
        return print_clients()
    options = LaunchOptions(
        client=client, url=url, config=config, model=model, file=file, write=write, start=start,
        arguments=tuple(arguments or ()),
    )  # fmt: skip
    try:
        with exit_on_error():
            launch_client(options, os.environ, ClientRunner())
    except LaunchError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(error.code) from None


@app.command()
def health(
    url: Annotated[
        str | None,
        typer.Argument(
            metavar="URL", help="Root URL of the gateway; default: http or https on port 8900 of this machine."
        ),
    ] = None,
) -> None:
    """Check if a gateway is alive, for the health check of a container.

    The exit code is 1 if it is unhealthy or does not run.  Its certificate is not verified.
    """
    from gateway.cli.healthcheck import HERE, is_alive

    try:
        well = any(map(is_alive, [url] if url else HERE))
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
    if not well:
        typer.echo(f"no gateway responds at {url or HERE[0]}", err=True)
        raise typer.Exit(1)


@app.command()
def top(
    url: Annotated[
        str, typer.Option("--url", envvar="GATEWAY_URL", metavar="URL", help="Root URL of the gateway.")
    ] = "http://127.0.0.1:8900",
    key: Annotated[
        str | None,
        typer.Option(
            "--key", envvar="GATEWAY_KEY", metavar="KEY", help="API key with the scope admin.", show_envvar=True
        ),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="N", min=0.2, help="Seconds between two updates.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="Print the overview once.")] = False,
) -> None:
    """Watch a gateway at work: its backends, models, requests and errors.

    `q` or Ctrl-C ends it.  If the output is no terminal, the overview is printed once.  Set the key in the environment:
    others can see command lines.  The exit code is 1 if no gateway responds, 2 if it refuses the key.
    """
    from gateway.cli.top import OverviewClient, OverviewUnavailable, keyboard, make_console, show_once, watch

    gateway, console = OverviewClient(url, key), make_console()
    try:
        if once or not console.is_terminal:
            show_once(gateway, console)
        else:
            with keyboard() as press:
                watch(gateway, console, press, seconds)
    except KeyboardInterrupt:
        raise typer.Exit from None
    except OverviewUnavailable as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2 if error.mine else 1) from None
    finally:
        gateway.close()


@app.command()
def key(
    hashed: Annotated[
        bool, typer.Option("--hash", help="Print only the digest of a key read from standard input.")
    ] = False,
) -> None:
    """Make a key for a client, and its digest for the configuration.

    The gateway needs the digest only, so no file of it has to hold a key.  Keys of your own should be as long and as
    random as these: a short one could be guessed from its digest.
    """
    from gateway.config import parse_digest

    if hashed:
        shown = typer.get_text_stream("stdin", errors="replace").readline().removesuffix("\n").removesuffix("\r")
        try:
            typer.echo(parse_digest(shown))
        except ValueError as error:
            raise typer.BadParameter(f"the key on standard input {error}.") from None
        return
    made = f"gw-{secrets.token_urlsafe(32)}"
    typer.echo("# The key: give it to the client.  It is not stored anywhere and cannot be shown again.")
    typer.echo(made)
    typer.echo("# Its digest: write it into the configuration, as the `key` of an entry of auth.keys.")
    typer.echo(parse_digest(made))


app.add_typer(keys.app, name="keys")
app.command(name="usage")(usage.print_usage)
app.command(name="completion")(completion.print_completion)
