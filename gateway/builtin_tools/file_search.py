"""File search in the terms of the Responses API, over the vector stores of a server of the operator."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.builtin_tools.citations import CitedSource, Sources
from gateway.builtin_tools.search_engines import SearchRequest
from gateway.builtin_tools.tool_calls import BuiltinTool, OutputItemDict
from gateway.builtin_tools.untrusted_text import sanitize
from gateway.builtin_tools.web_search import failed_search_item, numbered_text
from gateway.request import Tool

NAMESPACE = "file_search"
_PREFIX = "fs_"
_MAX = 10  # results, if the client sets no limit
_PASSED = ("filters", "ranking_options")
_DEFINITION = {
    "name": "search",
    "description": "Searches the files that are there: gives passages of them, each with a number.",
    "parameters": {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to search for."}},
        "required": ["query"],
    },
}


class FilePassage(Struct, frozen=True):
    """A passage of a file; attributes: the attributes of the file in the vector store."""

    file_id: str
    filename: str
    score: float
    text: str
    attributes: dict[str, str | float | bool]


def file_search_tool() -> BuiltinTool:
    """Return the file search tool, as a model is offered it."""
    item: OutputItemDict = {"type": "file_search_call", "status": "in_progress", "queries": [], "results": None}
    return BuiltinTool(Tool("search", _DEFINITION, namespace=NAMESPACE, hosted=True), item, _PREFIX, failed_search_item)


def store_queries(definition: Mapping[str, Any], query: str) -> Iterator[SearchRequest]:
    """Yield one search request per vector store of the tool definition."""
    given = {name: definition[name] for name in _PASSED if definition.get(name) is not None}
    for id in definition["vector_store_ids"]:
        yield SearchRequest(
            f"/v1/vector_stores/{id}/search", json={"query": query, "max_num_results": max_results(definition), **given}
        )


def max_results(definition: Mapping[str, Any]) -> int:
    """Return the upper bound for results: the client's, else the default."""
    number: int = definition.get("max_num_results") or _MAX
    return number


def read_passages(data: Any) -> Iterator[FilePassage]:  # noqa: ANN401 - decoded JSON
    """Yield the passages in a search response of one store.  Malformed entries are skipped."""
    listed = data.get("data") if isinstance(data, dict) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(id := one.get("file_id"), str):
            name, score = one.get("filename"), one.get("score")
            yield FilePassage(
                id,
                " ".join(sanitize(name).split()) if isinstance(name, str) else id,
                float(score) if isinstance(score, int | float) else 0.0,
                sanitize(_text(one.get("content"))).strip(),
                _attributes(one.get("attributes")),
            )


def passages_result(found: Iterable[FilePassage], number: int, sources: Sources) -> tuple[str, list[OutputItemDict]]:
    """Return the best passages, as text for the model and as results of the output item."""
    best: Sequence[FilePassage] = sorted(found, key=lambda one: -one.score)[:number]
    parts = []
    for one in best:
        its = sources.number_of(CitedSource(one.filename, file_id=one.file_id))
        parts.append(f"[{its}] {one.filename}\n{one.text}")
    return numbered_text(parts), [_result(one) for one in best]


def _result(one: FilePassage) -> OutputItemDict:
    fields = {"file_id": one.file_id, "filename": one.filename, "score": one.score}
    return {**fields, "attributes": one.attributes, "text": one.text}


def _text(content: Any) -> str:  # noqa: ANN401 - decoded JSON
    parts = content if isinstance(content, list) else ()
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def _attributes(data: Any) -> dict[str, str | float | bool]:  # noqa: ANN401 - decoded JSON
    if not isinstance(data, dict):
        return {}
    return {name: value for name, value in data.items() if isinstance(value, str | int | float | bool)}
