"""Convert the content blocks of users and tools to the parts of chat messages.

Documents and search results become text, in tags that name them.  Files are read later, with those of the other APIs.
"""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from msgspec import Struct, json

from gateway.api.messages.block_members import report_unknown_members
from gateway.api.messages.errors import refused
from gateway.api.validation import ParamCheck, list_of, object_, object_of, string
from gateway.errors import BadRequest
from gateway.request import tool_reference_text
from gateway.warnings import Warnings

Block = dict[str, Any]
Part = dict[str, Any]
Content = str | list[Part]

_REFERENCE = "tool_reference"
_LIKE_ERROR = 40  # first characters in which a text may say that it is an error


def text_part(text: str) -> Part:
    """Return the part of a text."""
    return {"type": "text", "text": text}


def unknown_tag(type: str, param: str, expected: Iterable[str]) -> BadRequest:
    """Return the error for an object whose `type` is not an expected one."""
    tags = ", ".join(f"'{tag}'" for tag in expected)
    return refused(f"Input tag '{type}' found using 'type' does not match any of the expected tags: {tags}", param)


def listed_blocks(content: str | list[Any]) -> list[Any]:
    """Return the blocks of a content; a string is one text block."""
    return [text_part(content)] if isinstance(content, str) else content


def joined_parts(parts: list[Part]) -> Content:
    """Return parts as the content of a chat message; a single text is a string."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        text: str = parts[0]["text"]
        return text
    return parts


_TYPED = object_of({"type": string})


def block_type(block: Any, param: str) -> str:  # noqa: ANN401 - decoded JSON
    """Return the type of a block.  Raise BadRequest if it has none."""
    _TYPED(block, param)
    type: str = block["type"]
    return type


class _PartType(Struct, frozen=True):
    check: ParamCheck
    read: Callable[[Block, str, Warnings], list[Part]]


def content_parts(content: str | list[Any], param: str, types: Mapping[str, _PartType], ledger: Warnings) -> list[Part]:
    """Return the parts of a content whose blocks have these types, without empty texts."""
    parts: list[Part] = []
    for i, block in enumerate(listed_blocks(content)):
        parts += block_parts(block, f"{param}[{i}]", types, ledger)
    return parts


def block_parts(block: Any, param: str, types: Mapping[str, _PartType], ledger: Warnings) -> list[Part]:  # noqa: ANN401 - decoded JSON
    """Return the parts of one block.  Raise BadRequest for another type or invalid members."""
    type = block_type(block, param)
    row = types.get(type)
    if not row:
        raise unknown_tag(type, param, types)
    row.check(block, param)
    report_unknown_members(block, ledger)
    return row.read(block, param, ledger)


def result_content(block: Block, param: str, ledger: Warnings) -> Content:
    """Return the content of a tool_result: one text, or parts if it has images or files."""
    parts = content_parts(block.get("content") or [], f"{param}.content", RESULT, ledger)
    if block.get("is_error") or any(part["type"] != _REFERENCE for part in parts):
        parts = [_reference_text(part, ledger) for part in parts]
    if all(part["type"] == "text" for part in parts):
        text = "\n".join(part["text"] for part in parts)
        return f"Error: {text}" if _needs_mark(block, text) else text
    first = next((part["text"] for part in parts if part["type"] == "text"), "")
    return [text_part("Error:"), *parts] if _needs_mark(block, first) else parts


def _needs_mark(block: Block, text: str) -> bool:
    """Return True for an error whose text does not say so: chat messages have no flag for errors."""
    return block.get("is_error") is True and "error" not in text[:_LIKE_ERROR].casefold()


# Each type of block


def _text(block: Block, _: str, __: Warnings) -> list[Part]:
    return [text_part(block["text"])] if block["text"] else []


_BASE64: dict[str, ParamCheck] = {"media_type": string, "data": string}
_URL: dict[str, ParamCheck] = {"url": string}
_FILE: dict[str, ParamCheck] = {"file_id": string}
_IMAGE_SOURCES: dict[str, ParamCheck] = {"base64": object_of(_BASE64), "url": object_of(_URL), "file": object_of(_FILE)}


def _source(block: Block, param: str, among: Mapping[str, ParamCheck]) -> Block:
    """Return the checked source of a block."""
    source: Block = block["source"]
    _TYPED(source, f"{param}.source")
    if source["type"] not in among:
        raise unknown_tag(source["type"], f"{param}.source", among)
    among[source["type"]](source, f"{param}.source")
    return source


def _image(block: Block, param: str, _: Warnings) -> list[Part]:
    source = _source(block, param, _IMAGE_SOURCES)
    match source["type"]:
        case "file":
            image = {"file_id": source["file_id"]}
        case "url":
            image = {"url": source["url"]}
        case _:
            image = {"url": _data_url(source)}
    return [{"type": "image_url", "image_url": image}]


def _data_url(source: Block) -> str:
    return f"data:{source['media_type']};base64,{source['data']}"


def _document(block: Block, param: str, ledger: Warnings) -> list[Part]:
    source = _source(block, param, _DOCUMENT_SOURCES)
    _note_citations(block, ledger)
    match source["type"]:
        case "text":
            return [text_part(_tagged("document", block, ("title", "context"), source["data"]))]
        case "content":
            parts = content_parts(source["content"], f"{param}.source.content", _INNER, ledger)
            return _framed_document(block, ("title", "context"), parts)
        case "file":
            file = {"file_id": source["file_id"]}
        case "url":
            file = {"file_url": source["url"]}
        case _:
            file = {"file_data": _data_url(source)}
    if block.get("title"):
        file["filename"] = block["title"]
    return _framed_document(block, ("context",), [{"type": "file", "file": file}])


def _framed_document(block: Block, names: tuple[str, ...], parts: list[Part]) -> list[Part]:
    """Return the parts of a document, between tags if the block describes it by members of these names."""
    if not any(block.get(name) for name in names):
        return parts
    return [text_part(_opening_tag("document", block, names)), *parts, text_part("</document>")]


def _note_citations(block: Block, ledger: Warnings) -> None:
    if (block.get("citations") or {}).get("enabled"):
        ledger.add("dropped", "citations")


def _tagged(tag: str, block: Block, names: tuple[str, ...], text: str) -> str:
    return f"{_opening_tag(tag, block, names)}{text}</{tag}>"


def _opening_tag(tag: str, block: Block, names: tuple[str, ...]) -> str:
    attributes = "".join(f' {name}="{escape(block[name])}"' for name in names if block.get(name))
    return f"<{tag}{attributes}>"


def _search_result(block: Block, param: str, ledger: Warnings) -> list[Part]:
    _note_citations(block, ledger)
    parts = content_parts(block["content"], f"{param}.content", _TEXTS, ledger)
    text = "\n".join(part["text"] for part in parts)
    return [text_part(_tagged("search_result", block, ("title", "source"), text))]


def _tool_reference(block: Block, _: str, __: Warnings) -> list[Part]:
    return [{"type": _REFERENCE, "name": block["tool_name"]}]


def _reference_text(part: Part, ledger: Warnings) -> Part:
    """Return a reference to a tool beside other parts as a text; servers take references only alone."""
    if part["type"] != _REFERENCE:
        return part
    ledger.add("translated", _REFERENCE)
    return text_part(tool_reference_text(part["name"]))


def _browser_state(block: Block, _: str, ledger: Warnings) -> list[Part]:
    """Give the model the block as JSON, as no template knows it."""
    ledger.add("translated", "browser_state")
    attributes = {name: value for name, value in block.items() if name not in ("type", "cache_control")}
    return [text_part(json.encode(attributes).decode())]


def _upload(_: Block, __: str, ledger: Warnings) -> list[Part]:
    ledger.add("dropped", "container_upload")
    return []


def _content(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if not isinstance(value, str):
        list_of(object_)(value, param)


_TEXTS = {"text": _PartType(object_of({"text": string}), _text)}
_IMAGE = _PartType(object_of({"source": object_}), _image)
_INNER = {**_TEXTS, "image": _IMAGE}
_DOCUMENT_SOURCES: dict[str, ParamCheck] = {
    "base64": object_of(_BASE64),
    "text": object_of({"data": string}),
    "content": object_of({"content": _content}),
    "url": object_of(_URL),
    "file": object_of(_FILE),
}
_DESCRIBED: dict[str, ParamCheck] = {"title": string, "context": string, "citations": object_}
_SHARED: dict[str, _PartType] = {
    **_INNER,
    "document": _PartType(object_of({"source": object_}, _DESCRIBED), _document),
    "search_result": _PartType(
        object_of({"source": string, "title": string, "content": list_of(object_)}, {"citations": object_}),
        _search_result,
    ),
}
USER: Mapping[str, _PartType] = {**_SHARED, "container_upload": _PartType(object_of({}), _upload)}
RESULT: Mapping[str, _PartType] = {
    **_SHARED,
    "tool_reference": _PartType(object_of({"tool_name": string}), _tool_reference),
    "browser_state": _PartType(object_of({}), _browser_state),
}
RESULT_BLOCK = object_of({"tool_use_id": string}, {"content": _content})
