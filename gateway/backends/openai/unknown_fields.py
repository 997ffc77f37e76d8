"""Find the members of a backend's response that the decoder does not interpret, with their values unchanged."""

from collections.abc import Mapping, Set
from typing import NamedTuple

from msgspec import Raw, json

from gateway.backends.openai import wire

_object = json.Decoder(dict[str, Raw]).decode
_objects = json.Decoder(list[dict[str, Raw]] | None).decode
_NULL = b"null"
# Members that the decoder interprets, so that the client gets their content in another form.
OF_CHUNK = frozenset(wire.WireChunk.__struct_fields__) - {"timings"} | {"id", "created", "model", "obfuscation"}
OF_CHOICE = frozenset(wire.WireChoice.__struct_fields__)
OF_MESSAGE = frozenset(wire.PlainMessage.__struct_fields__)

Members = Mapping[str, Raw]


class UnknownMembers(NamedTuple):
    """The members that the decoder does not interpret.

    response: of the chunk or response itself.
    choices: of each choice in its position, and of the message in it; [] if none has any.
    """

    response: Members
    choices: list[tuple[Members, Members]]


NOTHING = UnknownMembers({}, [])


def of_chunk(payload: bytes) -> UnknownMembers:
    """Return the members of a chat completion, whole or a chunk, that the decoder does not interpret.

    Raises msgspec.DecodeError for invalid JSON.
    """
    chunk = _object(payload)
    choices = _objects(raw) or () if (raw := chunk.get("choices")) else ()
    return UnknownMembers(without_known(chunk, OF_CHUNK), [_of_choice(choice) for choice in choices])


def of_plain_chunk(plain: wire.PlainChunk) -> UnknownMembers:
    """Return the only member of a plain chunk that the decoder does not interpret."""
    value = plain.system_fingerprint
    return UnknownMembers({"system_fingerprint": value}, []) if value and bytes(value) != _NULL else NOTHING


def of_message(raw: Raw | None) -> Members:
    """Return the members of a message or a delta that the decoder does not interpret."""
    return without_known(_object(raw), OF_MESSAGE) if raw and bytes(raw) != _NULL else {}


def without_known(members: Members, read: Set[str]) -> Members:
    """Return the members that are not in `read`, without nulls, which stand for absent values."""
    if members.keys() <= read:
        return {}
    return {name: value for name, value in members.items() if name not in read and bytes(value) != _NULL}


def _of_choice(choice: Members) -> tuple[Members, Members]:
    return without_known(choice, OF_CHOICE), {**of_message(choice.get("delta")), **of_message(choice.get("message"))}
