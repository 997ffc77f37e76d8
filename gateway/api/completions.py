"""Serve /v1/completions: parse the body of a legacy completion, and encode events as frames or one object."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from msgspec import Raw, Struct

from gateway import events as ev
from gateway.api.body import COUNTS, Counts, decode_body
from gateway.api.completion_encoder import BodyEncoder, CompletionHead, StreamEncoder, encode, usage_object
from gateway.api.validation import (
    ParamCheck,
    boolean,
    check_stop,
    check_stream_options,
    check_texts,
    integer_between,
    number_between,
    object_,
    object_of,
    string,
    text_list,
)
from gateway.errors import BadRequest
from gateway.events import Logprob, join_extra
from gateway.request import Request
from gateway.warnings import Warnings

REQUIRED: dict[str, ParamCheck] = {"model": string, "prompt": check_texts}
OPTIONAL: dict[str, ParamCheck] = {
    "best_of": integer_between(1, 20),
    "echo": boolean,
    "frequency_penalty": number_between(-2, 2),
    "logit_bias": object_,
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

check_body = object_of(REQUIRED, OPTIONAL)
KNOWN = frozenset(REQUIRED) | frozenset(OPTIONAL)


_OWN = frozenset(("model", "max_tokens", "stream"))
_MAX_TOKENS = 16  # the API's own limit where a client names none
_UNKNOWN = -9999.0  # what the events have for no number


class CompletionParams(Struct, frozen=True, kw_only=True):
    """A completion as it was asked for.

    request: without messages; `prompt` and `n` are in its `rest`, and its own `n` is the choices of all prompts.
    include_usage, continuous_usage: a count at the end, with each chunk.
    logprobs: how many candidates are wanted besides each token; None: nothing of the kind.
    """

    request: Request
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None


def parse_completion(raw: bytes, counts: Counts = COUNTS) -> CompletionParams:
    """Raise BadRequest, in OpenAI's words, for what the API does not allow."""
    body = decode_body(raw, counts)
    check_body(body, "")
    _check_together(body)
    options = body.get("stream_options") or {}
    request = Request(
        model=body["model"],
        messages=(),
        max_tokens=body.get("max_tokens", _MAX_TOKENS),
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
    """One list per property.

    most: candidates of a token, and the token itself besides; begin: characters of the choice that came before.
    The first token of a prompt that is echoed follows nothing: null.
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
    """Thoughts, calls and the like have no place here; a backend that completes a text sends none."""

    def __init__(self, head: CompletionHead, asked: CompletionParams, ledger: Warnings) -> None:
        fields = {"id": head.id, "object": "text_completion", "created": head.created, "model": head.model}
        super().__init__(fields, ledger, include_usage=asked.include_usage, continuous_usage=asked.continuous_usage)
        self._asked = asked
        self._choices: set[int] = set()
        self._said: dict[int, int] = defaultdict(int)  # by choice: characters of its tokens

    def start(self) -> bytes:
        return b""

    def stored_object(self) -> None:
        """Completions are not stored."""

    def close(self, *, kept: bool) -> bytes:
        return self._end(whole=len(self._choices) >= self._asked.request.n)

    def _frame(self, choice: int, text: bytes, chances: bytes = b"null", reason: bytes = b"null") -> bytes:
        self._choices.add(choice)
        parts = (self._head, text, choice, chances, reason, self._extras(choice), self._ending())
        return b'%b{"text":%b,"index":%d,"logprobs":%b,"finish_reason":%b%b}%b' % parts

    def _frame_of(self, choice: int) -> bytes:
        return self._frame(choice, b'""')

    def _text(self, e: ev.TextDelta) -> bytes:
        if not e.logprobs or self._asked.logprobs is None:
            return self._frame(e.choice, encode(e.text))
        chances = completion_logprobs(e.logprobs, self._asked.logprobs, self._said[e.choice])
        self._said[e.choice] += sum(len(entry.token) for entry in e.logprobs)
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
    def _new_choice(self) -> "_CompletionChoice":
        return _CompletionChoice()

    def stored_object(self) -> None:
        """Completions are not stored."""

    def _completion(self) -> dict[str, Any]:
        fields = {"id": self._head.id, "object": "text_completion", "created": self._head.created}
        choices = [choice.body(index, self._asked.logprobs) for index, choice in self._sorted()]
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
        self._extras: dict[str, Raw] = {}

    def add(self, event: ev.Event) -> None:
        """Thoughts, calls and the like have no place here."""
        match event:
            case ev.TextDelta():
                self._texts.append(event.text)
                self._logprobs += event.logprobs
            case ev.Finish():
                self._reason = event.reason
            case ev.ExtraField():
                self._extras[event.name] = join_extra(self._extras.get(event.name), event.json)

    def body(self, index: int, most: int | None) -> dict[str, Any]:
        chances = None if most is None or not self._logprobs else completion_logprobs(self._logprobs, most)
        text = "".join(self._texts)
        return {"text": text, "index": index, "logprobs": chances, "finish_reason": self._reason, **self._extras}


def completion_encoder(
    head: CompletionHead, params: CompletionParams, ledger: Warnings
) -> CompletionStreamEncoder | CompletionBodyEncoder:
    """The encoder that fits what was asked."""
    return (
        CompletionStreamEncoder(head, params, ledger)
        if params.request.stream
        else CompletionBodyEncoder(head, params, ledger)
    )
