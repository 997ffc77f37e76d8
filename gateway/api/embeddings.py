"""Serve /v1/embeddings: texts in, vectors out, as numbers or base64, independent of the backend's encoding."""

import struct
from base64 import b64decode, b64encode
from math import hypot
from typing import Any, ClassVar, TypedDict

from msgspec import DecodeError, Raw, Struct, json

from gateway.api.body import COUNTS, Counts, decode_body
from gateway.api.validation import (
    TextInput,
    check_nonempty_texts,
    integer_between,
    object_of,
    one_of,
    string,
    text_characters,
    text_list,
)
from gateway.backends.openai.usage import list_entries, service_usage
from gateway.backends.services import BackendServices
from gateway.errors import UpstreamInvalid
from gateway.warnings import Warnings

_check = object_of(
    {"model": string, "input": check_nonempty_texts},
    {"dimensions": integer_between(1), "encoding_format": one_of("float", "base64"), "user": string},
)
_KNOWN = frozenset(("model", "input", "dimensions", "encoding_format", "user"))
_OF_OTHERS = (b'"', b"{", b"u", b"f")  # in all elements but numbers: text, objects, true, null, false
_vector = json.Decoder(str | list[float]).decode


class _EmbeddingEntry(TypedDict, total=False):
    """An entry with its vector undecoded.

    Most vectors pass unchanged, and no uninterruptible step takes long, even with thousands of them.
    """

    index: Any
    embedding: Raw


class _EmbeddingResponse(TypedDict, total=False):
    data: list[_EmbeddingEntry]
    usage: Any
    error: Any


_decode = json.Decoder(_EmbeddingResponse | list[_EmbeddingEntry]).decode


class EmbeddingsRequest(Struct, frozen=True):
    """The parsed body of an embeddings request.

    texts: each text of the input.
    rest: all fields but the model.
    """

    service: ClassVar[str] = "make embeddings"
    problem_param: ClassVar[str] = "input"
    model: str
    texts: list[TextInput]
    rest: dict[str, Any]

    def ask(self, services: BackendServices, model: str, ledger: Warnings) -> tuple[str, bytes] | None:
        """Return the path and body for a backend; None if it serves no embeddings."""
        if not services.embeddings:
            return None
        passed = {name: value for name, value in self.rest.items() if name not in services.unheard}
        for name in passed.keys() - _KNOWN:
            ledger.add("forwarded", name)
        return services.embeddings, json.encode({"model": model, **passed})

    def decode(self, raw: bytes) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the backend's body."""
        return _decode(raw)

    def answer(self, value: Any, ledger: Warnings) -> tuple[Any, int]:  # noqa: ANN401 - decoded JSON
        """Return the response and its tokens.  Raise UpstreamInvalid for missing, surplus or invalid vectors."""
        vectors: list[Any] = [None] * len(self.texts)
        for place, entry in enumerate(list_entries(value, "data")):
            index = entry.get("index", place)
            if not isinstance(index, int) or index not in range(len(vectors)) or vectors[index] is not None:
                raise UpstreamInvalid(
                    f"The backend returned an embedding with an invalid or repeated index: {index!r}."
                )
            vectors[index] = self._shown(entry.get("embedding", Raw(b"null")), ledger)
        if None in vectors:
            raise UpstreamInvalid(f"The backend returned no embedding for input {vectors.index(None)}.")
        data = [{"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)]
        usage = service_usage(value, text_characters(self.texts), ledger)
        return {"object": "list", "data": data, "model": self.model, "usage": usage}, usage["total_tokens"]

    def _shown(self, given: Raw, ledger: Warnings) -> Raw:
        """Return a vector in the requested encoding and number of dimensions."""
        wanted: int | None = self.rest.get("dimensions")
        encoding = "base64" if self.rest.get("encoding_format") == "base64" else "float"
        if _encoding(raw := bytes(given)) == encoding and (not wanted or wanted == _length(raw, encoding)):
            return given
        try:
            data = _vector(given)
            numbers = _numbers(data)
            if wanted and wanted != len(numbers):
                ledger.add("emulated" if wanted < len(numbers) else "unenforced", "dimensions")
                numbers = _cut(numbers, wanted)
            return Raw(json.encode(_packed(numbers) if encoding == "base64" else numbers))
        except (DecodeError, ValueError, struct.error, OverflowError):
            message = "The backend returned an embedding that is neither a list of numbers nor base64."
            raise UpstreamInvalid(message) from None


def parse_embeddings(raw: bytes, counts: Counts = COUNTS) -> EmbeddingsRequest:
    """Parse a body.  Raise BadRequest if the API does not allow it, and TooLarge for too many values."""
    body = decode_body(raw, counts)
    _check(body, "")
    return EmbeddingsRequest(
        body["model"], text_list(body["input"]), {name: body[name] for name in body if name != "model"}
    )


def _encoding(data: bytes) -> str | None:
    """Return the encoding of a vector in valid JSON, without decoding it; None for another value.

    A list without text, lists, objects, booleans and null holds numbers alone.
    """
    if data.startswith(b"["):
        return None if b"[" in data[1:] or any([mark in data for mark in _OF_OTHERS]) else "float"
    return "base64" if data.startswith(b'"') else None


def _length(data: bytes, encoding: str) -> int | None:
    """Return the length of a list of numbers; None if it has to be decoded for that."""
    return data.count(b",") + bool(data[1:-1].strip()) if encoding == "float" else None


def _numbers(text: str | list[float]) -> list[float]:
    """Return the numbers of a vector; base64 holds little-endian 32-bit floats."""
    if isinstance(text, list):
        return text
    raw = b64decode(text, validate=True)
    return [*struct.unpack(f"<{len(raw) // 4}f", raw)]


def _packed(numbers: list[float]) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


def _cut(numbers: list[float], dimensions: int) -> list[float]:
    """Return the first dimensions, scaled to length one again, as OpenAI's own models do."""
    if dimensions > len(numbers):
        return numbers
    length = hypot(*numbers[:dimensions]) or 1.0
    return [number / length for number in numbers[:dimensions]]
