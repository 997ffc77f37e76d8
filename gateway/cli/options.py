"""Describe the arguments and options that commands take, in the order of the commands."""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.completion import clients_beginning

LOCAL_FILE = Path("gateway.yaml")


def _default_file(context: typer.Context, file: Path | None) -> Path | None:
    """Return the configuration file: without a given one ./gateway.yaml, if it exists."""
    if file or context.resilient_parsing or not LOCAL_FILE.is_file():
        return file
    typer.echo(f"Using ./{LOCAL_FILE}; --config names another file.", err=True)
    return LOCAL_FILE


ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        envvar="GATEWAY_CONFIG",
        metavar="FILE",
        callback=_default_file,
        help="Configuration file (YAML); default: ./gateway.yaml, if it exists.",
    ),
]

# doctor

ServerUrl = Annotated[
    str | None, typer.Argument(metavar="URL", help="Root URL of the server, like http://127.0.0.1:8000.")
]
ServerKind = Annotated[
    str | None, typer.Option(metavar="KIND", help="Kind of the server at the URL; default: detected.")
]
Models = Annotated[list[str] | None, typer.Option(metavar="MODEL", help="Examine only this model; may be repeated.")]
KeyVariable = Annotated[str | None, typer.Option(metavar="VAR", help="Environment variable with the server's API key.")]
Features = Annotated[list[str] | None, typer.Option(metavar="NAME", help="Check only this feature; may be repeated.")]
TimeLimit = Annotated[float, typer.Option(metavar="N", min=1, help="Time limit for the whole run, in seconds.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
Write = Annotated[
    bool,
    typer.Option("--write", help="Write the findings to the configuration file."),
]

# replay

Recordings = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings, or directories of recordings.")]
ReplayFormat = Annotated[
    str | None, typer.Option(metavar="NAME", help="Parse the responses in this format instead of the recorded one.")
]
ReplayEndpoint = Annotated[
    str | None, typer.Option(metavar="NAME", help="Send the requests to this API: chat, responses or messages.")
]
PieceSize = Annotated[
    str | None,
    typer.Option(metavar="N", help="Deliver the responses in pieces of N bytes; or `bytes` (one by one), or `whole`."),
]
AsTest = Annotated[bool, typer.Option("--test", help="Turn each recording into a test that expects today's result.")]
TestDirectory = Annotated[Path, typer.Option(metavar="DIR", help="Directory for the tests.")]
AsServer = Annotated[bool, typer.Option("--serve", help="Act as the recorded model server; each recording is a model.")]
ServerAddress = Annotated[str, typer.Option(metavar="ADDRESS", help="Address of that server, with --serve.")]
ServerPort = Annotated[int, typer.Option(metavar="N", help="Port of that server, with --serve; 0 for any free port.")]
Timed = Annotated[bool, typer.Option("--timed", help="Replay at the recorded pace.")]
AsJsonLines = Annotated[
    bool, typer.Option("--json", help="Print each result with the new response as a JSON object in a line.")
]

# launch

ClientName = Annotated[
    str | None,
    typer.Argument(
        metavar="CLIENT", help="The client; without it, list all clients.", autocompletion=clients_beginning
    ),
]
ClientArguments = Annotated[
    list[str] | None, typer.Argument(metavar="-- ARGUMENT", help="Arguments for the client, with --exec.")
]
GatewayUrl = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="GATEWAY_URL",
        metavar="URL",
        help="Root URL of the gateway; default: that of the configuration, else port 8900 of this machine.",
    ),
]
ClientModel = Annotated[str | None, typer.Option("--model", metavar="MODEL", help="Model; default: one that fits.")]
ClientFilePath = Annotated[
    Path | None,
    typer.Option("--file", metavar="FILE", help="The client's file; default: its usual configuration file."),
]
WriteSettings = Annotated[
    bool, typer.Option("--write", help="Merge the settings into the client's configuration file.")
]
StartClient = Annotated[bool, typer.Option("--exec", help="Start the client with the settings.")]
ListClients = Annotated[bool, typer.Option("--list", help="List all clients.")]
