"""Check requests for files and uploads by the rules of OpenAI's API.

Purposes, lifetimes and sizes are those that the API's reference publishes.
"""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import DecodeError, Struct, json

from gateway.api.validation import integer_between, list_of, object_of, one_of, string, string_of
from gateway.errors import BadRequest

PART_BYTES = 64 << 20  # of a part of an upload
UPLOAD_SECONDS = 3600  # from the creation of an upload to its end
_HOUR, _DAY = 3600, 86_400
_BATCH_BYTES = 200_000_000
_BATCH_SECONDS = 30 * _DAY  # lifetime of the input of a batch, if the client says nothing
_MAX_NAME = 1024  # characters
_MAX_PARTS = 100_000
_EXPIRES_AFTER = "expires_after"
_LINES = ("batch", "fine-tune")  # purposes of files with a JSON object in each line

_FILE = {
    "purpose": one_of("assistants", "batch", "fine-tune", "vision", "user_data", "evals"),
    "filename": string_of(_MAX_NAME, least=1),
}
_EXPIRY = {
    _EXPIRES_AFTER: object_of({"anchor": one_of("created_at"), "seconds": integer_between(_HOUR, 30 * _DAY)}),
}
_check_file = object_of(_FILE, _EXPIRY)
check_upload = object_of({**_FILE, "bytes": integer_between(0), "mime_type": string}, {**_EXPIRY})
check_completion = object_of({"part_ids": list_of(string, least=1, most=_MAX_PARTS)}, {"md5": string})
_NUMBER = re.compile(r"[0-9]{1,18}")
_MEMBER = re.compile(rf"{_EXPIRES_AFTER}[\[.](\w+)\]?")  # older SDKs for Go have a dot


class FileParams(Struct, frozen=True):
    """The description of a new file; lifetime: seconds, None: forever."""

    filename: str
    purpose: str
    lifetime: int | None

    def expires_at(self, now: int) -> int | None:
        """Return the end of a file that begins now, in Unix seconds."""
        return None if self.lifetime is None else now + self.lifetime

    def check_size(self, size: int) -> None:
        """Raise BadRequest for a file that is too large for its purpose."""
        if self.purpose == "batch" and size > _BATCH_BYTES:
            message = f"The input file of a batch has {size} bytes, more than the maximum of {_BATCH_BYTES}. Split it."
            raise BadRequest(message, code="file_too_large", param="file")


def form_params(fields: Mapping[str, str], filename: str) -> FileParams:
    """Return the description of a file that came as a form.  Raise BadRequest for an invalid one."""
    body: dict[str, Any] = {"filename": filename}
    if "purpose" in fields:
        body["purpose"] = fields["purpose"]
    if (after := _expiry(fields)) is not None:
        body[_EXPIRES_AFTER] = after
    _check_file(body, "")
    return file_params(body)


def _expiry(fields: Mapping[str, str]) -> object:
    """Return the member `expires_after`, from a field for each of its members or from one with JSON; None without."""
    found = {member[1]: text for name, text in fields.items() if (member := _MEMBER.fullmatch(name))}
    if found:
        return {name: int(text) if _NUMBER.fullmatch(text) else text for name, text in found.items()}
    text = fields.get(_EXPIRES_AFTER, "")
    try:
        return json.decode(text) if text else None
    except (DecodeError, RecursionError):
        return text


def file_params(body: Mapping[str, Any]) -> FileParams:
    """Return the description of a file; raise BadRequest for a type that its purpose excludes.

    body: has passed a check.
    """
    purpose, filename = body["purpose"], body["filename"]
    if purpose in _LINES and not filename.lower().endswith(".jsonl"):
        message = f"Invalid file format for the purpose '{purpose}': the name '{filename}' has to end with '.jsonl'."
        raise BadRequest(message, code="invalid_value", param="file")
    after = body.get(_EXPIRES_AFTER)
    return FileParams(filename, purpose, after["seconds"] if after else _BATCH_SECONDS if purpose == "batch" else None)
