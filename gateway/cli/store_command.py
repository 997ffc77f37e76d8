"""Share what commands on the store need: the configuration, a transaction, errors, and tables."""
# ruff: noqa: PLC0415 - each command imports its modules when it runs

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from gateway.cli.errors import exit_on_error

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from gateway.config import Config
    from gateway.store import Database

    Work = Callable[[AsyncConnection], Awaitable["_T"]]

_T = TypeVar("_T")


def read_settings(file: Path | None) -> "Config":
    """Return the configuration of a command, or exit."""
    from gateway.server.process.config_source import read_config

    if file is None:
        raise typer.BadParameter("there is no ./gateway.yaml; use --config FILE or set GATEWAY_CONFIG.")
    with exit_on_error():
        return read_config(file)


@contextmanager
def exit_on_store_error() -> Iterator[None]:
    """Convert errors of the store, and of what a command asks of it, to a message and an exit code."""
    from gateway.errors import GatewayError, StoreFailed

    try:
        yield
    except StoreFailed as error:
        typer.echo(f"The store cannot be used: {error.reason}", err=True)
        raise typer.Exit(1) from None
    except GatewayError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def run_writing(settings: "Config", work: "Work[_T]") -> _T:
    """Return the result of `work(connection)`, run in a transaction for writing.  Raises StoreFailed."""
    import asyncio

    database = _database(settings)
    return asyncio.run(_run(database, database.writing(), work))


def run_reading(settings: "Config", work: "Work[_T]") -> _T | None:
    """Do the same in a transaction for reading; return None if the store has no file yet."""
    import asyncio

    database = _database(settings)
    return asyncio.run(_run(database, database.reading(), work)) if database.exists() else None


def _database(settings: "Config") -> "Database":
    from gateway.store import Database

    return Database(settings.store.url.get_secret_value())


async def _run(
    database: "Database", transaction: "AbstractAsyncContextManager[AsyncConnection]", work: "Work[_T]"
) -> _T:
    try:
        async with transaction as db:
            return await work(db)
    finally:
        await database.close()


def text_table(rows: Sequence[Sequence[str]], right: int = 0) -> str:
    """Return rows as lines with aligned columns.  right: the number of columns at the end that have numbers."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [str.ljust] * (len(widths) - right) + [str.rjust] * right
    return "\n".join(
        "  ".join(align(cell, width) for align, cell, width in zip(aligned, row, widths, strict=True)).rstrip()
        for row in rows
    )
