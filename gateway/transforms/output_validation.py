"""Check that a response meets the demand of its request: a forced tool call, or JSON of a schema.

Few servers enforce it in all cases: llama.cpp writes text before a forced call, and with `--skip-chat-parsing` ignores
formats.  A response that fails the check is requested once more, if the client has nothing of it.  After that the
gateway refuses it, or adds a warning.

Servers that enforce a schema from the first token, where their parser still expects reasoning, send the JSON as
reasoning and no text.  If it fits, it is the text of the response.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.errors import Problem
from gateway.events import Event, Failure, Finish, ReasoningDelta, RefusalDelta, TextDelta, ToolCallStart, Usage
from gateway.request import Message, Request, ToolChoice, ToolName
from gateway.transforms.output_enforcement import EnforcementMeans, demand_text
from gateway.transforms.schema_validator import FormatValidator, format_validator
from gateway.warnings import Warnings

EnforcementPolicy = Literal["warn", "retry", "refuse"]
_NAMED = ("function", "custom")  # kinds of tools that a request names by their own names
_JUDGED = ("stop", "length", "tool_calls")  # finish reasons of a response that can break a demand


class EnforcementTerms(Struct, frozen=True):
    """The operator's terms for checking the output.

    call, form: the policy for a missing tool call, and for another format.
    how: the means of forcing a tool call.
    strict: refuse instead of a warning, if the client has nothing of the response.
    limit: characters that may be held back, or checked.
    """

    call: EnforcementPolicy = "warn"
    form: EnforcementPolicy = "warn"
    how: EnforcementMeans = "own"
    strict: bool = False
    limit: int = 8 << 20


class OutputViolation(Struct, frozen=True):
    """A broken demand, with a message for the client.

    words: a message for the model.
    """

    field: str
    message: str
    words: str

    @property
    def problem(self) -> Problem:
        """The problem for the client."""
        return Problem(400, self.message, "unsupported_value", self.field)


class FailedOutput(Struct, frozen=True):
    """An attempt with events that the client has not received, because a retry may bring better ones.

    broken: the demands that it does not meet.
    subject: the other policy that repeats the attempt.
    entries: warnings that were removed, and come back if the retry fails, too.
    """

    events: tuple[Event, ...] = ()
    broken: tuple[OutputViolation, ...] = ()
    subject: str = ""
    entries: tuple[str, ...] = ()


def output_validation(
    request: Request,
    terms: Callable[[], EnforcementTerms],
    ledger: Warnings,
    before: FailedOutput | None = None,
    choice: ToolChoice | None = None,
) -> "OutputValidationFilter | None":
    """Return the filter for the demands of a request; None for most.

    terms: called only if there is a demand.
    choice: the tool choice, with the backend's name of the tool; None: that of the request.
    """
    wanted = None if _continues(request) else format_validator(request)
    if not request.generates or not (request.is_tool_forced or wanted):
        return None
    if wanted and not wanted.has_schema:
        ledger.add("unenforced", wanted.field)
    return OutputValidationFilter(request, wanted, terms(), ledger, before, choice or request.tool_choice)


def _continues(request: Request) -> bool:
    """Return True if the response may continue a message that the client has begun."""
    return bool(request.messages) and request.messages[-1]["role"] == "assistant"


class OutputValidationFilter:
    """Check a response, and hold it back if it may have to be requested again.

    form: the format of a text without tool calls.
    before: the attempt before this one; there is no third.
    choice: the tool choice, with the backend's name of the tool.
    failed: this attempt, if it is to be repeated.
    """

    def __init__(
        self,
        request: Request,
        form: FormatValidator | None,
        terms: EnforcementTerms,
        ledger: Warnings,
        before: FailedOutput | None,
        choice: ToolChoice | None,
    ) -> None:
        self._request, self._form, self._ledger, self._before, self._choice = request, form, ledger, before, choice
        self._texts: dict[int, list[str]] = defaultdict(list)  # by choice, up to the limit
        self._thoughts: dict[int, list[str]] = defaultdict(list)  # the same of the reasoning
        self._room = terms.limit
        self._settled: set[int] = set()  # choices that have met the demand
        self._policy = terms.call if request.is_tool_forced else terms.form
        self._refuses = self._policy == "refuse" or terms.strict
        holds = request.n == 1 and (self._policy != "warn" or (terms.strict and not request.stream))
        self._held: list[Event] | None = [] if holds else None
        # If the backend enforces the tool call, reasoning passes at once.
        self._aloud = request.stream and request.is_tool_forced and terms.how != "words" and not self._refuses
        self.failed: FailedOutput | None = None

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events that the client may have now."""
        if isinstance(event, Usage):
            return (event,)
        if self.failed:
            return ()
        match event:
            case TextDelta() | ReasoningDelta():
                self._collect(event)
            case ToolCallStart() if not self._is_demanded(event):
                pass
            case ToolCallStart() | RefusalDelta():
                self._settled.add(event.choice)
            case Finish():
                return self._finish(event)
            case Failure() if self._before and self._before.broken and self._held is not None and not self._refuses:
                return self._first(self._before)
        return self._passed(event)

    def close(self) -> Iterable[Event]:
        """Return no events: a Finish or a Failure has released them."""
        return ()

    def retry_request(self) -> Request:
        """Return the request for the next attempt, with a message about the first broken demand.

        A forced call comes before a format, as a response is one or the other.
        """
        assert self.failed
        text = "".join(self._texts[0])
        items: list[Message] = [{"role": "assistant", "content": text}] if text.strip() else []
        fields: Message = {"role": "user", "content": self.failed.broken[0].words}
        return replace(self._request, messages=(*self._request.messages, *items, fields))

    def _collect(self, event: TextDelta | ReasoningDelta) -> None:
        self._room -= len(event.text)
        if self._room >= 0:
            pieces = self._texts if isinstance(event, TextDelta) else self._thoughts
            pieces[event.choice].append(event.text)

    def _is_demanded(self, event: ToolCallStart) -> bool:
        """Return False for a call of another function than the one that the request names."""
        choice = self._request.tool_choice
        named = isinstance(choice, ToolName) and event.kind in _NAMED
        return not named or ToolName(event.name, event.namespace) == choice

    def _passed(self, event: Event) -> Iterable[Event]:
        """Return the event with all before it, unless it has to wait."""
        if self._held is None:
            return (event,)
        self._held.append(event)
        over = isinstance(event, Finish | Failure) or (self._aloud and isinstance(event, ReasoningDelta))
        if self._room >= 0 and not (over or self._settled):
            return ()
        held, self._held = self._held, None
        return held

    def _finish(self, event: Finish) -> Iterable[Event]:
        if text := self._text_in_reasoning(event):
            self._ledger.add("repaired", "content")
            self._collect(text)
            return (*self._passed(text), *self._finish(event))
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

    def _text_in_reasoning(self, event: Finish) -> TextDelta | None:
        """Return the reasoning as text if it is all that came, and the demanded JSON; else None."""
        form, choice = self._form, event.choice
        may_hold = form and form.is_json and event.reason == "stop" and not self._request.is_tool_forced
        if not (form and may_hold) or self._room < 0 or choice in self._settled or "".join(self._texts[choice]).strip():
            return None
        text = "".join(self._thoughts[choice]).strip()
        return TextDelta(choice, text) if text[:1] in ("{", "[") and form.mismatch(text) is None else None

    def _first(self, before: FailedOutput) -> Iterable[Event]:
        """Return the events of the attempt before, which is better than the failure of this one."""
        self._held = None
        self._list(before.broken)
        return before.events

    def _list(self, broken: Iterable[OutputViolation]) -> None:
        for one in broken:
            self._ledger.add("unenforced", one.field)

    def _broken(self, event: Finish) -> tuple[OutputViolation, ...]:
        """Return the broken demands.  A response that was cut may still have met them."""
        text, cut = "".join(self._texts[event.choice]).strip(), event.reason == "length"
        if event.choice in self._settled or event.reason not in _JUDGED:
            return ()
        broken = []
        if self._request.is_tool_forced and (text or not cut):
            choice = self._request.tool_choice
            which = f"the tool '{choice.name}'" if isinstance(choice, ToolName) else "a tool"
            message = f"The model did not call {which}, which 'tool_choice' requires."
            words = f"That was no call. {demand_text(self._choice)}"
            broken.append(OutputViolation("tool_choice", message, words))
        if self._form and (why := self._misfit(self._form, text, cut=cut)):
            field, nothing_but = self._form.field, "the JSON" if self._form.is_json else "that text"
            message = f"The model's response does not match '{field}': {why}"
            words = f"That does not fit: {why}\nAnswer again, with nothing but {nothing_but}."
            broken.append(OutputViolation(field, message, words))
        return tuple(broken)

    def _misfit(self, form: FormatValidator, text: str, *, cut: bool) -> str | None:
        if self._room < 0:
            return "it is too long to be checked"
        if cut:
            return None if form.begins(text) else "it is not JSON"
        return form.mismatch(text)
