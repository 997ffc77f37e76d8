"""Content parts of input items as parts of chat messages (`spec.md` B2)."""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.endpoints.checks import (
    ParamCheck,
    check_exclusive,
    missing_parameter,
    object_of,
    one_of,
    string,
    string_of,
    wrong_type,
    wrong_value,
)
from gateway.errors import BadRequest

ContentPart = dict[str, Any]
Content = str | list[ContentPart]
PartConverter = Callable[[ContentPart, str], ContentPart]

_LONGEST = 10_485_760  # characters: the limits of the Open Responses specification
_FEW = 16  # members, of which none can be too many
long = string_of(_LONGEST)
_url = string_of(20_971_520)
_ANY_PART = object_of({"type": string})
_IMAGE = object_of({}, {"detail": one_of("low", "high", "auto", "original")})
_AUDIO = object_of({"input_audio": object_of({"data": string, "format": string})})
_FILE: Mapping[str, ParamCheck] = {"file_data": string_of(33_554_432), "file_url": _url}


def convert_content(value: object, param: str, among: Mapping[str, PartConverter]) -> Content:
    """Return a text, or parts of these types as a chat message has them; a text part that is alone is its text."""
    if value is None:
        raise missing_parameter(param)
    if isinstance(value, str):
        long(value, param)
        return value
    if not isinstance(value, list):
        raise wrong_type(value, param, "one of a string or array of objects")
    read = [_part(one, f"{param}[{i}]", among) for i, one in enumerate(value)]
    return read[0]["text"] if len(read) == 1 and read[0]["type"] == "text" else read


def assistant_text(value: object, param: str) -> str:
    """Return the text of one message of the assistant."""
    said = convert_content(value, param, SPOKEN)
    return said if isinstance(said, str) else "".join(part["text"] for part in said)


def text_part(text: str) -> ContentPart:
    return {"type": "text", "text": text}


def _part(value: Any, param: str, among: Mapping[str, PartConverter]) -> ContentPart:  # noqa: ANN401 - decoded JSON
    if type(value) is not dict or type(value.get("type")) is not str:
        _ANY_PART(value, param)
    read = among.get(value["type"])
    if not read:
        raise wrong_value(value["type"], param, among)
    return read(value, param)


def _text(name: str) -> PartConverter:
    check = object_of({name: long})

    def read(part: ContentPart, param: str) -> ContentPart:
        text = part.get(name)
        if type(text) is not str or len(text) > _LONGEST or len(part) > _FEW:
            check(part, param)
        return text_part(part[name])

    return read


def _image(part: ContentPart, param: str) -> ContentPart:
    _refuse(part, param, "file_id", instead="image_url")
    _IMAGE(part, param)
    image = {"url": _flat(part, param, "image_url")}
    if detail := part.get("detail"):
        image["detail"] = "high" if detail == "original" else detail
    return {"type": "image_url", "image_url": image}


def _video(part: ContentPart, param: str) -> ContentPart:
    return {"type": "video_url", "video_url": {"url": _flat(part, param, "video_url")}}


def _audio(part: ContentPart, param: str) -> ContentPart:
    _AUDIO(part, param)
    return {"type": "input_audio", "input_audio": part["input_audio"]}


def _file(part: ContentPart, param: str) -> ContentPart:
    _refuse(part, param, "file_id", instead="file_data")
    check_exclusive(part, param, _FILE)
    where = next((name for name in _FILE if part.get(name) is not None), "file_data")
    object_of({where: _FILE[where]}, {"filename": string})(part, param)
    given = {name: part[name] for name in (where, "filename") if part.get(name) is not None}
    return {"type": "file", "file": given}


def _flat(part: ContentPart, param: str, name: str) -> str:
    """A URL; clients that know chat completions write it as an object."""
    nested = isinstance(part.get(name), dict)
    check: ParamCheck = object_of({"url": _url}) if nested else _url
    object_of({name: check})(part, param)
    url: str = part[name]["url"] if nested else part[name]
    return url


def _refuse(part: ContentPart, param: str, name: str, instead: str) -> None:
    """Raise BadRequest for what would have to be stored here."""
    if part.get(name) is not None:
        message = f"'{param}.{name}' is not supported: send the content itself as '{instead}'."
        raise BadRequest(message, code="unsupported_value", param=f"{param}.{name}")


_TEXTS = {name: _text("text") for name in ("input_text", "output_text", "text", "summary_text", "reasoning_text")}
SPOKEN: Mapping[str, PartConverter] = {**_TEXTS, "refusal": _text("refusal")}
OUTPUT: Mapping[str, PartConverter] = {**_TEXTS, "input_image": _image, "input_file": _file}
MESSAGE: Mapping[str, PartConverter] = {
    **OUTPUT,
    "input_audio": _audio,
    "input_video": _video,
    "computer_screenshot": _image,
}
