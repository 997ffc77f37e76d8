"""Define the rules for a field of a request at a kind, and the rules that most kinds share (`spec.md` A1)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from gateway.request import Request

# A value and the request it stands in → fields, by names that any server may have; a dot leads into an object.  Of a
# part of a message: the part → another.
FieldTranslator = Callable[[Any, Request], Mapping[str, Any]]


class PassedRule(Struct, frozen=True):
    """The field is sent unchanged."""


class RenamedRule(Struct, frozen=True):
    """The server has another name for the same."""

    to: str


class TranslatedRule(Struct, frozen=True):
    """The same is said in another way.  `into`: None where that is not the business of a table."""

    how: str
    into: FieldTranslator | None = None


class ExpandedRule(Struct, frozen=True):
    """An object that the server does not know: its members are looked at one by one."""


class EmulatedRule(Struct, frozen=True):
    """The gateway does it; it is not sent."""

    how: str


class DroppedRule(Struct, frozen=True):
    """The field is not sent, and a warning says so."""


class UnenforcedRule(Struct, frozen=True):
    """The field is not sent, and a warning says that nothing enforces it."""


class NoEffectRule(Struct, frozen=True):
    """The field is not sent, without a warning: the response is the same."""


class RejectedRule(Struct, frozen=True):
    """The request is, before it comes to this.  `what`: the values of which this holds, if not of all."""

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
ALONE = TranslatedRule("a named tool as `required` and the only one")
AS_A_FORM = EmulatedRule("a form of the answer, or words where it has none")
CUT_HERE = EmulatedRule("further calls are cut off")
CUT_OFF = TranslatedRule("what is left of it in the text is cut off")
IN_WORDS = EmulatedRule("words, and a look at the answer")
ONE_CHOICE = EmulatedRule("a request for each choice")
REFUSED = RejectedRule()


def _unless_medium(value: object, _: Request) -> Mapping[str, Any]:
    """The default of the API, which clients name and servers like OpenAI's may not know, is not said."""
    return {} if value == "medium" else {"verbosity": value}


# OpenAI's own service takes all there is, and so may a server that is only known to be like it.
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
        "stream_options": TranslatedRule("usage is always asked for"),
        "temperature": PASSED,
        "tool_choice": PASSED,
        "tools": TranslatedRule("custom tools as functions"),
        "top_logprobs": PASSED,
        "top_p": PASSED,
        "user": PASSED,
        "verbosity": TranslatedRule("`medium` is left out", _unless_medium),
        "web_search_options": PASSED,
    }
)

# What only means something to the API's own service, and what nobody else does.
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
