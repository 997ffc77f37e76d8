"""The command `gateway check`: a summary of a configuration, the whole of it, or a probe of what it names."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from gateway.config import Config, dump_effective
from gateway.formats import canonical_name
from gateway.formats.selection import choice_by_name
from gateway.server.process.dependencies import check_dependency, dependencies, static_checks

_AT_A_TIME = 16  # checks of servers


def summary_line(config: Config) -> str:
    """Return a line for a valid configuration: its numbers of backends and models."""
    lists_only = config.backends and not config.models
    models = "all listed models" if lists_only else _counted(len(config.models), "model")
    return f"ok: {_counted(len(config.backends), 'backend')}, {models}"


def effective_lines(config: Config) -> Iterator[str]:
    """Yield the effective configuration, and a comment for the format of each model."""
    yield dump_effective(config).rstrip("\n")
    for name, model in config.models.items():
        chosen = choice_by_name((model.upstream_model or name, name), canonical_name(model.format))
        unsure = ", unless its chat template names a format" if chosen.format == "auto" else ""
        yield f"# models.{name}: {chosen.format}; {chosen.reason}{unsure}"


def certificate_line(config: Config) -> tuple[bool, str]:
    """Return whether the certificate is valid for long, and a comment with its dates; "" without a certificate."""
    if not config.server.tls:
        return True, ""
    from gateway.server.http.tls import certificate_validity  # noqa: PLC0415 - most gateways have no certificate

    found = certificate_validity(config.server.tls)
    return not found.warns, f"# server.tls.certificate: {found.text}"


def probe(config: Config, say: Callable[[str], object]) -> bool:
    """Check the backends, the store, Redis, the certificate and the extras.  Return True if nothing is wrong.

    say: called with a line for each.
    """
    well = True
    with ThreadPoolExecutor(_AT_A_TIME) as threads:
        for check in chain(threads.map(check_dependency, dependencies(config)), static_checks(config)):
            say(check.line)
            well = well and not check.fails
    return well


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
