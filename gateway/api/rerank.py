"""Serve /v1/rerank: rank documents by their relevance to a query, the best first.

Requests and responses have the shape of Cohere and Jina, or that of Text Embeddings Inference (TEI).
"""

from math import isfinite
from typing import Any, ClassVar, TypeGuard

from msgspec import Struct, json

from gateway.api.body import COUNTS, Counts, decode_body
from gateway.api.validation import boolean, integer_between, list_of, object_, object_of, string
from gateway.backends.openai.usage import list_entries, service_usage
from gateway.backends.services import BackendServices
from gateway.errors import UpstreamInvalid
from gateway.warnings import Warnings


def _document(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(value, str):
        object_(value, param)


class RerankShape(Struct, frozen=True):
    """The names of the members that differ between the APIs.

    shown: the member of a request by which the results include the documents.
    """

    documents: str
    shown: str

    def names(self) -> frozenset[str]:
        """Return the names of the members of a request."""
        return frozenset(("model", "query", "top_n", self.documents, self.shown))

    def check(self, body: Any) -> None:  # noqa: ANN401 - decoded JSON
        """Raise BadRequest for a body that the API does not allow."""
        required = {"model": string, "query": string, self.documents: list_of(_document, least=1)}
        object_of(required, {"top_n": integer_between(1), self.shown: boolean})(body, "")


_COHERE = RerankShape("documents", "return_documents")
_TEI = RerankShape("texts", "return_text")


class RerankRequest(Struct, frozen=True):
    """The parsed body of a rerank request.

    shown: the results include the documents.
    rest: all other fields, which a backend may know.
    """

    service: ClassVar[str] = "rank documents"
    model: str
    query: str
    documents: list[str | dict[str, Any]]
    top_n: int | None
    shown: bool
    rest: dict[str, Any]
    shape: RerankShape = _COHERE

    @property
    def problem_param(self) -> str:
        """The parameter of the documents, for errors."""
        return self.shape.documents

    def ask(self, services: BackendServices, model: str, ledger: Warnings) -> tuple[str, bytes] | None:
        """Return the path and body for a backend; None if it ranks no documents.

        Documents that hold only text are sent as strings, which every server accepts.
        """
        if not services.rerank:
            return None
        sent = [document if (text := _text(document)) is None else text for document in self.documents]
        if sent != self.documents:
            ledger.add("translated", "texts" if self.shape is _TEI else "documents")
        for name in self.rest:
            ledger.add("forwarded", name)
        most = {} if self.top_n is None else {"top_n": self.top_n}
        return services.rerank, json.encode(
            {"model": model, "query": self.query, "documents": sent, **most, **self.rest}
        )

    def decode(self, raw: bytes) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the backend's body."""
        return json.decode(raw)

    def answer(self, data: Any, ledger: Warnings) -> tuple[Any, int]:  # noqa: ANN401 - decoded JSON
        """Return the response and its tokens.  Raise UpstreamInvalid for an unknown document or a missing score."""
        scores: dict[int, float] = {}
        for entry in list_entries(data, "results", "data"):
            index, score = entry.get("index"), entry.get("relevance_score", entry.get("score"))
            if not isinstance(index, int) or index not in range(len(self.documents)) or not _is_number(score):
                raise UpstreamInvalid(
                    "The backend returned a result with an invalid document index or without a score."
                )
            scores[index] = score
        best = sorted(scores.items(), key=lambda scored: -scored[1])[: self.top_n]
        characters = sum(len(self.query) + len(str(document)) for document in self.documents)
        usage = service_usage(data, characters, ledger)
        results = [self._result(index, score) for index, score in best]
        whole = {"object": "list", "model": self.model, "results": results, "usage": usage}
        return results if self.shape is _TEI else whole, usage["total_tokens"]

    def _result(self, index: int, score: float) -> dict[str, Any]:
        document = self.documents[index]
        if self.shape is _TEI:
            return {"index": index, "score": score, **({"text": document} if self.shown else {})}
        shown = {"document": {"text": document} if isinstance(document, str) else document} if self.shown else {}
        return {"index": index, "relevance_score": score, **shown}


def parse_rerank(raw: bytes, counts: Counts = COUNTS) -> RerankRequest:
    """Parse a body.  Raise BadRequest if the API does not allow it, and TooLarge for too many values."""
    body = decode_body(raw, counts)
    shape = _TEI if "texts" in body and "documents" not in body else _COHERE
    shape.check(body)
    rest = {name: value for name, value in body.items() if name not in shape.names()}
    documents, shown = body[shape.documents], body.get(shape.shown, False)
    return RerankRequest(body["model"], body["query"], documents, body.get("top_n"), shown, rest, shape)


def _text(document: str | dict[str, Any]) -> str | None:
    """Return the text of a document that holds nothing else."""
    match document:
        case {"text": str(text), **rest} if not rest:
            return text
    return None


def _is_number(score: object) -> TypeGuard[float]:
    return isinstance(score, int | float) and not isinstance(score, bool) and isfinite(score)
