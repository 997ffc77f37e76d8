"""Serve /v1/tokenize and /v1/detokenize: convert a text or conversation to tokens, and tokens to a text."""

from typing import Any, ClassVar

from msgspec import Struct, json

from gateway.api.body import COUNTS, Counts, decode_body
from gateway.api.validation import boolean, integer_between, list_of, missing_parameter, object_, object_of, string
from gateway.backends.services import BackendServices
from gateway.errors import BadRequest, UpstreamInvalid
from gateway.warnings import Warnings

_encodes = object_of(
    {"model": string}, {"prompt": string, "messages": list_of(object_, least=1), "add_special_tokens": boolean}
)
_decodes = object_of({"model": string, "tokens": list_of(integer_between(0))})


class TokenizeRequest(Struct, frozen=True):
    """The parsed body of a tokenize request.

    rest: all fields but the model.
    """

    service: ClassVar[str] = "tokenize texts"
    problem_param: ClassVar[str] = "prompt"
    model: str
    rest: dict[str, Any]

    def ask(self, services: BackendServices, model: str, ledger: Warnings) -> tuple[str, bytes] | None:
        """Return the path and body for a backend; None if it does not tokenize.

        Sets `add_special_tokens` for a prompt, because the servers' defaults differ.
        Raise BadRequest for messages if the backend tokenizes texts only.
        """
        names = services.tokenize
        if not names:
            return None
        if "messages" in self.rest and "messages" not in names:
            message = "This model's backend tokenizes only text. Send 'prompt' instead of 'messages'."
            raise BadRequest(message, code="unsupported_value", param="messages")
        for name in self.rest.keys() - names.keys():
            ledger.add("dropped", name)
        special = {"add_special_tokens": True} if "prompt" in self.rest else {}
        fields = {"model": model, **special, **self.rest}
        return "/tokenize", json.encode({names[name]: value for name, value in fields.items() if name in names})

    def decode(self, raw: bytes) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the backend's body."""
        return json.decode(raw)

    def answer(self, data: Any, _: Warnings) -> tuple[Any, int]:  # noqa: ANN401 - decoded JSON
        """Return the response, which has read no tokens.  Raise UpstreamInvalid without a list of tokens."""
        found = data.get("tokens") if isinstance(data, dict) else None
        if not isinstance(found, list) or not all(isinstance(token, int) for token in found):
            raise UpstreamInvalid("The backend's response has no list of tokens.")
        longest = data.get("max_model_len")
        return {"tokens": found, "count": len(found), **({"max_model_len": longest} if longest else {})}, 0


class DetokenizeRequest(Struct, frozen=True):
    """The parsed body of a detokenize request."""

    service: ClassVar[str] = "convert tokens to text"
    problem_param: ClassVar[str] = "tokens"
    model: str
    tokens: list[int]
    rest: dict[str, Any] = {}

    def ask(self, services: BackendServices, model: str, _: Warnings) -> tuple[str, bytes] | None:
        """Return the path and body for a backend; None if it does not detokenize."""
        if not services.tokenize:
            return None
        return "/detokenize", json.encode({"model": model, "tokens": self.tokens})

    def decode(self, raw: bytes) -> Any:  # noqa: ANN401 - decoded JSON
        """Decode the backend's body."""
        return json.decode(raw)

    def answer(self, data: Any, _: Warnings) -> tuple[Any, int]:  # noqa: ANN401 - decoded JSON
        """Return the response in vLLM's shape, which has read no tokens.  Raise UpstreamInvalid without a text."""
        texts = [data.get(name) for name in ("prompt", "content", "text")] if isinstance(data, dict) else []
        text = next((text for text in texts if isinstance(text, str)), None)
        if text is None:
            raise UpstreamInvalid("The backend's response has no text.")
        return {"prompt": text}, 0


def parse_tokenize(raw: bytes, counts: Counts = COUNTS) -> TokenizeRequest:
    """Parse a body.  Raise BadRequest if the API does not allow it, and TooLarge for too many values."""
    body = decode_body(raw, counts)
    _encodes(body, "")
    if "prompt" not in body and "messages" not in body:
        raise missing_parameter("prompt")
    if "prompt" in body and "messages" in body:
        raise BadRequest(
            "'prompt' and 'messages' are mutually exclusive. Send only one of them.",
            code="invalid_value",
            param="messages",
        )
    return TokenizeRequest(body.pop("model"), body)


def parse_detokenize(raw: bytes, counts: Counts = COUNTS) -> DetokenizeRequest:
    """Parse a body.  Raise BadRequest if the API does not allow it, and TooLarge for too many values."""
    body = decode_body(raw, counts)
    _decodes(body, "")
    return DetokenizeRequest(body["model"], body["tokens"])
