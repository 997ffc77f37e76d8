"""Define the events of a model's output: the only vocabulary between the backends' dialects and the APIs.

Grammar, per choice (the normaliser promises it, every filter keeps it, every endpoint relies on it):

    (TextDelta | ReasoningDelta | RefusalDelta | Annotation | Media | BuiltinItem
     | BuiltinItemStart BuiltinArgsDelta* BuiltinRunStart? BuiltinItemEnd
     | ToolCallStart (ToolArgsDelta | ToolInputDelta)* ToolCallEnd)* Finish

Per stream, in any place: Usage (cumulative, the last one holds), ExtraField, and Failure (then nothing).
The set is closed: an encoder without an arm for one of these fails a test.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypeGuard, final

from msgspec import Raw, Struct, json

from gateway.errors import Problem
from gateway.warnings import Warnings

ToolKind = Literal["function", "custom", "local_shell", "shell", "apply_patch", "tool_search"]


class TopLogprob(Struct, frozen=True, gc=False):
    """A token and how likely it was; −9999 stands for what JSON cannot say."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None


class Logprob(TopLogprob, frozen=True, gc=False):
    """A token that was said, with the candidates it was chosen from."""

    top_logprobs: tuple[TopLogprob, ...] = ()


class _Event(Struct, frozen=True, gc=False, tag=True, tag_field="event", omit_defaults=True):
    """As data it is its members, and its tag as `event`; recordings hold these tags."""


class TextDelta(_Event, frozen=True, tag="Text"):
    choice: int
    text: str
    logprobs: tuple[Logprob, ...] = ()


class ReasoningDelta(_Event, frozen=True, tag="Reasoning"):
    """A thought.  `signature` is what the upstream signed it with, to be given back on replay: a JSON object.

    It covers the text since the signature before it: `{"type": "thinking", "signature": "…"}`, or
    `{"type": "redacted_thinking", "data": "…"}` for a thought that nobody may read.
    """

    choice: int
    text: str
    signature: str = ""


class RefusalDelta(_Event, frozen=True, tag="Refusal"):
    choice: int
    text: str
    logprobs: tuple[Logprob, ...] = ()


class Annotation(_Event, frozen=True):
    """A remark on the text just said, as the upstream wrote it."""

    choice: int
    json: Raw


class Media(_Event, frozen=True):
    """A part of a message that is no text, as the upstream wrote it: an image, mostly.

    member: of the message, a list, in which it stands.
    """

    choice: int
    json: Raw
    member: Literal["content", "images"] = "content"


class BuiltinItem(_Event, frozen=True, tag="HostedTool"):
    """The whole output item of a call or a compaction at the gateway."""

    choice: int
    item: Raw


class BuiltinItemStart(_Event, frozen=True, tag="HostedStart"):
    """Something begins that is done on our side of the client: its output item, as far as it is known."""

    choice: int
    item: Raw


class BuiltinArgsDelta(_Event, frozen=True, tag="HostedArgs"):
    """The next piece of the JSON that it is called with."""

    choice: int
    json: str


class BuiltinRunStart(_Event, frozen=True, tag="HostedRun"):
    """The arguments are complete, and the tool runs."""

    choice: int


class BuiltinItemEnd(_Event, frozen=True, tag="HostedEnd"):
    """The members of its item that tell how it ended; a `status` is one of them, "completed" if it is not there."""

    choice: int
    item: Raw


class ToolCallStart(_Event, frozen=True, tag="ToolStart"):
    """A call begins.  `call` counts the calls of a choice from 0, without gaps.

    kind: the kind of tool.  For all but functions and custom tools one ToolArgsDelta follows, with the fields of the
        call's item in the Responses API besides its id, type, call_id and status.
    signature: opaque, of the upstream; given back on replay.
    """

    choice: int
    call: int
    id: str
    name: str
    kind: ToolKind = "function"
    namespace: str = ""
    signature: str = ""


class ToolArgsDelta(_Event, frozen=True, tag="ToolArgs"):
    """The next piece of a call's JSON."""

    choice: int
    call: int
    json: str


class ToolInputDelta(_Event, frozen=True, tag="ToolInput"):
    """The next piece of a custom call's plain text."""

    choice: int
    call: int
    text: str


class ToolCallEnd(_Event, frozen=True, tag="ToolEnd"):
    choice: int
    call: int
    complete: bool = True  # False: the call was cut, or its arguments are no JSON and cannot be made JSON
    fits: bool = True  # False: a value has a type that the tool's schema excludes


class Finish(_Event, frozen=True):
    """Before the normaliser the reason is the backend's own word, after it one of the API's."""

    choice: int
    reason: str


class Usage(_Event, frozen=True):
    """Tokens, cumulative within a round.  `prompt` includes the cached ones, `completion` the reasoning.

    kept: those of the prompt that went to the cache.
    """

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0
    kept: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        if not (other.prompt or other.completion):
            return self
        if not (self.prompt or self.completion):
            return other
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.reasoning + other.reasoning,
            self.kept + other.kept,
        )


class ExtraField(_Event, frozen=True, tag="Extra"):
    """A member of a response that has no event of its own, as it came; a list is to be continued.

    It stands before the event that it is about.

    asked: the client has asked for it; inside: it is a member of the choice's message.
    """

    choice: int | None  # None: of the whole answer
    name: str
    json: Raw
    asked: bool = False
    inside: bool = False


@final
class Failure(_Event, frozen=True):
    problem: Problem


ContentEvent = TextDelta | ReasoningDelta | RefusalDelta | Annotation | Media | BuiltinItem
BuiltinEvent = BuiltinItemStart | BuiltinArgsDelta | BuiltinRunStart | BuiltinItemEnd
Event = (
    ContentEvent
    | BuiltinEvent
    | ToolCallStart
    | ToolArgsDelta
    | ToolInputDelta
    | ToolCallEnd
    | Finish
    | Usage
    | ExtraField
    | Failure
)


def are_texts(alike: Sequence[Event]) -> TypeGuard[Sequence[TextDelta]]:
    """Of events of one type, at least one: whether it is that of text."""
    return type(alike[0]) is TextDelta


# Members of every chunk of a stream, as clients keep them of the last one.
IN_EACH = frozenset(("provider", "service_tier", "system_fingerprint"))
# Members that OpenAI's API has, or that servers are known to send: a chat passes them on without a warning.
_USUAL = IN_EACH | frozenset(
    (
        "audio", "citations", "content_filter_results", "done_reason", "eval_duration", "hidden_states",
        "kv_transfer_params", "load_duration", "matched_stop", "metadata", "metrics", "moderation",
        "native_finish_reason", "prompt_eval_duration", "prompt_filter_results", "prompt_logprobs", "prompt_progress",
        "prompt_token_ids", "provider_specific_fields", "reasoning_details", "remote_host", "remote_model",
        "search_results", "sglext", "stop_reason", "timings", "token_ids", "total_duration",
    )
)  # fmt: skip


def forward(extra: ExtraField, ledger: Warnings) -> None:
    """Report a member that is passed on as it came, unless servers are known to send it."""
    if extra.name not in _USUAL and not extra.asked:
        ledger.add("forwarded", extra.name)


def join_extra(before: Raw | None, more: Raw) -> Raw:
    """A list grows, anything else is replaced."""
    if before is None or bytes(before)[:1] != b"[" or bytes(more)[:1] != b"[":
        return more
    return Raw(json.encode([*json.decode(before), *json.decode(more)]))


def joined(before: Raw | None, more: Raw) -> Raw:
    """Return the value of a message's member of which this is a further delta, as OpenAI's SDKs join them."""
    return more if before is None else Raw(json.encode(_joined(json.decode(before), json.decode(more))))


def _joined(before: Any, more: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if isinstance(before, dict) and isinstance(more, dict):
        return before | {
            name: _joined(before[name], value) if name in before else value for name, value in more.items()
        }
    texts, lists = (
        isinstance(before, str) and isinstance(more, str),
        isinstance(before, list) and isinstance(more, list),
    )
    return before + more if texts or lists else more
