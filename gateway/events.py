"""Define the events of a model's output: the only vocabulary between the backends' dialects and the APIs.

Grammar, per choice (the normalizer promises it, every filter keeps it, every encoder relies on it):

    (TextDelta | ReasoningDelta | RefusalDelta | Annotation | Media | BuiltinItem
     | BuiltinItemStart BuiltinArgsDelta* BuiltinRunStart? BuiltinItemEnd
     | ToolCallStart (ToolArgsDelta | ToolInputDelta)* ToolCallEnd)* Finish

Per stream, in any place: Usage (cumulative, the last one holds), ExtraField, and Failure (then nothing).
The set is closed: an encoder without a branch for one of these fails a test.
"""

from collections.abc import Sequence
from typing import Literal, TypeGuard, final

from msgspec import Raw, Struct, field

from gateway.errors import Problem
from gateway.warnings import Warnings

ToolKind = Literal["function", "custom", "local_shell", "shell", "apply_patch", "tool_search"]


class TopLogprob(Struct, frozen=True, gc=False):
    """A token and its log-probability; −9999 stands for values that JSON cannot express."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None


class Logprob(TopLogprob, frozen=True, gc=False):
    """A token of the output, with the candidates that it was chosen from."""

    top_logprobs: tuple[TopLogprob, ...] = ()


class _Event(Struct, frozen=True, gc=False, tag=True, tag_field="event", omit_defaults=True):
    """Base class: an event encodes as its members plus its tag as `event`.  Recordings hold these tags."""


class TextDelta(_Event, frozen=True, tag="Text"):
    """The next piece of a message's text."""

    choice: int
    text: str
    logprobs: tuple[Logprob, ...] = ()


class ReasoningDelta(_Event, frozen=True, tag="Reasoning"):
    """The next piece of the model's reasoning.

    `signature` is the upstream's signature, which goes back to it in later requests: a JSON object.  It covers the text
    since the signature before it: `{"type": "thinking", "signature": "…"}`, or `{"type": "redacted_thinking",
    "data": "…"}` for encrypted reasoning.  With `"unsealed": true` the client gets it unchanged.
    """

    choice: int
    text: str
    signature: str = ""


class RefusalDelta(_Event, frozen=True, tag="Refusal"):
    """The next piece of a refusal."""

    choice: int
    text: str
    logprobs: tuple[Logprob, ...] = ()


class Annotation(_Event, frozen=True):
    """A remark on the text just before, as the upstream wrote it."""

    choice: int
    json: Raw


class Media(_Event, frozen=True):
    """A part of a message other than text, as the upstream wrote it: mostly an image.

    member: the list of the message that holds it; `blocks` for a content block of Anthropic's API.
    """

    choice: int
    json: Raw
    member: Literal["content", "images", "blocks"] = "content"


class BuiltinItem(_Event, frozen=True, tag="HostedTool"):
    """The whole output item of a built-in tool call or a compaction at the gateway."""

    choice: int
    item: Raw


class BuiltinItemStart(_Event, frozen=True, tag="HostedStart"):
    """The start of a built-in tool call or a compaction: its output item, as far as it is known."""

    choice: int
    item: Raw


class BuiltinArgsDelta(_Event, frozen=True, tag="HostedArgs"):
    """The next piece of the arguments of the built-in tool, as JSON."""

    choice: int
    json: str


class BuiltinRunStart(_Event, frozen=True, tag="HostedRun"):
    """The start of the run of a built-in tool: its arguments are complete."""

    choice: int


class BuiltinItemEnd(_Event, frozen=True, tag="HostedEnd"):
    """The last members of a built-in tool's item.  Without a `status` among them, the status is "completed"."""

    choice: int
    item: Raw


class ToolCallStart(_Event, frozen=True, tag="ToolStart"):
    """The start of a tool call.  `call` counts the tool calls of a choice from 0, without gaps.

    kind: the kind of tool.  All kinds but functions and custom tools have one ToolArgsDelta, with the fields of the
        item in the Responses API except id, type, call_id and status.
    signature: an opaque text of the upstream, which goes back to it in later requests.
    """

    choice: int
    call: int
    id: str
    name: str
    kind: ToolKind = "function"
    namespace: str = ""
    signature: str = ""


class ToolArgsDelta(_Event, frozen=True, tag="ToolArgs"):
    """The next piece of a tool call's JSON arguments."""

    choice: int
    call: int
    json: str


class ToolInputDelta(_Event, frozen=True, tag="ToolInput"):
    """The next piece of a custom tool's plain text input."""

    choice: int
    call: int
    text: str


class ToolCallEnd(_Event, frozen=True, tag="ToolEnd"):
    """The end of a tool call.

    fits: False if the tool's schema excludes the type of a value, or if the call broke off before required arguments.
    """

    choice: int
    call: int
    complete: bool = True  # False: the tool call was cut, or its arguments are no JSON and cannot be repaired
    fits: bool = True


class Finish(_Event, frozen=True):
    """The end of a choice.

    Before the normalizer the reason is the backend's own word, after it one of the API's.
    """

    choice: int
    reason: str


class Usage(_Event, frozen=True):
    """Tokens, cumulative within a round.  `prompt` includes the cached ones, `completion` the reasoning.

    cache_written: the tokens of the prompt that the backend wrote to its cache; `kept` in recordings.
    """

    prompt: int
    completion: int
    cached: int = 0
    reasoning: int = 0
    cache_written: int = field(default=0, name="kept")

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
            self.cache_written + other.cache_written,
        )


class ExtraField(_Event, frozen=True, tag="Extra"):
    """A member of a response that has no event of its own, unchanged.  A further list continues the list before it.

    It precedes the event that it belongs to.

    asked: the client requested it.
    inside: it is a member of the choice's message.
    """

    choice: int | None  # None: of the whole response
    name: str
    json: Raw
    asked: bool = False
    inside: bool = False

    @property
    def is_sent_at_once(self) -> bool:
        """True if a stream has it before the next content, which may be far off, as with a prompt's progress."""
        return self.asked and self.choice is None and self.name not in (NATIVE_END, NATIVE_USAGE)


@final
class Failure(_Event, frozen=True):
    """The failure of the response.  No event follows it."""

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


# Names of members that only a client of Anthropic's API gets, from a backend that speaks it: those of the next content
# block, of the message's end, and of its usage.
NATIVE_BLOCK, NATIVE_END, NATIVE_USAGE = "content_block", "message_delta", "usage"


def are_texts(alike: Sequence[Event]) -> TypeGuard[Sequence[TextDelta]]:
    """Return True if events of one type, at least one, are text."""
    return type(alike[0]) is TextDelta


# Members of every chunk of a stream, because clients keep those of the last chunk.
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
    """Report a member that is passed on unchanged, unless servers are known to send it."""
    if extra.name not in _USUAL and not extra.asked:
        ledger.add("forwarded", extra.name)
