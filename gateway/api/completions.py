"""Serve /v1/completions: parse the body of a legacy completion, and encode events as frames or one object."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from gateway import events as ev
from gateway.api.body import COUNTS, Counts, decode_body
from gateway.api.chat import schema
from gateway.api.completion_encoder import BodyEncoder, CompletionHead, StreamEncoder, encode, usage_object
from gateway.api.extra_members import Values, add_value, members
from gateway.api.validation import (
    ParamCheck,
    boolean,
    check_stop,
    check_stream_options,
    check_texts,
    integer_between,
    number_between,
    object_of,
    string,
    text_list,
)
from gateway.errors import BadRequest
from gateway.events import Logprob
from gateway.request import Request
from gateway.warnings import Warnings

REQUIRED: dict[str, ParamCheck] = {"model": string, "prompt": check_texts}
OPTIONAL: dict[str, ParamCheck] = {
    "best_of": integer_between(1, 20),
    "echo": boolean,
    "frequency_penalty": number_between(-2, 2),
    "logit_bias": schema.check_logit_bias,
    "logprobs": integer_between(0, 20),
    "max_tokens": integer_between(0),
    "n": integer_between(1, 128),
    "presence_penalty": number_between(-2, 2),
    "seed": integer_between(),
    "stop": check_stop,
    "stream": boolean,
    "stream_options": object_of({}, {"include_usage": boolean, "include_obfuscation": boolean}),
    "suffix": string,
    "temperature": number_between(0, 2),
    "top_p": number_between(0, 1),
    "user": string,
}

check_body = object_of(REQUIRED, {**schema.OPTIONAL, **OPTIONAL})  # a backend may take fields of chat as well
KNOWN = frozenset(REQUIRED) | frozenset(OPTIONAL)


_OWN = frozenset(("model", "max_tokens", "max_completion_tokens", "stream"))
MAX_TOKENS = 16  # the API's default
_UNKNOWN = -9999.0  # the value of an event without a log-probability


class CompletionParams(Struct, frozen=True, kw_only=True):
    """The parsed body of a legacy completion.

    request: without messages.  `prompt` and `n` are in its `rest`; its own `n` counts the choices of all prompts.
    include_usage: the usage follows at the end of the stream.
    continuous_usage: each chunk has the usage so far.
    logprobs: the number of candidates besides each token; None for no log-probabilities.
    """

    request: Request
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None


def parse_completion(raw: bytes, counts: Counts = COUNTS) -> CompletionParams:
    """Parse a body.

    Raise BadRequest, in OpenAI's words, if the API does not allow it, and TooLarge for too many values.
    """
    body = decode_body(raw, counts)
    check_body(body, "")
    _check_together(body)
    options = body.get("stream_options") or {}
    request = Request(
        model=body["model"],
        messages=(),
        max_tokens=body.get("max_tokens", body.get("max_completion_tokens")),
        n=len(text_list(body["prompt"])) * body.get("n", 1),
        stream=body.get("stream", False),
        rest={name: value for name, value in body.items() if name not in _OWN},
    )
    return CompletionParams(
        request=request,
        include_usage=options.get("include_usage") or False,
        continuous_usage=options.get("continuous_usage_stats") is True,
        logprobs=body.get("logprobs"),
    )


def _check_together(body: dict[str, Any]) -> None:
    check_stream_options(body)
    n, best_of = body.get("n", 1), body.get("best_of")
    if best_of is not None and best_of < n:
        raise BadRequest(f"'best_of' ({best_of}) must be at least 'n' ({n}).", code="invalid_value", param="best_of")
    if best_of is not None and best_of > n and body.get("stream"):
        message = f"'best_of' ({best_of}) must equal 'n' ({n}) when 'stream' is true."
        raise BadRequest(message, code="invalid_value", param="best_of")


def completion_logprobs(entries: Iterable[Logprob], most: int, begin: int = 0) -> dict[str, Any]:
    """Return the `logprobs` object: one list per property.

    most: the number of candidates of a token, without the token itself.
    begin: the number of characters of the choice before these entries.
    The first token of an echoed prompt follows nothing, so its values are null.
    """
    fields: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    offset = begin
    for entry in entries:
        first = offset == 0 and entry.logprob == _UNKNOWN
        fields["tokens"].append(entry.token)
        fields["token_logprobs"].append(None if first else entry.logprob)
        fields["top_logprobs"].append(None if first else _candidates(entry, most))
        fields["text_offset"].append(offset)
        offset += len(entry.token)
    return fields


def _candidates(entry: Logprob, most: int) -> dict[str, float]:
    likeliest: Sequence[Any] = sorted(entry.top_logprobs, key=lambda one: -one.logprob)[:most]
    return {one.token: one.logprob for one in likeliest} | {entry.token: entry.logprob}


class CompletionStreamEncoder(StreamEncoder):
    """Encode events as frames of a legacy completion.

    Leaves out reasoning, tool calls and the like: a backend that completes a text sends none.
    """

    def __init__(self, head: CompletionHead, params: CompletionParams, ledger: Warnings) -> None:
        fields = {"id": head.id, "object": "text_completion", "created": head.created, "model": head.model}
        super().__init__(fields, ledger, include_usage=params.include_usage, continuous_usage=params.continuous_usage)
        self._params = params
        self._choices: set[int] = set()
        self._offsets: dict[int, int] = defaultdict(int)  # by choice: characters of its tokens so far

    def start(self) -> bytes:
        """Return no bytes: the first frame comes with the first event."""
        return b""

    def stored_object(self) -> None:
        """Return None: completions are not stored."""

    def close(self, *, stored: bool) -> bytes:
        """Return the end of the stream."""
        return self._end(whole=len(self._choices) >= self._params.request.n)

    def _frame(self, choice: int, text: bytes, chances: bytes = b"null", reason: bytes = b"null") -> bytes:
        self._choices.add(choice)
        parts = (self._head, text, choice, chances, reason, self._extras(choice), self._ending())
        return b'%b{"text":%b,"index":%d,"logprobs":%b,"finish_reason":%b%b}%b' % parts

    def _frame_of(self, choice: int) -> bytes:
        return self._frame(choice, b'""')

    def _text(self, e: ev.TextDelta) -> bytes:
        if not e.logprobs or self._params.logprobs is None:
            return self._frame(e.choice, encode(e.text))
        chances = completion_logprobs(e.logprobs, self._params.logprobs, self._offsets[e.choice])
        self._offsets[e.choice] += sum(len(entry.token) for entry in e.logprobs)
        return self._frame(e.choice, encode(e.text), encode(chances))

    def _finish(self, e: ev.Finish) -> bytes:
        return self._frame(e.choice, b'""', reason=encode(e.reason))

    _arms: ClassVar[dict[type[Any], Callable[[Any, Any], bytes]]] = {
        **StreamEncoder._arms,
        ev.TextDelta: _text,
        ev.Finish: _finish,
        **dict.fromkeys(
            (
                ev.ReasoningDelta,
                ev.RefusalDelta,
                ev.Annotation,
                ev.Media,
                ev.BuiltinItem,
                ev.ToolCallStart,
                ev.ToolArgsDelta,
                ev.ToolInputDelta,
                ev.ToolCallEnd,
                ev.BuiltinItemStart,
                ev.BuiltinArgsDelta,
                ev.BuiltinRunStart,
                ev.BuiltinItemEnd,
            ),
            StreamEncoder._nothing,
        ),
    }


class CompletionBodyEncoder(BodyEncoder[CompletionParams, "_CompletionChoice"]):
    """Encode a legacy completion as one object."""

    def _new_choice(self) -> "_CompletionChoice":
        return _CompletionChoice()

    def stored_object(self) -> None:
        """Return None: completions are not stored."""

    def _completion(self) -> dict[str, Any]:
        fields = {"id": self._head.id, "object": "text_completion", "created": self._head.created}
        choices = [choice.body(index, self._params.logprobs) for index, choice in self._sorted()]
        return {
            **fields,
            "model": self._head.model,
            "choices": choices,
            "usage": usage_object(self._usage),
            **self._extras,
        }


class _CompletionChoice:
    def __init__(self) -> None:
        self._texts: list[str] = []
        self._logprobs: list[ev.Logprob] = []
        self._reason = "stop"
        self._extras: Values = {}

    def add(self, event: ev.Event) -> None:
        """Add an event; ignore reasoning, tool calls and the like."""
        match event:
            case ev.TextDelta():
                self._texts.append(event.text)
                self._logprobs += event.logprobs
            case ev.Finish():
                self._reason = event.reason
            case ev.ExtraField():
                add_value(self._extras, event.name, event.json)

    def body(self, index: int, most: int | None) -> dict[str, Any]:
        """Return the choice's object.

        most: the number of candidates of a token; None for no log-probabilities.
        """
        chances = None if most is None or not self._logprobs else completion_logprobs(self._logprobs, most)
        text = "".join(self._texts)
        return {
            "text": text,
            "index": index,
            "logprobs": chances,
            "finish_reason": self._reason,
            **members(self._extras),
        }


def completion_encoder(
    head: CompletionHead, params: CompletionParams, ledger: Warnings
) -> CompletionStreamEncoder | CompletionBodyEncoder:
    """Return the encoder for a stream or one object, as the client requested."""
    return (
        CompletionStreamEncoder(head, params, ledger)
        if params.request.stream
        else CompletionBodyEncoder(head, params, ledger)
    )
