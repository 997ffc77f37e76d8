"""Serve /v1/embeddings: texts in, vectors out, as numbers or base64, independent of the backend's encoding.

Servers of other models also take objects with images in `input`, or `messages` in place of it, and return several
vectors for an input.
"""

import struct
from typing import Any, ClassVar, TypedDict

from msgspec import Raw, Struct, json

from gateway.api.body import COUNTS, Counts, decode_body
from gateway.api.chat.schema import READ_MESSAGES
from gateway.api.validation import (
    TextInput,
    check_nonempty_texts,
    integer_between,
    list_of,
    missing_parameter,
    object_of,
    one_of,
    string,
    text_characters,
    text_list,
)
from gateway.api.vectors import (
    decode_folded,
    decode_vector,
    encode_vector,
    encoding_of,
    length_of,
    shortened,
    vectors_in,
)
from gateway.backends.openai.usage import list_entries, service_usage
from gateway.backends.services import BackendServices
from gateway.errors import BadRequest, UpstreamInvalid
from gateway.request import Request
from gateway.warnings import Warnings

_MAX = 2048  # objects per request
EmbeddingInput = TextInput | dict[str, Any]


def _object_or_text(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(value, dict):
        check_nonempty_texts(value, param)


def _input(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """Check the input: texts as in OpenAI's API, an object, or a list with objects."""
    if isinstance(value, list) and any(type(one) is dict for one in value):
        list_of(_object_or_text, most=_MAX)(value, param)
    else:
        _object_or_text(value, param)


_check = object_of(
    {"model": string},
    {
        "input": _input,
        "messages": READ_MESSAGES,
        "dimensions": integer_between(1),
        "encoding_format": one_of("float", "base64"),
        "user": string,
    },
)
_KNOWN = frozenset(("model", "input", "dimensions", "encoding_format", "user"))
_OBJECT_TEXTS = ("prompt_string", "text")  # members of an object that the model reads as text
# Fields of vLLM, Jina and Voyage for vectors in a form that only the client can read.
_OWN_FORMS = frozenset(("embed_dtype", "endianness", "embedding_type", "output_dtype"))
LARGE = 1 << 20  # bytes of a response (thousands of vectors) that takes more than a few ms
_NOTHING = Raw(b"null")


class _EmbeddingEntry(TypedDict, total=False):
    """An entry with its vector undecoded; Jina has several vectors under `embeddings`.

    Most vectors pass unchanged, and no uninterruptible step takes long, even with thousands of them.
    """

    index: Any
    embedding: Raw
    embeddings: Raw


class _EmbeddingResponse(TypedDict, total=False):
    data: list[_EmbeddingEntry]
    usage: Any
    error: Any


_VECTORS = frozenset(("embedding", "embeddings"))
_decode = json.Decoder(_EmbeddingResponse | list[_EmbeddingEntry]).decode


class EmbeddingsRequest(Struct, frozen=True):
    """The parsed body of an embeddings request.

    inputs: each text or object of the input, or nothing.
    rest: all fields but the model and the messages.
    chat: the messages in place of the input, which get one embedding together.
    """

    service: ClassVar[str] = "make embeddings"
    model: str
    inputs: list[EmbeddingInput]
    rest: dict[str, Any]
    chat: Request | None = None

    @property
    def problem_param(self) -> str:
        """The parameter that holds the model's input, for errors."""
        return "messages" if self.chat else "input"

    @property
    def characters(self) -> int:
        """The number of characters that the model reads; images and other media do not count."""
        if self.chat:
            return sum(len(text) for message in self.chat.messages for text in _texts(message.get("content")))
        objects = [one for one in self.inputs if isinstance(one, dict)]
        read = [text for one in objects for name in _OBJECT_TEXTS if isinstance(text := one.get(name), str)]
        return text_characters([one for one in self.inputs if not isinstance(one, dict)]) + sum(map(len, read))

    def ask(self, services: BackendServices, model: str, ledger: Warnings) -> tuple[str, bytes] | None:
        """Return the path and body for a backend; None if it serves no embeddings.

        Raise BadRequest for messages, or for an object, that it does not take.
        """
        if not services.embeddings:
            return None
        self._check_input(services)
        passed = {name: value for name, value in self.rest.items() if name not in services.unheard}
        for name in passed.keys() - _KNOWN - services.embedding_fields:
            ledger.add("forwarded", name)
        messages = {"messages": self.chat.messages} if self.chat else {}
        return services.embeddings, json.encode({"model": model, **messages, **passed})

    def _check_input(self, services: BackendServices) -> None:
        if self.chat and not services.embeds_messages:
            message = "This model's backend makes no embeddings of messages. Send 'input' instead of 'messages'."
            raise BadRequest(message, code="unsupported_value", param="messages")
        names = services.embedding_objects
        for i, one in enumerate(() if names is None else self.inputs):
            if isinstance(one, dict) and not (names and one.keys() <= names):
                takes = f"objects with {', '.join(sorted(names))} alone" if names else "no objects"
                message = f"Invalid 'input[{i}]': this model's backend takes {takes} in 'input'."
                raise BadRequest(message, code="unsupported_value", param=f"input[{i}]")

    def decode(self, raw: bytes) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the backend's body."""
        if len(raw) < LARGE:
            return _decode(raw)
        value, lists = decode_folded(raw, _decode)
        for entry in value if isinstance(value, list) else value.get("data", ()):
            for name in _VECTORS & entry.keys():
                entry[name] = lists.get(bytes(entry[name]), entry[name])
        return value

    def answer(self, value: Any, ledger: Warnings) -> tuple[Any, int]:  # noqa: ANN401 - decoded JSON
        """Return the response and its tokens.  Raise UpstreamInvalid for missing, surplus or invalid vectors."""
        data: list[Any] = [None] * (1 if self.chat else len(self.inputs))
        for place, entry in enumerate(list_entries(value, "data")):
            index = entry.get("index", place)
            if not isinstance(index, int) or index not in range(len(data)) or data[index] is not None:
                raise UpstreamInvalid(
                    f"The backend returned an embedding with an invalid or repeated index: {index!r}."
                )
            name = "embeddings" if "embeddings" in entry else "embedding"
            data[index] = {"object": "embedding", "index": index, name: self._shown(entry.get(name, _NOTHING), ledger)}
        if None in data:
            raise UpstreamInvalid(f"The backend returned no embedding for input {data.index(None)}.")
        usage = service_usage(value, self.characters, ledger)
        return {"object": "list", "data": data, "model": self.model, "usage": usage}, usage["total_tokens"]

    def _shown(self, given: Raw, ledger: Warnings) -> Raw:
        """Return a vector in the requested encoding and number of dimensions; several vectors pass as they came."""
        wanted: int | None = self.rest.get("dimensions")
        raw, encoding = bytes(given), self._encoding
        if self.rest.keys() & _OWN_FORMS and given != _NOTHING and raw.isascii():
            return given
        theirs = encoding_of(raw)
        if theirs == encoding and (not wanted or (theirs == "float" and wanted == length_of(raw))):
            return given
        try:
            if theirs is None:
                self._check_several(raw, ledger)
                return given
            numbers = decode_vector(raw)
            if wanted and wanted != len(numbers):
                ledger.add("emulated" if wanted < len(numbers) else "unenforced", "dimensions")
                numbers = shortened(numbers, wanted)
            return Raw(encode_vector(numbers, encoding))
        except (ValueError, struct.error, OverflowError):
            raise _invalid() from None

    def _check_several(self, raw: bytes, ledger: Warnings) -> None:
        """Add warnings about several vectors of one input that are not as the request wanted them.  Raise ValueError.

        They pass as they came.
        """
        wanted: int | None = self.rest.get("dimensions")
        for one in vectors_in(raw):
            theirs = encoding_of(one)
            length = length_of(one) if theirs == "float" else len(decode_vector(one))
            if length != (wanted or length):
                ledger.add("unenforced", "dimensions")
            if theirs != self._encoding:
                ledger.add("unenforced", "encoding_format")

    @property
    def _encoding(self) -> str:
        return "base64" if self.rest.get("encoding_format") == "base64" else "float"


def parse_embeddings(raw: bytes, counts: Counts = COUNTS) -> EmbeddingsRequest:
    """Parse a body.  Raise BadRequest if the API does not allow it, and TooLarge for too many values."""
    body = decode_body(raw, counts)
    _check(body, "")
    rest = {name: value for name, value in body.items() if name not in ("model", "messages")}
    if body.get("messages") is None:
        return EmbeddingsRequest(body["model"], _inputs(rest), rest)
    if rest.pop("input", None) is not None:
        message = "'input' and 'messages' are mutually exclusive. Send only one of them."
        raise BadRequest(message, code="mutually_exclusive_parameters", param="messages")
    return EmbeddingsRequest(body["model"], [], rest, Request(model=body["model"], messages=(*body["messages"],)))


def _inputs(rest: dict[str, Any]) -> list[EmbeddingInput]:
    """Return each text or object of the input; an object alone becomes a list."""
    if rest.get("input") is None:
        raise missing_parameter("input")
    if isinstance(rest["input"], dict):
        rest["input"] = [rest["input"]]
    return [*text_list(rest["input"])]


def _texts(content: Any) -> list[str]:  # noqa: ANN401 - decoded JSON
    """Return the texts of a message."""
    parts = [content] if isinstance(content, str) else [part.get("text") for part in content or ()]
    return [text for text in parts if isinstance(text, str)]


def _invalid() -> UpstreamInvalid:
    return UpstreamInvalid("The backend returned an embedding that is neither a list of numbers nor base64.")
