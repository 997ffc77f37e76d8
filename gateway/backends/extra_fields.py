"""Rules for fields beyond the API: other names for the same field, and equivalents in the API's own fields."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import DecodeError, json

from gateway.backends import KINDS, Kind
from gateway.backends.field_rules import (
    DROPPED,
    OPENED,
    PASSED,
    FieldRule,
    FieldTranslator,
    PassedRule,
    RenamedRule,
    TranslatedRule,
)
from gateway.request import Request

# Names of one meaning.  The first name that a kind accepts is used.
_MEANINGS = (
    ("repetition_penalty", "repeat_penalty"),
    ("typical_p", "typical"),
    ("max_completion_tokens", "max_tokens", "num_predict", "n_predict", "max_new_tokens"),
    ("min_tokens", "min_new_tokens"),
    ("num_ctx", "n_ctx"),
    ("thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens", "thinking_budget"),
    ("enable_thinking", "chat_template_kwargs.enable_thinking", "think"),
    ("grammar", "ebnf", "structured_outputs.grammar", "guided_grammar"),
    ("regex", "structured_outputs.regex", "guided_regex"),
    ("structured_outputs.choice", "guided_choice"),
)
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {name: tuple(other for other in names if other != name) for names in _MEANINGS for name in names}
)
_OBJECTS = ("chat_template_kwargs", "structured_outputs")
_SENT_RULES = PassedRule | RenamedRule | TranslatedRule
_SWITCH = "chat_template_kwargs.enable_thinking"  # the name in most templates


def synonyms(name: str) -> tuple[str, ...]:
    """Return the other names of a field, as servers and clients have them."""
    return _OTHER_NAMES.get(name, ())


def _schema(value: object, _: Request) -> Mapping[str, Any]:
    """Translate a JSON schema, the text of one, or "json" for any JSON."""
    if value == "json":
        return {"response_format": {"type": "json_object"}}
    if isinstance(value, str):
        try:
            value = json.decode(value)
        except (DecodeError, RecursionError):
            return {}
    if not isinstance(value, dict):
        return {}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": value}}}


def _think(value: object, _: Request) -> Mapping[str, Any]:
    """Translate Ollama's field: a level, or a switch."""
    match value:
        case bool(switch):
            return {_SWITCH: switch}
        case str(level):
            return {"reasoning_effort": level}
    return {}


def _reasoning(value: object, _: Request) -> Mapping[str, Any]:
    """Translate OpenRouter's field: an effort, a budget in tokens, or a switch."""
    match value:
        case {"effort": str(effort)}:
            return {"reasoning_effort": effort}
        case {"max_tokens": int(budget)}:
            return {"thinking_token_budget": budget}
        case {"enabled": bool(switch)}:
            return {_SWITCH: switch}
    return {}


def _thinking(value: object, _: Request) -> Mapping[str, Any]:
    """Translate Anthropic's field: a switch with a budget in tokens."""
    match value:
        case {"type": "disabled"}:
            return {_SWITCH: False}
        case {"type": "enabled", "budget_tokens": int(budget)}:
            return {_SWITCH: True, "thinking_token_budget": budget}
        case {"type": "enabled"}:
            return {_SWITCH: True}
    return {}


# Fields whose meaning other fields can express, with the translation and these fields.  A kind may know some of them.
_IN_OTHER_WORDS: Mapping[str, tuple[FieldTranslator, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(
            ("format", "guided_json", "json_schema", "structured_outputs.json"), (_schema, ("response_format",))
        ),
        "think": (_think, ("reasoning_effort", _SWITCH)),
        "reasoning": (_reasoning, ("reasoning_effort", "thinking_token_budget", _SWITCH)),
        "thinking": (_thinking, (_SWITCH, "thinking_token_budget")),
    }
)
_FORMED = {name.partition(".")[0] for name, (_, others) in _IN_OTHER_WORDS.items() if others == ("response_format",)}
_PATTERNS, _CHOICES = ("regex", "guided_regex"), ("guided_choice",)
FORMS = frozenset(("response_format", *_FORMED, *_PATTERNS, *_CHOICES))
EXTENSIONS: frozenset[str] = frozenset().union(
    *(kind.extensions for kind in KINDS.values()), _OTHER_NAMES, _IN_OTHER_WORDS, _OBJECTS
) - frozenset(KINDS["openai"].fields)


def requested_response_format(request: Request) -> Mapping[str, Any] | None:
    """Return the response format of a request, under any of its names; None if the text is free."""
    if FORMS.isdisjoint(request.rest):
        return None
    forms = (_form(name, value, request) for name, value in request.rest.items())
    return next((form for form in forms if form is not None), None)


def text_form(request: Request) -> tuple[str, dict[str, Any]] | None:
    """Return the field that constrains the text of a response to choices or a pattern, and the schema of that text."""
    for name, value in request.rest.items():
        opened = value if name == "structured_outputs" and isinstance(value, dict) else {}
        texts = value if name in _CHOICES else opened.get("choice")
        pattern = value if name in _PATTERNS else opened.get("regex")
        if isinstance(texts, list):
            return name, {"enum": [text.strip() for text in texts if isinstance(text, str)]}
        if isinstance(pattern, str):
            return name, {"type": "string", "pattern": f"^(?:{pattern})$"}
    return None


def without_response_format(request: Request) -> dict[str, Any]:
    """Return the other fields of a request without those that set a response format."""
    return {name: value for name, value in request.rest.items() if _form(name, value, request) is None}


def _form(name: str, value: object, request: Request) -> Mapping[str, Any] | None:
    if name == "structured_outputs" and isinstance(value, dict):
        name, value = f"{name}.json", value.get("json")
    into, others = _IN_OTHER_WORDS.get(name, (None, ()))
    found = into(value, request).get("response_format") if into and others == ("response_format",) else None
    return value if name == "response_format" and isinstance(value, dict) else found


def field_rule(name: str, kind: Kind) -> FieldRule:
    """Return the rule of a kind for any field, known or unknown."""
    if found := kind.fields.get(name):
        return found
    if kind.forwards == "all" or _takes(kind, name):
        return PASSED
    if name in _IN_OTHER_WORDS:
        return _in_other_words(*_IN_OTHER_WORDS[name], kind)
    if other := next((other for other in _OTHER_NAMES.get(name, ()) if _takes(kind, other)), None):
        return RenamedRule(other)
    if name in _OBJECTS:
        return OPENED
    known = name in EXTENSIONS or name.partition(".")[0] in EXTENSIONS
    return DROPPED if known or kind.forwards == "none" else PASSED


def _in_other_words(into: FieldTranslator, others: tuple[str, ...], kind: Kind) -> FieldRule:
    """Return a translation into the fields that the kind accepts; without any, return the rule of the first one."""
    found = {other: field_rule(other, kind) for other in others}
    items = [
        one.to if isinstance(one, RenamedRule) else other
        for other, one in found.items()
        if isinstance(one, _SENT_RULES)
    ]
    return TranslatedRule(", ".join(f"`{name}`" for name in items), into) if items else found[others[0]]


def _takes(kind: Kind, name: str) -> bool:
    return name.partition(".")[0] in kind.extensions or isinstance(kind.fields.get(name), PassedRule)
