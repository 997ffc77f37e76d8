"""Filter text: prompts that a server repeats, and stop sequences that it ignores.

A prewarm request only reads a prompt into the server's cache, so all of its text is dropped.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gateway.events import Event, ExtraField, Failure, Finish, TextDelta, Usage
from gateway.formats.markers import EndTokens, Markers
from gateway.request import Request
from gateway.warnings import Warnings

# What models of code write where the middle ends (Qwen, StarCoder, Granite, CodeGemma, DeepSeek, CodeLlama).
MIDDLE_ENDS = (
    "<|endoftext|>", "<|fim_pad|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>",
    "<|file_sep|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<file_sep>", "<|file_separator|>",
    "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<｜end▁of▁sentence｜>", "<EOT>",
)  # fmt: skip
LLAMA_ENDS = EndTokens("<|eot_id|>", "<|eom_id|>")


def lower_prewarm(request: Request, _: Warnings) -> tuple[Request, Sequence["SilenceFilter"]]:
    """The tools stay, and what is said of them: they are part of what is read."""
    return (request, []) if request.generates else (replace(request, max_tokens=1), [SilenceFilter()])


class SilenceFilter:
    """Lets through what was counted, what is said of the whole answer, and its end, which is always a good one."""

    def feed(self, event: Event) -> Iterable[Event]:
        match event:
            case Usage():
                return (Usage(event.prompt, 0, event.cached, kept=event.kept),)
            case Finish():
                return (Finish(event.choice, "stop"),)
            case Failure() | ExtraField(choice=None):
                return (event,)
        return ()

    def close(self) -> Iterable[Event]:
        return ()  # nothing is held back


class EchoFilter:
    """Each choice begins with its prompt.  `prompts`: of the choices, in order, for as many as each has."""

    def __init__(self, prompts: Sequence[str], n: int) -> None:
        self._prompts, self._n = prompts, n
        self._begun: set[int] = set()

    def feed(self, event: Event) -> Iterable[Event]:
        if not isinstance(event, TextDelta | Finish) or event.choice in self._begun:
            return (event,)
        self._begun.add(event.choice)
        return (TextDelta(event.choice, self._prompts[event.choice // self._n]), event)

    def close(self) -> Iterable[Event]:
        return ()


class StopFilter:
    """The answer ends before the first of these marks in its text."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = Markers(*marks)
        self._held: dict[int, str] = {}  # by choice: what may be the beginning of a mark
        self._over: set[int] = set()

    def feed(self, event: Event) -> Iterable[Event]:
        if isinstance(event, Usage | ExtraField):
            return (event,)
        if isinstance(event, Failure):
            return (*(said for choice in [*self._held] for said in self._rest(choice)), event)
        if event.choice in self._over:
            return ()
        return self._text(event) if isinstance(event, TextDelta) else (*self._rest(event.choice), event)

    def close(self) -> Iterable[Event]:
        return ()  # each choice has had its end, or all of them have failed

    def _text(self, event: TextDelta) -> Iterable[Event]:
        text = self._held.pop(event.choice, "") + event.text
        if found := self._marks.search(text):
            self._over.add(event.choice)
            return (*_said(event, text[: found.start()]), Finish(event.choice, "stop"))
        if held := self._marks.partial_suffix(text):
            self._held[event.choice] = text[-held:]
            text = text[:-held]
        return _said(event, text)

    def _rest(self, choice: int) -> Iterable[Event]:
        held = self._held.pop(choice, "")
        return (TextDelta(choice, held),) if held else ()


class Ending:
    """The answer ends before tokens that stand at its end."""

    def __init__(self, ends: EndTokens) -> None:
        self._ends = ends
        self._held: dict[int, str] = {}  # by choice: what may be the end

    def feed(self, event: Event) -> Iterable[Event]:
        if isinstance(event, Usage | ExtraField):
            return (event,)
        if isinstance(event, Failure):
            held_back, self._held = self._held, {}
            return (*(TextDelta(choice, held) for choice, held in held_back.items() if held), event)
        held = self._held.pop(event.choice, "")
        if isinstance(event, TextDelta):
            text = held + event.text
            begin = self._ends.begin(text)
            self._held[event.choice] = text[begin:]
            return _said(event, text[:begin])
        if isinstance(event, Finish) and held and self._ends.is_complete(held):
            return (Finish(event.choice, "stop"),)
        return (*((TextDelta(event.choice, held),) if held else ()), event)

    def close(self) -> Iterable[Event]:
        return ()


def stop_filters(request: Request) -> list[StopFilter]:
    """For a backend that leaves them in the text."""
    if not (data := request.rest.get("stop")):
        return []
    marks = [mark for mark in ([data] if isinstance(data, str) else data) if mark]
    return [StopFilter(marks)] if marks else []


def _said(event: TextDelta, text: str) -> Iterable[Event]:
    return (replace(event, text=text),) if text or event.logprobs else ()
