"""Check the parameters that the APIs share.

A check takes a value and its path, and raises BadRequest with the wording and code of OpenAI's API.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gateway.errors import BadRequest
from gateway.request import ToolChoice, ToolName

ParamCheck = Callable[[Any, str], None]

_ARTICLES = {
    bool: "a boolean", int: "an integer", float: "a decimal", str: "a string", list: "an array", dict: "an object",
    type(None): "null",
}  # fmt: skip
_UNKNOWN = 512  # unknown members of one object
_STOP = 1 << 14  # characters of all stop sequences: the gateway may have to search for them
ResolvedToolChoice = tuple[ToolChoice | None, frozenset[ToolName] | None]
ToolFinder = Callable[[dict[str, Any]], ToolName | None]
TextInput = str | list[int]
_MAX = 2048  # texts per request


def missing_parameter(param: str) -> BadRequest:
    """Return the error for a required parameter that is absent."""
    return BadRequest(f"Missing required parameter: '{param}'.", code="missing_required_parameter", param=param)


def check_exclusive(value: Mapping[str, Any], param: str, names: Iterable[str]) -> None:
    """Raise BadRequest if more than one of these members is given."""
    given = [f"'{name}'" for name in names if value.get(name) is not None]
    if len(given) > 1:
        message = f"Mutually exclusive parameters in '{param}': send only one of {' and '.join(given)}."
        raise BadRequest(message, code="mutually_exclusive_parameters", param=param)


def wrong_type(value: object, param: str, expected: str) -> BadRequest:
    """Return the error for a value of the wrong type."""
    got = _ARTICLES.get(type(value), "something else")
    message = f"Invalid type for '{param}': expected {expected}, but got {got} instead."
    return BadRequest(message, code="invalid_type", param=param)


def wrong_value(value: object, param: str, supported: Iterable[str]) -> BadRequest:
    """Return the error for a string that is not among the supported values."""
    *most, last = [f"'{one}'" for one in supported]
    listed = f"{', '.join(most)}{',' if len(most) > 1 else ''} and {last}" if most else last
    return BadRequest(f"Invalid value: '{value}'. Supported values are: {listed}.", code="invalid_value", param=param)


def too_long(value: Sequence[Any], param: str, most: int, limit: str = "") -> BadRequest:
    """Return the error for an array with too many elements.

    limit: the source of the maximum, if it is not the API.
    """
    length = f"maximum length {most} ({limit})" if limit else f"maximum length {most}"
    expected = f"Expected an array with {length}, but got an array with length {len(value)} instead."
    return BadRequest(f"Invalid '{param}': array too long. {expected}", code="array_above_max_length", param=param)


def too_many_members(value: Mapping[str, Any], param: str, most: int, what: str = "properties") -> BadRequest:
    """Return the error for an object with too many members."""
    expected = f"Expected an object with at most {most}, but got {len(value)}."
    message = f"Invalid '{param or 'body'}': too many {what}. {expected}"
    return BadRequest(message, code="object_above_max_properties", param=param or None)


def _typed(expected: str, *types: type) -> ParamCheck:
    def check(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        if type(value) not in types:
            raise wrong_type(value, param, expected)

    return check


boolean = _typed("a boolean", bool)
string = _typed("a string", str)
array = _typed("an array", list)
object_ = _typed("an object", dict)
_TYPES: dict[ParamCheck, type] = {boolean: bool, string: str, array: list, object_: dict}
_integer = _typed("an integer", int)
_decimal = _typed("a decimal", int, float)


def integer_between(least: int | None = None, most: int | None = None) -> ParamCheck:
    """Return a check for an integer within these bounds."""
    return _bounded(_integer, "integer", least, most)


def number_between(least: float, most: float) -> ParamCheck:
    """Return a check for a number within these bounds."""
    return _bounded(_decimal, "decimal", least, most)


def one_of(*supported: str) -> ParamCheck:
    """Return a check for one of these strings."""

    def check(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        string(value, param)
        if value not in supported:
            raise wrong_value(value, param, supported)

    return check


def string_of(most: int, least: int = 0) -> ParamCheck:
    """Return a check for a string of at most `most` characters; with `least`, one that is not empty."""

    def check(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        string(value, param)
        if len(value) < least:
            expected = f"Expected a string with minimum length {least}, but got an empty string instead."
            raise BadRequest(f"Invalid '{param}': empty string. {expected}", code="empty_string", param=param)
        if len(value) > most:
            expected = (
                f"Expected a string with maximum length {most}, but got a string with length {len(value)} instead."
            )
            raise BadRequest(
                f"Invalid '{param}': string too long. {expected}", code="string_above_max_length", param=param
            )

    return check


def list_of(each: ParamCheck, least: int = 0, most: int | None = None) -> ParamCheck:
    """Return a check for a list of `least` to `most` elements that pass the check `each`."""

    def check(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        array(value, param)
        if len(value) < least:
            expected = f"Expected an array with minimum length {least}, but got an empty array instead."
            raise BadRequest(f"Invalid '{param}': empty array. {expected}", code="empty_array", param=param)
        if most is not None and len(value) > most:
            raise too_long(value, param, most)
        for i, one in enumerate(value):
            each(one, f"{param}[{i}]")

    return check


def object_of(required: Mapping[str, ParamCheck], optional: Mapping[str, ParamCheck] | None = None) -> ParamCheck:
    """Return a check for an object with these members.

    Unknown members are allowed, and null counts as absent.
    """

    known = {**required, **(optional or {})}
    types = {name: _TYPES[each] for name, each in known.items() if each in _TYPES}  # checks of nothing but a type

    def check(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        if type(value) is not dict:
            object_(value, param)
        if len(value) > _UNKNOWN and len(unknown := value.keys() - known.keys()) > _UNKNOWN:
            raise too_many_members(dict.fromkeys(unknown), param, _UNKNOWN, "unknown properties")
        for name in required:
            if value.get(name) is None:
                raise missing_parameter(f"{param}.{name}" if param else name)
        for name, member in value.items():
            if type(member) is not types.get(name) and member is not None and (each := known.get(name)):
                each(member, f"{param}.{name}" if param else name)

    return check


def _bounded(typed: ParamCheck, kind: str, least: float | None, most: float | None) -> ParamCheck:
    def check(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
        typed(value, param)
        if least is not None and value < least:
            raise _outside(value, param, kind, "below minimum", f">= {least}")
        if most is not None and not value <= most:
            raise _outside(value, param, kind, "above maximum", f"<= {most}")

    return check


def _outside(value: object, param: str, kind: str, what: str, bound: str) -> BadRequest:
    message = f"Invalid '{param}': {kind} {what} value. Expected a value {bound}, but got {value} instead."
    return BadRequest(message, code=f"{kind}_{what[:5]}_{what[6:9]}_value", param=param)


def check_stream_options(body: dict[str, Any]) -> None:
    """Raise BadRequest for `stream_options` without a stream."""
    if "stream_options" in body and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        raise BadRequest(message, param="stream_options")


def check_stop(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """Check a stop sequence: one string, or a list of strings."""
    stops = [value] if isinstance(value, str) else value
    list_of(string)(stops, param)
    if (length := sum(map(len, stops))) > _STOP:
        message = f"Invalid '{param}': the stop sequences have {length} characters in total. Send at most {_STOP}."
        raise BadRequest(message, code="string_above_max_length", param=param)


def check_metadata(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """Check metadata: at most 16 members, with keys up to 64 and values up to 512 characters."""
    object_(value, param)
    if len(value) > 16:
        raise too_many_members(value, param, 16)
    for key, text in value.items():
        string_of(64)(key, f"{param}.{key[:64]}")
        string_of(512)(text, f"{param}.{key}")


def check_moderation(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """Raise BadRequest for a moderation policy that blocks, because the gateway has no moderation engine."""
    object_(value, param)
    policy = value.get("policy")
    sides = policy.values() if isinstance(policy, dict) else ()
    if any(isinstance(side, dict) and side.get("mode") == "block" for side in sides):
        message = "Blocking moderation is not supported: the gateway has no moderation engine."
        raise BadRequest(message, code="unsupported_value", param=param)


def resolve_tool_choice(choice: Any, tools: Sequence[object], find: ToolFinder) -> ResolvedToolChoice:  # noqa: ANN401 - decoded JSON
    """Return the tool choice, and the allowed tools or None for all.

    Without tools to choose from, the choice is None.
    Raise BadRequest if a tool call is required but there are no tools.

    tools: all tools that can be chosen.
    find: returns the tool that an object names; None if the model cannot call it.
    """
    allowed = None
    if isinstance(choice, dict) and choice["type"] == "allowed_tools":
        data = choice.get("allowed_tools", choice)
        allowed = frozenset(filter(None, map(find, data["tools"])))
        choice = data["mode"]
    elif isinstance(choice, dict):
        choice = find(choice)
    left = tools if allowed is None else allowed
    if choice == "required" and not left:
        raise BadRequest("'tool_choice' is only allowed when 'tools' are specified.", param="tool_choice")
    return (choice if left else None), allowed


def unknown_tool_error(name: str) -> BadRequest:
    """Return the error for a tool choice that names a missing tool."""
    message = f"Invalid value for 'tool_choice': the tool '{name}' is not among 'tools'."
    return BadRequest(message, code="invalid_value", param="tool_choice")


_tokens = list_of(integer_between(0), least=1)


def check_texts(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """Check an input: a string, a list of strings, a list of token ids, or a list of such lists."""
    if isinstance(value, str):
        return
    if not isinstance(value, list):
        raise wrong_type(value, param, "one of a string or array")
    if value and _is_id(value[0]):
        _tokens(value, param)
    else:
        list_of(_text, least=1, most=_MAX)(value, param)


def check_nonempty_texts(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    """Check an input as `check_texts` does, without empty strings."""
    check_texts(value, param)
    for i, text in enumerate(value if isinstance(value, list) else ()):
        if isinstance(text, str):
            string_of(len(text), least=1)(text, f"{param}[{i}]")
    if isinstance(value, str):
        string_of(len(value), least=1)(value, param)


def text_list(value: Any) -> list[TextInput]:  # noqa: ANN401 - decoded JSON
    """Return each text of a value that has passed `check_texts`."""
    return [value] if isinstance(value, str) or _is_id(value[0]) else value


def text_characters(all: Sequence[TextInput]) -> int:
    """Return the number of characters; a token counts as four."""
    return sum(len(text) if isinstance(text, str) else 4 * len(text) for text in all)


def _text(value: Any, param: str) -> None:  # noqa: ANN401 - decoded JSON
    if isinstance(value, list):
        _tokens(value, param)
    else:
        string(value, param)


def _is_id(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
