"""Define the rules for a request field at a kind, and the rules that most kinds share (`spec.md` A1)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from gateway.request import Request

# Translates the value of a field, given its request, to other fields.  These have the name of any server; a dot leads
# into an object.  For a message part: translates the part to another part.
FieldTranslator = Callable[[Any, Request], Mapping[str, Any]]


class PassedRule(Struct, frozen=True):
    """The field is sent unchanged."""


class RenamedRule(Struct, frozen=True):
    """The field is sent under the server's name `to`."""

    to: str


class TranslatedRule(Struct, frozen=True):
    """The field is sent in another form.

    how: the description for docs/reference/backends.md.
    into: the translation; None if it is done outside these tables.
    """

    how: str
    into: FieldTranslator | None = None


class ExpandedRule(Struct, frozen=True):
    """The server does not know this object; each member has its own rule."""


class EmulatedRule(Struct, frozen=True):
    """The gateway does the work, and the field is not sent.  `how`: the description for docs/reference/backends.md."""

    how: str


class DroppedRule(Struct, frozen=True):
    """The field is not sent, and a warning says so."""


class UnenforcedRule(Struct, frozen=True):
    """The field is not sent, and a warning says that nothing enforces it."""


class NoEffectRule(Struct, frozen=True):
    """The field is not sent, without a warning: the response is the same."""


class RejectedRule(Struct, frozen=True):
    """The request is rejected before this rule applies.  `what`: the rejected values; empty for all."""

    what: str = ""


FieldRule = (
    PassedRule
    | RenamedRule
    | TranslatedRule
    | ExpandedRule
    | EmulatedRule
    | DroppedRule
    | UnenforcedRule
    | NoEffectRule
    | RejectedRule
)

PASSED, OPENED, DROPPED, UNENFORCED, WITHOUT_EFFECT = (
    PassedRule(),
    ExpandedRule(),
    DroppedRule(),
    UnenforcedRule(),
    NoEffectRule(),
)
ALONE = TranslatedRule("a named tool becomes `required`, with only that tool")
AS_A_FORM = EmulatedRule("a schema of the response, or a prompt")
CUT_HERE = EmulatedRule("further tool calls are cut off")
CUT_OFF = TranslatedRule("the rest after the stop sequence is cut off")
IN_WORDS = EmulatedRule("a prompt, and a check of the response")
ONE_CHOICE = EmulatedRule("one request per choice")
REFUSED = RejectedRule()


def _unless_medium(value: object, _: Request) -> Mapping[str, Any]:
    """Leave out `medium`: clients name this default of the API, and servers like OpenAI's may not know it."""
    return {} if value == "medium" else {"verbosity": value}


# OpenAI's own service accepts all fields, and so may a server that is only known to be similar.
OPENAI: Mapping[str, FieldRule] = MappingProxyType(
    {
        "audio": PASSED,
        "frequency_penalty": PASSED,
        "function_call": TranslatedRule("`tool_choice`"),
        "functions": TranslatedRule("`tools`"),
        "logit_bias": PASSED,
        "logprobs": PASSED,
        "max_completion_tokens": PASSED,
        "max_tokens": PASSED,
        "messages": TranslatedRule("roles, parts, past reasoning"),
        "metadata": EmulatedRule("the gateway's store"),
        "modalities": RejectedRule("with audio"),
        "model": TranslatedRule("the server's name"),
        "moderation": PASSED,
        "n": PASSED,
        "parallel_tool_calls": PASSED,
        "prediction": PASSED,
        "presence_penalty": PASSED,
        "prompt_cache_key": PASSED,
        "prompt_cache_options": PASSED,
        "prompt_cache_retention": PASSED,
        "reasoning_effort": PASSED,
        "response_format": PASSED,
        "safety_identifier": PASSED,
        "seed": PASSED,
        "service_tier": PASSED,
        "stop": PASSED,
        "store": EmulatedRule("the gateway's store"),
        "stream": PASSED,
        "stream_options": TranslatedRule("usage is always requested"),
        "temperature": PASSED,
        "tool_choice": PASSED,
        "tools": TranslatedRule("custom tools as functions"),
        "top_logprobs": PASSED,
        "top_p": PASSED,
        "user": PASSED,
        "verbosity": TranslatedRule("`medium` is omitted", _unless_medium),
        "web_search_options": PASSED,
    }
)

# Some fields concern only OpenAI's own service and have no effect elsewhere; others only that service supports.
LOCAL: Mapping[str, FieldRule] = MappingProxyType(
    {
        **OPENAI,
        **dict.fromkeys(
            ("audio", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention",
             "safety_identifier", "service_tier", "user"),
            WITHOUT_EFFECT,
        ),
        **dict.fromkeys(("moderation", "prediction", "verbosity", "web_search_options"), DROPPED),
    }
)  # fmt: skip
