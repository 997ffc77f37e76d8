"""Define the type of the rows in kinds/, and the values that several kinds share."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

from msgspec import Raw, Struct, json
from msgspec.structs import replace

from gateway.backends.field_rules import PASSED, FieldRule, TranslatedRule
from gateway.request import Request


def parts_passed(*names: str, **others: FieldRule) -> Mapping[str, FieldRule]:
    """Return the rules for message parts.

    Text and the types `names` are passed unchanged; each type in `others` has its own rule.
    """
    return MappingProxyType({**dict.fromkeys(("text", *names), PASSED), **others})


_AS_THE_API = parts_passed("image_url", "input_audio")


class TokenCounter(Struct, frozen=True):
    """An endpoint that counts prompt tokens.

    It accepts the body of a request and returns the count in `field`.

    members: the members of the body that it accepts; None: all.
    """

    path: str
    field: str
    members: frozenset[str] | None = None

    def body(self, body: bytes) -> bytes:
        """Return the body for this endpoint."""
        if self.members is None:
            return body
        fields = json.decode(body, type=dict[str, Raw])
        return json.encode({name: value for name, value in fields.items() if name in self.members})


class Kind(Struct, frozen=True, kw_only=True):
    """A sort of model server: how requests are written for it, and how its responses have to be read.

    fields: the rule for each field of the API, and for extra fields whose rule does not follow from the members below.
    extensions: fields beyond the API that the server accepts; an object includes all its members.
    forwards: fields without a rule that are sent: "all"; "unheard", those that no kind is known to accept; or "none".
    reasoning: the field for past reasoning; None if the server shows its model no past reasoning.
    calls_alone: the server shows its model no text of a message that has tool calls.
    names: the chat template may show the `name` of a message.
    refuses_tools: the server accepts tools only with a tool call parser, or with `tool_choice: none`.  It shows them to
        the model in both cases.
    parses: the server itself looks for reasoning and tool calls, with any settings.
    raw: the fields that keep special tokens in the text.
    continues: the server always continues a last message of the assistant, also without a request for it.
    echoes: a whole response repeats that message.
    unparsed: other rules, for a server that is set to parse nothing; it then handles tools like one that refuses them.
    keeps_stops: the server leaves the stop sequence in the text.
    counter: the endpoint that counts tokens; None without one.
    counts_one: with `n` > 1 the usage covers one choice only, except in a stream of a chat completion.
    takes_openings: the server may remove the opening tag of reasoning and keep the closing one.
    logprobs_only_whole: with tools the server streams no log-probabilities, but returns them in a whole response.
    lists: the server accepts lists of parts, also in the output of tools.
    parts: the types of message parts that the server accepts besides text, each with its rule.
    fetches: the server accepts the URL of an image as well as the image itself.
    program: what starts the server, as the advice of a refused connection names it.
    defers: the server knows tools that the model sees only once a message refers to them.
    """

    fields: Mapping[str, FieldRule]
    extensions: frozenset[str] = frozenset()
    forwards: Literal["all", "unheard", "none"] = "unheard"
    dialect: Literal["openai", "ollama", "anthropic"] = "openai"
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
    logprobs_only_whole: bool = False
    lists: bool = False
    parts: Mapping[str, FieldRule] = _AS_THE_API
    fetches: bool = False
    program: str = "the server"
    defers: bool = False

    def without_parsers(self) -> "Kind":
        """Return the kind for a server that leaves reasoning and tool calls in the text."""
        fields = MappingProxyType({**self.fields, **self.unparsed})
        return replace(self, fields=fields, refuses_tools=self.refuses_tools or bool(self.unparsed))


def format_unless_call_forced(format: object, request: Request) -> Mapping[str, Any]:
    """Return the response format, or nothing if a tool call is forced, as a server has one grammar for both.

    With both fields vLLM uses the grammar of the call; SGLang and llama.cpp use the format's; Ollama has only a format.
    """
    return {} if request.is_tool_forced and not request.guided else {"response_format": format}


LEFT_OUT = "omitted if a tool call is forced"
FORMAT = TranslatedRule(LEFT_OUT, format_unless_call_forced)
