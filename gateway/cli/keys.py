"""The commands `gateway keys`: make, list, replace and revoke the API keys of a store."""
# ruff: noqa: PLC0415 - each command imports its modules when it runs

import getpass
import os
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gateway.cli.options import AsJson, ConfigFile
from gateway.cli.store_command import (
    exit_on_store_error,
    read_settings,
    run_reading,
    run_writing,
    text_table,
)

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from gateway.config import Config
    from gateway.config.stored_keys import StoredApiKey
    from gateway.store.api_keys import KeyEdit

_T = TypeVar("_T")
_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = "should be a number and a unit (m, h, d, w), like 90d"

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Manage the API keys of the store.")

KeyName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the key: the owner of what is stored.")]
AllowedModels = Annotated[
    list[str] | None, typer.Option(metavar="MODEL", help="Allow this model; may be repeated; default: all.")
]
AllowedEndpoints = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Allow this path and those below; may be repeated; default: all."),
]


@app.command()
def add(  # noqa: PLR0913, PLR0917 - its options
    name: KeyName,
    config: ConfigFile = None,
    owner: Annotated[str, typer.Option(metavar="TEXT", help="Person or team that has the key.")] = "",
    note: Annotated[str, typer.Option(metavar="TEXT", help="Note for operators.")] = "",
    model: AllowedModels = None,
    endpoint: AllowedEndpoints = None,
    scope: Annotated[
        list[str] | None, typer.Option(metavar="SCOPE", help="inference (default) or admin; may be repeated.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="A limit of auth.keys[].limits, like tokens_per_day=100000."),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="A group of auth.groups, whose budgets apply as well.")
    ] = None,
    priority: Annotated[str, typer.Option(metavar="NAME", help="high, normal or low.")] = "normal",
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="End of validity: 90d, 12h, or a date (UTC); default: never.")
    ] = None,
) -> None:
    """Add a key, and print it.  It cannot be shown again: the store has its digest only.

    Gateways with `auth.stored_keys` that share the store accept it within a second.
    """
    fields: dict[str, Any] = {"name": name, "owner": owner, "note": note, "priority": priority}
    chosen = {"models": model, "endpoints": endpoint, "scopes": scope}
    with _usage():
        fields |= {field: values for field, values in chosen.items() if values}
        fields |= {"limits": dict(map(_limit, limit or ())), "group": group}
        fields |= {"expires_at": parse_time(expires, time.time())} if expires else {}
    with _store(config) as (settings, change):
        from gateway.store import api_keys

        _, secret = change(lambda db: api_keys.add(db, fields, _edit(settings)))
    _print_secret(name, secret)


@app.command(name="list")
def list_keys(config: ConfigFile = None, as_json: AsJson = False) -> None:
    """List the keys of the store, also expired and revoked ones."""
    with _store(config) as (_, change):
        from gateway.store import api_keys

        keys = [api_keys.parse(row.body) for row in change(api_keys.read)]
    if as_json:
        from msgspec import json

        typer.echo(json.format(json.encode([key.shown() for key in keys])))
    else:
        typer.echo(key_table(keys, time.time()))


@app.command()
def revoke(name: KeyName, config: ConfigFile = None) -> None:
    """Revoke a key for good.  Its name stays in use: it owns what is stored."""
    with _store(config) as (settings, change):
        from gateway.store import api_keys

        change(lambda db: api_keys.revoke(db, name, _edit(settings)))
    typer.echo(f"key '{name}' is revoked")


@app.command()
def rotate(
    name: KeyName,
    config: ConfigFile = None,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="How long the old key stays valid, like 24h; default: not at all.")
    ] = "0m",
) -> None:
    """Replace a key by a new one, and print it."""
    with _usage():
        seconds = parse_duration(grace)
    with _store(config) as (settings, change):
        from gateway.store import api_keys

        _, secret = change(lambda db: api_keys.rotate(db, name, seconds, _edit(settings)))
    _print_secret(name, secret)


@app.command()
def log(
    config: ConfigFile = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="Maximum number of entries; default: 100.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Print who changed which key, and which settings reloads changed; the newest entries first.

    Entries have no secrets.  The store keeps the newest 10,000.
    """
    settings = read_settings(config)
    with exit_on_store_error():
        from gateway.store import audit_log

        entries = run_reading(settings, lambda db: audit_log.read(db, limit)) or []
    if as_json:
        from msgspec import json

        typer.echo(json.format(json.encode([entry.shown() for entry in entries])))
    else:
        typer.echo(log_table([entry.shown() for entry in entries]))


def log_table(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the audit log, a line for each entry."""
    return text_table([("TIME", "ACTOR", "ACTION", "KEY", "CHANGES"), *map(_entry_row, entries)])


def _entry_row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    from gateway.config.difference import change_text

    at = f"{datetime.fromtimestamp(entry['created_at'], UTC):%Y-%m-%d %H:%M:%S}"
    changes = ", ".join(map(change_text, entry["changes"]))
    return at, entry["actor"], entry["action"], entry["key"] or "-", changes


def parse_duration(text: str) -> int:
    """Return the seconds of a duration like 90d.  Raises ValueError."""
    if not (found := re.fullmatch(r"(\d{1,6})([mhdw])", text)):
        raise ValueError(f"'{text}' {_DURATION}")
    return int(found[1]) * _UNITS[found[2]]


def parse_time(text: str, now: float) -> int:
    """Return the Unix time of a duration from now, or of a date.  Raises ValueError."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return int(now) + parse_duration(text)
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def key_table(keys: "Sequence[StoredApiKey]", now: float) -> str:
    """Return a table of keys, a line each."""
    head = ("NAME", "STATE", "EXPIRES", "OWNER", "GROUP", "MODELS", "SCOPES")
    return text_table([head, *(_row(key, now) for key in keys)])


def _row(key: "StoredApiKey", now: float) -> tuple[str, ...]:
    expired = key.expires_at is not None and now >= key.expires_at
    state = "revoked" if key.revoked_at is not None else "expired" if expired else "valid"
    expires = "never" if key.expires_at is None else f"{datetime.fromtimestamp(key.expires_at, UTC):%Y-%m-%d %H:%M}"
    models = "all" if key.models is None else ",".join(key.models)
    return key.name, state, expires, key.owner or "-", key.group or "-", models, ",".join(key.scopes)


def _limit(text: str) -> tuple[str, int]:
    name, _, amount = text.partition("=")
    if not amount.isdecimal():
        raise ValueError(f"'{text}' should be NAME=N, like tokens_per_day=100000")
    return name, int(amount)


def _edit(settings: "Config") -> "KeyEdit":
    from gateway.store.api_keys import KeyEdit

    return KeyEdit(int(time.time()), f"cli:{user_name()}", settings.auth)


def user_name(find: Callable[[], str] = getpass.getuser) -> str:
    """Return the name of the user who runs the command, or its number in a container without names."""
    try:
        return find()
    except (OSError, KeyError):
        return str(os.getuid())


@contextmanager
def _usage() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


@contextmanager
def _store(
    file: Path | None,
) -> "Iterator[tuple[Config, Callable[[Callable[[AsyncConnection], Awaitable[_T]]], _T]]]":
    """Yield the configuration, and a function that runs another in a transaction of its store."""
    settings = read_settings(file)
    if not settings.auth.stored_keys:
        typer.echo("No gateway accepts these keys: auth.stored_keys is not true in the configuration.", err=True)
    with exit_on_store_error():
        yield settings, lambda do: run_writing(settings, do)


def _print_secret(name: str, secret: str) -> None:
    typer.echo(f"Key '{name}': give it to the client.  It is not stored anywhere and cannot be shown again.", err=True)
    typer.echo(secret)
