"""A response as it was asked for: what lies between parsing a request and encoding its answer."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from gateway.request import ApprovedToolCall, Request, StoredReasoning

Carrier = Literal["summary", "text", "both", "hidden"]


class BuiltinToolParams(Struct, frozen=True):
    """The tools that are to run at the gateway.

    definitions: of tools, secrets included.  lists: what servers have listed before, by their labels.
    approved: calls that may be made now.  most: calls, at most; None: the client did not say.
    """

    definitions: tuple[dict[str, Any], ...] = ()
    lists: Mapping[str, list[dict[str, Any]]] = {}
    approved: tuple[ApprovedToolCall, ...] = ()
    most: int | None = None


class ResponseParams(Struct, frozen=True, kw_only=True):
    """echo: the fields of the Response object that only repeat the request, all of them (`spec.md` C1).

    kept: it is to be stored, or added to a conversation.
    background: it is answered also where nobody waits; streamed: its client wants it as it comes.
    compact_above: a prompt of more tokens is to be compacted first; None: whatever its length, it is not.
    carrier: where the client wants to see the reasoning; None: it did not say.
    sealed: reasoning items carry it in `encrypted_content`.
    include: what it wants to see of items besides what they always show.
    logprobs: each token's chances go with the text; obfuscation: padding hides the lengths of deltas.
    """

    request: Request
    hosted: BuiltinToolParams = BuiltinToolParams()
    echo: dict[str, Any]
    kept: bool = False
    background: bool = False
    streamed: bool = False
    compact_above: int | None = None
    carrier: Literal["summary", "text"] | None = None
    sealed: bool = False
    include: frozenset[str] = frozenset()
    logprobs: bool = False
    obfuscation: bool = False


class ResponseHead(Struct, frozen=True):
    """The members that are the same in all of a response.  `created` in Unix seconds; `model` as the client named it.

    carrier: where the model's reasoning goes, as the operator has it.
    told: how many events the client has been told already, from its beginning on.
    """

    id: str
    created: int
    model: str
    carrier: Carrier = "summary"
    told: int = 0


class EncoderInputs(Struct, frozen=True):
    """The functions that an encoder needs, as it is pure.

    new_id: a prefix → an id; now: Unix seconds; seal: a thought → `encrypted_content`; pad: padding of a delta.
    """

    new_id: Callable[[str], str]
    now: Callable[[], int]
    seal: Callable[[StoredReasoning], str]
    pad: Callable[[], str]
