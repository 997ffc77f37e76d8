"""Check that a response is what the request demands: a forced call, or JSON of a form.

Few servers see to it in all cases (llama.cpp writes before a forced call, `--skip-chat-parsing` looks at no form).  An
answer that is not what it had to be is asked for once more, while nothing of it was passed on; then it is refused or
listed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.errors import Problem
from gateway.events import Event, Failure, Finish, ReasoningDelta, RefusalDelta, TextDelta, ToolCallStart, Usage
from gateway.request import Message, Request
from gateway.transforms.output_enforcement import EnforcementMeans, demand_text
from gateway.transforms.schema_validator import FormatValidator, format_validator
from gateway.warnings import Warnings

EnforcementPolicy = Literal["warn", "retry", "refuse"]


class EnforcementTerms(Struct, frozen=True):
    """How much is done for it.

    call, form: what is done where it is missing; how: by what means a call is forced.
    strict: refuse rather than list, if nothing was passed on.
    limit: characters that may be held back, or looked at.
    """

    call: EnforcementPolicy = "warn"
    form: EnforcementPolicy = "warn"
    how: EnforcementMeans = "own"
    strict: bool = False
    limit: int = 8 << 20


class OutputViolation(Struct, frozen=True):
    """The broken demand, in words for the client; `words`: for its model."""

    field: str
    message: str
    words: str

    @property
    def problem(self) -> Problem:
        return Problem(400, self.message, "unsupported_value", self.field)


class FailedOutput(Struct, frozen=True):
    """A try at the response of which the client lacks these events, as another try may bring better ones.

    broken: what it lacks of a promise.  subject: of another policy, by which the attempt is repeated.
    entries: of the ledger, taken back until the other try has failed, too.
    """

    events: tuple[Event, ...] = ()
    broken: tuple[OutputViolation, ...] = ()
    subject: str = ""
    entries: tuple[str, ...] = ()


def output_validation(
    request: Request, terms: Callable[[], EnforcementTerms], ledger: Warnings, before: FailedOutput | None = None
) -> "OutputValidationFilter | None":
    """Return the filter for the demands of a request; None for most.  terms: called only if there is a demand."""
    wanted = None if _continues(request) else format_validator(request)
    if not request.generates or not (request.is_tool_forced or wanted):
        return None
    if wanted and not wanted.has_schema:
        ledger.add("unenforced", wanted.field)
    return OutputValidationFilter(request, wanted, terms(), ledger, before)


def _continues(request: Request) -> bool:
    """True if the answer may be the rest of one that the client has begun."""
    return bool(request.messages) and request.messages[-1]["role"] == "assistant"


class OutputValidationFilter:
    """A filter on an answer, which holds it back where it may have to be asked for again.

    form: of a text without calls.
    before: the attempt before this one; there is no third.
    failed: this attempt, if it was one, and another one shall be made.
    """

    def __init__(
        self,
        request: Request,
        form: FormatValidator | None,
        terms: EnforcementTerms,
        ledger: Warnings,
        before: FailedOutput | None,
    ) -> None:
        self._request, self._form, self._ledger, self._before = request, form, ledger, before
        self._texts: dict[int, list[str]] = defaultdict(list)  # by choice, as long as there is room
        self._room = terms.limit
        self._settled: set[int] = set()  # choices of which nothing is owed any more
        self._policy = terms.call if request.is_tool_forced else terms.form
        self._refuses = self._policy == "refuse" or terms.strict
        holds = request.n == 1 and (self._policy != "warn" or (terms.strict and not request.stream))
        self._held: list[Event] | None = [] if holds else None
        # Reasoning of a model that its backend forces to call passes at once.
        self._aloud = request.stream and request.is_tool_forced and terms.how != "words" and not self._refuses
        self.failed: FailedOutput | None = None

    def feed(self, event: Event) -> Iterable[Event]:
        if isinstance(event, Usage):
            return (event,)
        if self.failed:
            return ()
        match event:
            case TextDelta() | ReasoningDelta():
                self._hear(event)
            case ToolCallStart() | RefusalDelta():
                self._settled.add(event.choice)
            case Finish():
                return self._finish(event)
            case Failure() if self._before and self._before.broken and self._held is not None and not self._refuses:
                return self._first(self._before)
        return self._passed(event)

    def close(self) -> Iterable[Event]:
        return ()  # a Finish or a Failure has come

    def asking(self) -> Request:
        """For the next attempt: the model is told what this one lacks."""
        assert self.failed
        text = "".join(self._texts[0])
        items: list[Message] = [{"role": "assistant", "content": text}] if text.strip() else []
        fields: Message = {"role": "user", "content": " ".join(one.words for one in self.failed.broken)}
        return replace(self._request, messages=(*self._request.messages, *items, fields))

    def _hear(self, event: TextDelta | ReasoningDelta) -> None:
        self._room -= len(event.text)
        if self._room >= 0 and isinstance(event, TextDelta):
            self._texts[event.choice].append(event.text)

    def _passed(self, event: Event) -> Iterable[Event]:
        """The event and all before it, unless it has to wait."""
        if self._held is None:
            return (event,)
        self._held.append(event)
        over = isinstance(event, Finish | Failure) or (self._aloud and isinstance(event, ReasoningDelta))
        if self._room >= 0 and not (over or self._settled):
            return ()
        held, self._held = self._held, None
        return held

    def _finish(self, event: Finish) -> Iterable[Event]:
        broken = self._broken(event)
        if broken and self._held is not None:
            if self._policy != "warn" and not self._before:
                self.failed = FailedOutput((*self._held, event), broken)
                return ()
            if self._refuses:
                self._held = None
                return (Failure(broken[0].problem),)
        self._list(broken)
        return self._passed(event)

    def _first(self, before: FailedOutput) -> Iterable[Event]:
        """The attempt before: better than the failure of this one."""
        self._held = None
        self._list(before.broken)
        return before.events

    def _list(self, broken: Iterable[OutputViolation]) -> None:
        for one in broken:
            self._ledger.add("unenforced", one.field)

    def _broken(self, event: Finish) -> tuple[OutputViolation, ...]:
        """Return the broken demands.  A response that was cut may have been on its way to fulfil them."""
        text, cut = "".join(self._texts[event.choice]).strip(), event.reason == "length"
        if event.choice in self._settled or not (cut or event.reason == "stop"):
            return ()
        broken = []
        if self._request.is_tool_forced and (text or not cut):
            words = f"That was no call. {demand_text(self._request)}"
            broken.append(
                OutputViolation("tool_choice", "The model did not call a tool, which 'tool_choice' requires.", words)
            )
        if self._form and (why := self._misfit(self._form, text, cut=cut)):
            field, nothing_but = self._form.field, "the JSON" if self._form.is_json else "that text"
            message = f"The model's response does not match '{field}': {why}"
            words = f"That does not fit: {why}\nAnswer again, with nothing but {nothing_but}."
            broken.append(OutputViolation(field, message, words))
        return tuple(broken)

    def _misfit(self, form: FormatValidator, text: str, *, cut: bool) -> str | None:
        if self._room < 0:
            return "it is too long to be looked at"
        if cut:
            return None if form.begins(text) else "it is no JSON"
        return form.mismatch(text)
