"""The chat APIs of backends: path, request body and decoder of each."""

from collections.abc import Callable, Mapping, Set
from types import MappingProxyType

from msgspec import Struct

from gateway.backends.ollama import FIELDS
from gateway.backends.ollama import OllamaDecoder as NativeDecoder
from gateway.backends.ollama import ollama_body as native_body
from gateway.backends.openai.decoder import ChatDecoder
from gateway.backends.openai.request_body import BodyTarget, chat_body, requested_extra_fields, requested_top_logprobs
from gateway.request import Request
from gateway.warnings import Warnings


class Dialect(Struct, frozen=True):
    """A chat API: requests are POSTs to `path`.

    body: encode a request, see `openai.request_body.chat_body`.
    decoder: return a new decoder for the response to a request.
    thinking: the reasoning fields, if a model without reasoning rejects a request that has one; else empty.
    """

    path: str
    body: Callable[[Request, BodyTarget, Set[str], Warnings], bytes]
    decoder: Callable[[Request, Warnings], ChatDecoder]
    thinking: frozenset[str] = frozenset()


DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "openai": Dialect(
            "/v1/chat/completions",
            chat_body,
            lambda request, ledger: ChatDecoder(
                ledger, request.n, requested_extra_fields(request), requested_top_logprobs(request)
            ),
        ),
        "ollama": Dialect("/api/chat", native_body, lambda _, ledger: NativeDecoder(ledger), FIELDS),
    }
)
