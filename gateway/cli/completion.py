"""`gateway completion`: complete the words of the command line in a shell."""
# ruff: noqa: PLC0415 - completion and clients take time to import

import os
from enum import StrEnum
from typing import Annotated

import typer

_COMPLETE = "_GATEWAY_COMPLETE"  # set by the script of a shell


class Shell(StrEnum):
    """A shell with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def register_shells_if_completing() -> None:
    """Prepare a completion, if the script of a shell has started this process."""
    if _COMPLETE in os.environ:
        _register_shells()


def _register_shells() -> None:
    """Register the shells that typer completes for, as it does for an app with its own options for that."""
    from typer.completion import get_completion_inspect_parameters

    get_completion_inspect_parameters()


def print_completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(help="Shell that reads the script.")]
) -> None:
    """Print the script that completes the words of `gateway` in a shell.

    bash: add `source <(gateway completion bash)` to ~/.bashrc.

    zsh: add `source <(gateway completion zsh)` to ~/.zshrc, after compinit.

    fish: `gateway completion fish > ~/.config/fish/completions/gateway.fish`.
    """
    from typer.completion import shell_complete

    _register_shells()
    shell_complete(context.find_root().command, {}, "gateway", _COMPLETE, f"source_{shell}")


def clients_beginning(incomplete: str) -> list[str]:
    """Return the clients of `gateway launch` whose names begin so."""
    from gateway.launch import CLIENTS

    return [name for name in CLIENTS if name.startswith(incomplete)]
