"""Convert errors of commands to messages and exit codes: 1 problems found, 2 usage or configuration error."""
# ruff: noqa: PLC0415 - each command imports its modules when it runs

from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """Convert a ValueError to a usage error, and an OSError to a message and exit code 2."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
    except OSError as error:
        typer.echo(f"{error.filename}: {error.strerror}" if error.filename else str(error), err=True)
        raise typer.Exit(2) from None


@contextmanager
def exit_on_error(interrupted: int = 0) -> Iterator[None]:
    """Convert errors of a command to a message on standard error and an exit code.

    interrupted: the exit code after Ctrl-C.
    """
    from gateway.config import ConfigError
    from gateway.demo import DemoError, DemoNotInstalled
    from gateway.server.process.config_source import NoServerFound
    from gateway.server.process.listener import CannotListen

    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(interrupted) from None
    except (ConfigError, NoServerFound, DemoNotInstalled) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except (DemoError, CannotListen) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
