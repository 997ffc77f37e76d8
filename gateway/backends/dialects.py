"""The chat APIs of backends: path, request body and decoder of each."""

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType

from msgspec import Struct

from gateway.backends import Kind
from gateway.backends.anthropic import request_body as messages_api
from gateway.backends.anthropic.decoder import MessageDecoder
from gateway.backends.field_rules import PASSED
from gateway.backends.ollama import FIELDS
from gateway.backends.ollama import OllamaDecoder as NativeDecoder
from gateway.backends.ollama import ollama_body as native_body
from gateway.backends.openai.decoder import ChatDecoder
from gateway.backends.openai.messages import MessagePolicy
from gateway.backends.openai.request_body import BodyTarget, chat_body, chat_decoder
from gateway.backends.request_fields import part_rule
from gateway.request import EncodedPast, Request
from gateway.warnings import Warnings


def bearer_headers(key: str) -> Mapping[str, str]:
    """Return the header of an API key; none without one."""
    return {"authorization": f"Bearer {key}"} if key else {}


def anthropic_headers(key: str) -> Mapping[str, str]:
    """Return the headers of Anthropic's API: the version, and the API key if there is one."""
    return {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}


_VERSION = "2023-06-01"


class Dialect(Struct, frozen=True):
    """A chat API: requests are POSTs to `path`.

    body: encode a request, see `openai.request_body.chat_body`.
    decoder: return a new decoder for the response to a request.
    thinking: the reasoning fields, if a model without reasoning rejects a request that has one; else empty.
    sent_body: return the body that a client of the same API sent; None: only clients of other APIs are known.
    takes_past: `body` accepts an encoded past.
    models: the path of the list of models.
    headers: return the headers of all requests, from the API key or "".
    """

    path: str
    body: Callable[[Request, BodyTarget, Set[str], Warnings], bytes]
    decoder: Callable[[Request, Warnings], ChatDecoder]
    thinking: frozenset[str] = frozenset()
    sent_body: Callable[[Request, BodyTarget, Warnings], bytes] | None = None
    takes_past: bool = False
    models: str = "/v1/models"
    headers: Callable[[str], Mapping[str, str]] = bearer_headers

    def fit_past(self, request: Request, past: EncodedPast, kind: Kind, policy: MessagePolicy) -> Request:
        """Return the request, with all its messages if the server needs them in another form than the encoded one."""
        return request if self.takes_past and _fits(past, kind, policy) else request.with_whole_past()


def _fits(past: EncodedPast, kind: Kind, policy: MessagePolicy) -> bool:
    """Return True if the server gets the messages unchanged."""
    if past.has_images and part_rule("image_url", kind) != PASSED:
        return False
    return (past.alternates or not policy.alternate) and not (past.has_text_beside_calls and policy.calls_alone)


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "openai": Dialect(
            "/v1/chat/completions",
            chat_body,
            chat_decoder,
            takes_past=True,
        ),
        "ollama": Dialect("/api/chat", native_body, lambda _, ledger: NativeDecoder(ledger), FIELDS),
        "anthropic": Dialect(
            messages_api.PATH,
            messages_api.message_body,
            lambda request, ledger: MessageDecoder(ledger, native=request.sent is not None),
            sent_body=messages_api.client_body,
            models="/v1/models?limit=1000",
            headers=anthropic_headers,
        ),
    }
)
