"""Prepare the body of a message for a backend that speaks the same API, which gets it as the client sent it.

Signatures that the gateway made become those of the backend again.  Ids of calls that another backend made get the
characters that the API takes.  Blocks and tools of types that only the backend knows are left out of the neutral
request.
"""

from collections.abc import Callable, Mapping

from gateway.api.messages import input_blocks, tools
from gateway.api.messages.message_object import JsonObject
from gateway.api.messages.thinking import OpenSeal, ThoughtReader
from gateway.backends.anthropic.messages import fit_call_id
from gateway.errors import BadRequest
from gateway.request import Request, SentBody
from gateway.warnings import Warnings

_SEALED = ("encrypted_content", "content")  # members that the gateway may have sealed


def sent_body(
    body: JsonObject, request: Request, open: OpenSeal, ledger: Warnings, refusal: BadRequest | None
) -> SentBody:
    """Return the body beside the request that it was parsed to.

    ledger: the warnings of parsing; refusal: the error of a part that the request lacks.
    """
    notes = Warnings()
    reader = _BodyReader(ThoughtReader(open, request.model, notes))
    messages = [reader.message(message) for message in body["messages"]]
    fields = None if reader.is_ours else {**body, "messages": [message for message in messages if message["content"]]}
    neutral = request.messages, request.tools, request.rest
    return SentBody(fields, *neutral, tuple(ledger.entries()), tuple(notes.entries()), refusal)


def readable_body(body: JsonObject) -> JsonObject | None:
    """Return the body without blocks and tools of unknown types; None if it has none."""
    messages = [_readable_message(message) for message in body["messages"]]
    given = body.get("tools") or []
    known = [tool for tool in given if not isinstance(tool, dict) or tools.is_known(tool.get("type"))]
    if messages == body["messages"] and known == given:
        return None
    return {**body, "messages": messages, **({"tools": known} if given else {})}


def _readable_message(message: JsonObject) -> JsonObject:
    content, types = message["content"], input_blocks.TYPES[message["role"]]
    if isinstance(content, str):
        return message
    return {**message, "content": [block for block in content if not _is_unknown(block, types)]}


def _is_unknown(block: object, types: frozenset[str]) -> bool:
    """Return True for a block of another type; one without a type is a fault."""
    type = block.get("type") if isinstance(block, dict) else None
    return isinstance(type, str) and type not in types


class _BodyReader:
    """Read the messages of one body.  is_ours: some block can be read only by the gateway."""

    def __init__(self, reader: ThoughtReader) -> None:
        self._reader = reader
        self.is_ours = False

    def message(self, message: JsonObject) -> JsonObject:
        """Return a message with the signatures of the backend, and ids that it takes."""
        content = message["content"]
        if message["role"] == "system" or isinstance(content, str):
            return message
        if message["role"] == "user":
            blocks = [_result(block) if block["type"] == "tool_result" else block for block in content]
        else:
            blocks = [made for block in content for made in self._blocks(block)]
        return message if blocks == content else {**message, "content": blocks}

    def _blocks(self, block: JsonObject) -> list[JsonObject]:
        if read := _READERS.get(block["type"]):
            return read(self._reader, block)
        self.is_ours = self.is_ours or self._is_sealed(block)
        return [block]

    def _is_sealed(self, value: object) -> bool:
        """Return True if the gateway sealed a text in this value."""
        if isinstance(value, list):
            return any(map(self._is_sealed, value))
        if not isinstance(value, dict):
            return False
        texts = [value[name] for name in _SEALED if isinstance(value.get(name), str)]
        return any(map(self._reader.open, texts)) or self._is_sealed(value.get("content"))


def _thinking(reader: ThoughtReader, block: JsonObject) -> list[JsonObject]:
    """Return a thinking block as the backend signed it; none if another model wrote it."""
    signature = block.get("signature")
    if signature and not reader.open(signature):
        return [block]
    return _signed(reader, reader.thinking(block).blocks, "thinking")


def _redacted(reader: ThoughtReader, block: JsonObject) -> list[JsonObject]:
    if not reader.open(block["data"]):
        return [block]
    return _signed(reader, reader.redacted(block).blocks, "redacted_thinking")


def _signed(reader: ThoughtReader, blocks: tuple[JsonObject, ...], type: str) -> list[JsonObject]:
    if not blocks:
        reader.ledger.add("dropped", type)
    return [*blocks]


def _tool_use(_: ThoughtReader, block: JsonObject) -> list[JsonObject]:
    return [_with_fit_id(block, "id")]


def _result(block: JsonObject) -> JsonObject:
    return _with_fit_id(block, "tool_use_id")


def _with_fit_id(block: JsonObject, name: str) -> JsonObject:
    id = fit_call_id(block[name])
    return block if id == block[name] else {**block, name: id}


_READERS: Mapping[str, Callable[[ThoughtReader, JsonObject], list[JsonObject]]] = {
    "thinking": _thinking,
    "redacted_thinking": _redacted,
    "tool_use": _tool_use,
}
