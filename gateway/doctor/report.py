"""Format the verdicts as a table and as data."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from gateway.doctor.checks import newly_ignored_fields
from gateway.doctor.findings import Findings, Verdict

_WIDTH = 100  # characters of a line


class ExaminedModel(Struct, frozen=True):
    """A model, by the server's name for it."""

    model: str
    findings: Findings
    verdicts: Mapping[str, Verdict]


class ExaminedServer(Struct, frozen=True, kw_only=True):
    """A server, its name in the configuration, and those of its models that were examined.

    key: what stands for its key there; listed: all of its models; names: of those that have another name there.
    problem: why none of them could be examined, "" where they were.
    """

    name: str
    kind: str
    url: str
    key: str = ""
    listed_models: tuple[str, ...] = ()
    names: Mapping[str, str] = MappingProxyType({})
    models: tuple[ExaminedModel, ...] = ()
    problem: str = ""

    @property
    def ignores(self) -> tuple[str, ...]:
        """Fields that it takes and does nothing about, of which the gateway is yet to be told that."""
        return tuple(sorted({field for one in self.models for field in newly_ignored_fields(one.findings)}))

    @property
    def well(self) -> bool:
        """True if nothing was found wanting."""
        verdicts = [verdict for one in self.models for verdict in one.verdicts.values()]
        return not self.problem and all(verdict.state != "wanting" for verdict in verdicts)


def report_table(servers: Sequence[ExaminedServer]) -> str:
    return "\n\n".join("\n".join(_paragraph(server)) for server in servers)


def report_json(servers: Sequence[ExaminedServer]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "name": server.name,
            "kind": server.kind,
            "url": server.url,
            "ignores": [*server.ignores],
            "problem": server.problem or None,
            "models": [_model(one) for one in server.models],
        }
        for server in servers
    ]


def _model(one: ExaminedModel) -> dict[str, Any]:
    findings = one.findings
    verdicts = {
        name: {"verdict": verdict.state, "words": verdict.words, "advice": verdict.advice or None}
        for name, verdict in one.verdicts.items()
    }
    settings = {"format": findings.format, "thought": findings.thought}
    return {"model": one.model, "context_length": findings.metadata.window, **settings, "verdicts": verdicts}


def _paragraph(server: ExaminedServer) -> Iterator[str]:
    head = f"{server.name}: {server.kind} at {server.url}"
    if server.problem:
        yield head
        yield from _wrapped(server.problem, "  ")
    for one in server.models:
        yield _shown(f"{head}, model {one.model}")
        yield from _rows(one.verdicts)


def _rows(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """The words beside their names, the advice below them, where it is given first."""
    width, given = max(map(len, verdicts), default=0), {""}
    for name, verdict in verdicts.items():
        begin = f"  {name:{width}}  {verdict.state:7}  "
        indent = " " * len(begin)
        yield from _wrapped(verdict.words, begin)
        if verdict.advice not in given:
            yield from _wrapped(verdict.advice, f"{indent}→ ")
        given.add(verdict.advice)


def _wrapped(text: str, begin: str) -> list[str]:
    return wrap(_shown(text), _WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin))


def _shown(text: str) -> str:
    """A server's words must not steer the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
