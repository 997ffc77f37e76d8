"""Define the type of the rows in kinds/: a sort of model server, and the values that several kinds share."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.backends.field_rules import PASSED, FieldRule, TranslatedRule
from gateway.request import Request


def parts_passed(*names: str, **others: FieldRule) -> Mapping[str, FieldRule]:
    """Texts, and parts of messages of these types as they come."""
    return MappingProxyType({**dict.fromkeys(("text", *names), PASSED), **others})


_AS_THE_API = parts_passed("image_url", "input_audio")


class TokenCounter(Struct, frozen=True):
    """Where a server takes the body of a chat completion and says, in this field, how many tokens its prompt has."""

    path: str
    field: str


class Kind(Struct, frozen=True, kw_only=True):
    """A sort of model server: how requests are written for it, and what its responses need.

    fields: the verdict on each field of the API, and on others where it is not the one that follows from the rest.
    extensions: fields beyond the API that it takes, objects with all their members.
    forwards: what else is passed on: all; what no kind is known to take, in the hope that this one does; or nothing.
    reasoning: the field in which it wants past reasoning back; None: it shows its model none.
    calls_alone: it shows its model no text of a message with calls.
    names: a template may show who speaks, by the `name` of a message.
    refuses_tools: it takes tools only with a parser for their calls, unless it may call none; it shows them to the
        model all the same.
    parses: it looks for thoughts and calls itself, whatever its settings.
    raw: what is asked so that special tokens stay in the text.
    continues: a last message of the assistant is the beginning of the answer, asked for or not.
    echoes: a whole answer repeats that beginning.
    unparsed: other verdicts, where it is set to parse nothing; it then takes tools as one does that refuses them.
    keeps_stops: it leaves the stop sequence that ended an answer in it.
    counter: where it counts tokens; None: nowhere.
    counts_one: of several choices it counts the tokens of one, unless it streams a chat.
    takes_openings: it may take out the tag that opens a thought, and pass on the one that closes it.
    chances_whole: beside tools it tells log-probabilities in a whole answer only; a stream of them it refuses.
    parts: of messages, besides text: those that it takes, as they come or as something else.
    fetches: it may be given the URL of an image, and not only the image itself.
    """

    fields: Mapping[str, FieldRule]
    extensions: frozenset[str] = frozenset()
    forwards: Literal["all", "unheard", "none"] = "unheard"
    dialect: Literal["openai", "ollama"] = "openai"
    reasoning: Literal["reasoning", "reasoning_content", "thinking"] | None = "reasoning_content"
    calls_alone: bool = False
    names: bool = True
    refuses_tools: bool = False
    parses: bool = False
    unparsed: Mapping[str, FieldRule] = MappingProxyType({})
    raw: Mapping[str, bool] = MappingProxyType({})
    continues: bool = False
    echoes: bool = False
    keeps_stops: bool = False
    counter: TokenCounter | None = None
    counts_one: bool = False
    takes_openings: bool = False
    chances_whole: bool = False
    parts: Mapping[str, FieldRule] = _AS_THE_API
    fetches: bool = False

    def without_parsers(self) -> "Kind":
        """The same, as a server is that leaves the text as its model writes it."""
        fields = MappingProxyType({**self.fields, **self.unparsed})
        return replace(self, fields=fields, refuses_tools=self.refuses_tools or bool(self.unparsed))


def format_unless_call_forced(format: object, request: Request) -> Mapping[str, Any]:
    """One grammar is for both: vLLM takes the call's, SGLang and llama.cpp the format's, Ollama has no other."""
    return {} if request.is_tool_forced and not request.guided else {"response_format": format}


LEFT_OUT = "left out where a call is forced"
FORMAT = TranslatedRule(LEFT_OUT, format_unless_call_forced)
