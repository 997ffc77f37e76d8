"""Parse the body of a response into a neutral Request and the settings of its encoder."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.api.body import known
from gateway.api.responses.input_items import (
    HistoryRules,
    InputMessages,
    Item,
    annotations_of,
    ends_with_compaction_trigger,
    read_input,
    referenced_ids,
    resolve_references,
)
from gateway.api.responses.objects import encode
from gateway.api.responses.params import (
    KNOWN,
    OTHER_FORMS,
    REASONING,
    TEXT,
    BuiltinToolParams,
    ResponseParams,
    check_params,
)
from gateway.api.responses.stored_items import OFFERING
from gateway.api.responses.tool_choice import parse_tool_choice
from gateway.api.responses.tools import BuiltinToolFilter, no_builtin_tools, parse_tools, tools_echo
from gateway.api.validation import check_stream_options
from gateway.request import EncodedPast, Request, StoredReasoning, are_large
from gateway.warnings import Warnings

_DEFAULTS: dict[str, Any] = {
    "background": False,
    "conversation": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
_IF_GIVEN = ("prompt_cache_options", "prompt_cache_retention")
_SAME = frozenset(
    (
        "temperature", "top_p", "presence_penalty", "frequency_penalty", "parallel_tool_calls",
        "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier", "user",
    )
)  # fmt: skip
_UNDONE = ("access_programs", "stream_id", "moderation")
_KEPT_IMAGE = (("context_compression", "auto"), ("context_compression", "disabled"))


def request_echo(body: dict[str, Any]) -> dict[str, Any]:
    """Return all fields of the Response object that only repeat the request, without secrets."""
    given = {name: value for name, value in body.items() if name in _DEFAULTS or name in _IF_GIVEN}
    reasoning, text = body.get("reasoning") or {}, body.get("text") or {}
    return {
        **_DEFAULTS,
        **given,
        "reasoning": {"effort": None, "summary": reasoning.get("generate_summary"), **_without_null(reasoning)},
        "service_tier": "default",
        "text": {"format": {"type": "text"}, "verbosity": "medium", **_without_null(text)},
        "tools": tools_echo(body.get("tools") or []),
    }


def _without_null(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None and name != "generate_summary"}


class ParseSettings(Struct, frozen=True):
    """The operator's settings for parsing, and the functions that parsing needs.

    open: decrypts `encrypted_content`; None if the gateway did not encrypt it.
    repair_dangling_calls: a tool call without an output gets one, instead of an error.
    runs: returns True for a built-in tool that runs at the gateway; None: none does.
    keeps_body: some backend speaks the Messages API, and may get the body of a message as it is.
    """

    open: Callable[[str], StoredReasoning | None]
    min_output_tokens: int = 16
    repair_dangling_calls: bool = False
    runs: BuiltinToolFilter | None = None
    keeps_body: bool = False


class ResponseDraft(Struct, frozen=True):
    """A body with checked parameters, whose references have to be looked up before its input can be read.

    previous: the id of the response that it continues.
    conversation: the id of the conversation that it is part of.
    references: ids of items.
    triggered: its input ended with a `compaction_trigger`.
    """

    body: dict[str, Any]
    previous: str | None
    conversation: str | None
    references: frozenset[str]
    triggered: bool = False

    @property
    def stored(self) -> bool:
        """True if the response is stored, or added to a conversation."""
        return self.body.get("store") is not False or self.conversation is not None

    def input(self, known: Mapping[str, Item]) -> list[Item]:
        """Return the items of the input: a text as one item, and references replaced by their items."""
        return resolve_references(self.body.get("input", []), known)


class InputContext(Struct, frozen=True):
    """Stored items: `before` is the history of the input, `items` are the ones that the input refers to.

    past: the history before `before`, if it is encoded already.
    """

    before: Sequence[Item] = ()
    items: Mapping[str, Item] = {}
    past: EncodedPast | None = None


def draft_response(body: dict[str, Any], settings: ParseSettings) -> ResponseDraft:
    """Check the parameters of a body.  Raise BadRequest, in OpenAI's words, if the API does not allow them."""
    check_params(body, settings.min_output_tokens)
    check_stream_options(body)
    conversation = body.get("conversation")
    named = conversation["id"] if isinstance(conversation, dict) else conversation
    input = body.get("input", [])
    if triggered := ends_with_compaction_trigger(input):
        body["input"] = input = input[:-1]
    return ResponseDraft(body, body.get("previous_response_id"), named, referenced_ids(input), triggered)


def parse_response(
    draft: ResponseDraft, context: InputContext, settings: ParseSettings, ledger: Warnings
) -> ResponseParams:
    """Parse a draft whose references are known.  Raise BadRequest for an invalid input or tool."""
    body = draft.body
    _note_undone(body, ledger)
    request, hosted = _request(body, context, settings, ledger)
    reasoning, include = body.get("reasoning") or {}, body.get("include") or ()
    summary = reasoning.get("summary") or reasoning.get("generate_summary")
    return ResponseParams(
        request=request,
        hosted=hosted,
        echo={**request_echo(body), "conversation": {"id": draft.conversation} if draft.conversation else None},
        stored=draft.stored,
        background=body.get("background", False),
        streamed=body.get("stream", False),
        compact_above=_compact_above(draft, ledger) if request.generates else None,
        carrier="text" if "reasoning.content" in include else "summary" if summary else None,
        sealed=body.get("store") is False or "reasoning.encrypted_content" in include,
        include=frozenset(include),
        logprobs="logprobs" in request.rest,
        obfuscation=(body.get("stream_options") or {}).get("include_obfuscation") or False,
    )


def storable_body(raw: bytes) -> bytes:
    """Return the body for the store, without the secrets of its tools."""
    body = known(raw)
    kept = {**body, "tools": tools_echo(body["tools"])} if body.get("tools") else body
    if isinstance(items := body.get("input"), list):
        kept = {**kept, "input": [_without_secrets(item) for item in items]}
    return raw if kept == body else encode(kept)


def _without_secrets(item: Item) -> Item:
    return {**item, "tools": tools_echo(item["tools"])} if item.get("type") in OFFERING else item


def _compact_above(draft: ResponseDraft, ledger: Warnings) -> int | None:
    """Return the lowest of the thresholds that are set."""
    if draft.triggered:
        return 0
    managed = draft.body.get("context_management") or ()
    thresholds = [one["compact_threshold"] for one in managed if one.get("compact_threshold") is not None]
    if len(thresholds) < len(managed):
        ledger.add("dropped", "context_management")  # the gateway has no threshold of its own
    return min(thresholds, default=None)


def _request(
    body: dict[str, Any], context: InputContext, settings: ParseSettings, ledger: Warnings
) -> tuple[Request, BuiltinToolParams]:
    generates = _generates(body, ledger)
    messages = _conversation(body, context, settings, ledger, generates=generates)
    given = [(tool, f"tools[{i}]") for i, tool in enumerate(body.get("tools") or ())]
    tools = parse_tools([*given, *messages.tools], ledger, settings.runs or no_builtin_tools)
    choice, allowed = parse_tool_choice(body.get("tool_choice"), tools, ledger)
    if not messages.lists.keys() <= tools.server_labels:
        ledger.add("dropped", "input.mcp_list_tools")
    approved = messages.approved if generates else ()
    items = [*context.before, *resolve_references(body.get("input", []), context.items)] if tools.hosted else []
    hosted = BuiltinToolParams(
        tools.hosted, messages.lists, approved, body.get("max_tool_calls"), cited=annotations_of(items)
    )
    request = Request(
        model=body["model"],
        messages=messages.messages,
        tools=tools.tools,
        tool_choice=choice,
        allowed=allowed,
        max_tokens=body.get("max_output_tokens"),
        stream=body.get("stream") or body.get("background") or False,
        fresh=True,
        shorten=body.get("truncation") == "auto",
        generates=generates,
        large=are_large(messages.messages),
        rest=_rest(body, messages.settings, ledger),
        past=context.past,
    )
    return request, hosted


def _generates(body: dict[str, Any], ledger: Warnings) -> bool:
    if (body.get("prompt_cache_options") or {}).get("prewarm"):
        ledger.add("emulated", "prompt_cache_options.prewarm")
        return False
    if body.get("generate") is False:
        ledger.add("emulated", "generate")
        return False
    return True


def _conversation(
    body: dict[str, Any], context: InputContext, settings: ParseSettings, ledger: Warnings, *, generates: bool
) -> InputMessages:
    """Return the input as messages.

    If the model generates nothing and the input is empty, an empty message stands for it: backends require a message.
    """
    input, instructions = body.get("input", []), body.get("instructions")
    if not (generates or input or instructions or context.before):
        input = ""
    all_turns = (body.get("reasoning") or {}).get("context") == "all_turns"
    repair, approves = settings.repair_dangling_calls, settings.runs is not None
    rules = HistoryRules(settings.open, ledger, body["model"], all_turns, repair, context.items, approves)
    messages = read_input(input, instructions, context.before, rules, context.past)
    REASONING(messages.settings.get("reasoning", {}), "input")
    TEXT(messages.settings.get("text", {}), "input")
    return messages


def _rest(body: dict[str, Any], settings: dict[str, Any], ledger: Warnings) -> dict[str, Any]:
    """Return the other parameters as a chat completion has them.  Parameters of neither API pass unchanged."""
    rest = {}
    for name, value in body.items():
        if name in OTHER_FORMS:
            ledger.add("dropped", name)
        elif name in _SAME or name not in KNOWN:
            rest[name] = value
    reasoning = {**(body.get("reasoning") or {}), **settings.get("reasoning", {})}
    text = {**(body.get("text") or {}), **settings.get("text", {})}
    if caching := _caching(body.get("prompt_cache_options") or {}, ledger):
        rest["prompt_cache_options"] = caching
    if effort := reasoning.get("effort"):
        rest["reasoning_effort"] = effort
    if verbosity := text.get("verbosity"):
        rest["verbosity"] = verbosity
    if (format := text.get("format") or {}).get("type", "text") != "text":
        rest["response_format"] = _response_format(format)
    return rest | _logprobs(body)


def _caching(options: dict[str, Any], ledger: Warnings) -> dict[str, Any]:
    """Return the cache options for the backend.

    `comparison_response_id` is left out, because that response is stored at the gateway and not at the backend.
    """
    if "comparison_response_id" in options:
        ledger.add("dropped", "prompt_cache_options.comparison_response_id")
    return {name: value for name, value in options.items() if name in ("mode", "ttl")}


def _response_format(format: dict[str, Any]) -> dict[str, Any]:
    """Return the format as in a chat completion: nested instead of flat."""
    if format["type"] == "json_object":
        return {"type": "json_object"}
    schema = {name: value for name, value in format.items() if name != "type" and value is not None}
    return {"type": "json_schema", "json_schema": schema}


def _logprobs(body: dict[str, Any]) -> dict[str, Any]:
    most = body.get("top_logprobs") or 0
    if not most and "message.output_text.logprobs" not in (body.get("include") or ()):
        return {}
    return {"logprobs": True, "top_logprobs": most} if most else {"logprobs": True}


def _note_undone(body: dict[str, Any], ledger: Warnings) -> None:
    """Warn about parameters that the gateway ignores."""
    for name in _UNDONE:
        if name in body:
            ledger.add("dropped", name)
    for name, value in (body.get("image") or {}).items():
        if (name, value) not in _KEPT_IMAGE:
            ledger.add("dropped", f"image.{name}")
    if (body.get("background_options") or {}).get("continuation_id"):
        ledger.add("dropped", "background_options.continuation_id")
    if (body.get("reasoning") or {}).get("mode") == "pro":
        ledger.add("dropped", "reasoning.mode")
