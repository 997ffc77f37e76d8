"""Convert the earlier messages of a chain to the form that every backend gets, whatever a later request offers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.errors import BadRequest
from gateway.request import Message, NamedFiles, Request
from gateway.transforms.attachments import Pdf, file_urls, files_to_text, has_files
from gateway.transforms.custom_tools import lowered_call
from gateway.transforms.past_tool_calls import ToolCallDict, map_calls
from gateway.transforms.stored_files import FileReference, StoredContent, file_references, inline_stored_files
from gateway.warnings import Warnings


def _unknown(_: bytes) -> tuple[str, bool]:
    raise LookupError


class FileContents(Struct, frozen=True):
    """The contents of the files that messages name.

    stored: files by id; pdf: returns the text of a PDF, or raises LookupError if it is not known.
    """

    stored: Mapping[str, StoredContent] = {}
    pdf: Pdf = _unknown


_PARTS = {"input_file": "file", "input_image": "image_url", "computer_screenshot": "image_url"}


def named_files(items: Iterable[Mapping[str, Any]]) -> list[FileReference]:
    """Return the references to stored files in the messages among stored items."""
    return [
        FileReference(id, type, "input")
        for item in items
        if isinstance(content := item.get("content"), list)
        for part in content
        if (type := _PARTS.get(part["type"])) and (id := part.get("file_id"))
    ]


def convert_past(
    contents: FileContents | None, messages: Sequence[Message], ledger: Warnings
) -> tuple[list[Message], NamedFiles] | None:
    """Return messages with the text of files and with functions for custom tools, and the stored files among them.

    Return None if a file may have another text later: one at a URL, an unknown one, or one that cannot be read.

    contents: None if the files stay unread.
    """
    lowered = [*map_calls(messages, _lowered_call)]
    request = Request(model="", messages=tuple(lowered))
    if not has_files(request):
        return lowered, NamedFiles()
    if contents is None:
        return None
    references = file_references(request)
    try:
        if file_urls(request) or not contents.stored.keys() >= {one.id for one in references}:
            return None
        inlined, outcomes = files_to_text(inline_stored_files(request, references, contents.stored), contents.pdf)
    except (BadRequest, LookupError):
        return None
    if references:
        ledger.add("translated", "file_id")
    for outcome in sorted(outcomes):
        ledger.add(outcome, "file")
    sizes = Counter[str]()
    for one in references:
        sizes[one.type] += len(contents.stored[one.id].data)
    return [*inlined.messages], NamedFiles(frozenset([one.id for one in references]), sizes)


def _lowered_call(call: ToolCallDict) -> ToolCallDict:
    """Return the call of a custom tool as that of a function.  The name of one in a namespace depends on the tools."""
    return call if "namespace" in call[call["type"]] else lowered_call(call)
