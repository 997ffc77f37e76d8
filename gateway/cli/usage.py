"""The command `gateway usage`: print what keys and models used."""
# ruff: noqa: PLC0415 - the command imports its modules when it runs

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from gateway.cli.options import AsJson, ConfigFile
from gateway.cli.store_command import exit_on_store_error, read_settings, run_reading, text_table


class UsageGroup(StrEnum):
    """A column that usage is summed by."""

    KEY = "key"
    MODEL = "model"
    DAY = "day"


def print_usage(
    config: ConfigFile = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="First day (UTC), like 2026-01-31; default: 30 days in all."),
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Last day (UTC); default: today.")] = None,
    by: Annotated[
        list[UsageGroup] | None,
        typer.Option(metavar="COLUMN", help="Sum by key (default), model or day; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the requests, tokens and seconds of keys, models and days.

    It reads the store of the configuration.  Gateways add finished requests within a second.  Input includes cached
    tokens, output includes reasoning tokens.
    """
    from datetime import UTC, datetime

    from gateway.errors import BadRequest
    from gateway.server.observability.usage import NOT_KEPT, parse_query, usage_report
    from gateway.store import usage_sums

    settings = read_settings(config)
    with exit_on_store_error():
        query = parse_query(since, until, by or (), datetime.now(UTC).date())
        if not settings.store.keeps_usage:
            raise BadRequest(NOT_KEPT)
        rows = run_reading(settings, lambda db: usage_sums.read(db, *query.days, query.by))
    report = usage_report(query, rows or ())
    if as_json:
        from msgspec import json

        typer.echo(json.format(json.encode(report)))
    else:
        typer.echo(usage_table(report))


def usage_table(report: Mapping[str, Any]) -> str:
    """Return a report as a table, with the total in its last line."""
    by, total = report["by"], report["total"]
    head = [name.upper().replace("_TOKENS", "") for name in (*by, *total)]
    last = ["total", *[""] * (len(by) - 1), *_numbers(total)]
    rows = [[*(row[name] or "-" for name in by), *_numbers(row)] for row in report["data"]]
    return text_table([head, *rows, last], right=len(total))


def _numbers(row: Mapping[str, Any]) -> Iterator[str]:
    for name in ("requests", "input_tokens", "cached_tokens", "output_tokens"):
        yield f"{row[name]:,}"
    yield f"{row['seconds']:,.1f}"
