"""Format the verdicts as a table and as data."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from gateway.backends.model_metadata import ModelMetadata
from gateway.doctor.checks import newly_ignored_fields
from gateway.doctor.findings import Findings, Verdict

_WIDTH = 100  # characters of a line
_CAPABILITIES = "capabilities"


class ExaminedModel(Struct, frozen=True):
    """An examined model, by the server's name for it."""

    model: str
    findings: Findings
    verdicts: Mapping[str, Verdict]


class ExaminedServer(Struct, frozen=True, kw_only=True):
    """A server and its examined models.

    name: its name in the configuration.
    key: the text for its API key in the configuration.
    listed_models: all models that the server lists.
    names: the server's model name → the name in the configuration.
    embedding_models: models that only make embeddings, by name; they get no probes.
    problem: why no model could be examined, or some models of the options could not; "" without a problem.
    """

    name: str
    kind: str
    url: str
    key: str = ""
    listed_models: tuple[str, ...] = ()
    names: Mapping[str, str] = MappingProxyType({})
    models: tuple[ExaminedModel, ...] = ()
    embedding_models: Mapping[str, ModelMetadata] = MappingProxyType({})
    problem: str = ""

    @property
    def ignores(self) -> tuple[str, ...]:
        """The fields that the server ignores, and that the gateway does not know it to ignore."""
        return tuple(sorted({field for one in self.models for field in newly_ignored_fields(one.findings)}))

    @property
    def failed(self) -> bool:
        """True if no model could be examined."""
        return bool(self.problem) and not self.models

    @property
    def well(self) -> bool:
        """True if there are no problems."""
        verdicts = [verdict for one in self.models for verdict in one.verdicts.values()]
        return not self.problem and all(verdict.state != "wanting" for verdict in verdicts)


def report_table(servers: Sequence[ExaminedServer]) -> str:
    """Return the verdicts as text."""
    return "\n\n".join("\n".join(_paragraph(server)) for server in servers)


def report_json(servers: Sequence[ExaminedServer]) -> list[dict[str, Any]]:
    """Return the verdicts as data for JSON."""
    return [
        {
            "name": server.name,
            "kind": server.kind,
            "url": server.url,
            "ignores": [*server.ignores],
            "problem": server.problem or None,
            "models": [_model(one) for one in server.models],
            "embedding_models": [
                {"model": name, "capabilities": known.capabilities} for name, known in server.embedding_models.items()
            ],
        }
        for server in servers
    ]


def _model(one: ExaminedModel) -> dict[str, Any]:
    findings = one.findings
    verdicts = {
        name: {"verdict": verdict.state, "words": verdict.words, "advice": verdict.advice or None}
        for name, verdict in one.verdicts.items()
    }
    known = findings.metadata
    shown = {"model": one.model, "context_length": known.window, "capabilities": known.capabilities}
    return {**shown, "format": findings.format, "thought": findings.thought, "verdicts": verdicts}


def _paragraph(server: ExaminedServer) -> Iterator[str]:
    head = f"{server.name}: {server.kind} at {server.url}"
    if server.problem:
        yield head
        yield from _wrapped(server.problem, "  ")
    for one in server.models:
        yield _shown(f"{head}, model {one.model}")
        yield from _rows(one.findings.metadata, one.verdicts)
    for name, known in server.embedding_models.items():
        yield _shown(f"{head}, model {name}")
        yield from _rows(known, {})


def _rows(known: ModelMetadata, verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Yield the lines of the capabilities and of the verdicts; each advice is given once."""
    width, given = max(map(len, (_CAPABILITIES, *verdicts))), {""}
    can = "unknown" if known.capabilities is None else ", ".join(known.capabilities) or "none"
    yield f"  {_CAPABILITIES:{width}}  {'':7}  {can}"
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
    """Remove control characters: text from a server must not control the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
