"""Filter text: prompts that a server repeats, and stop sequences that it ignores.

A prewarm request only reads a prompt into the server's cache, so all of its text is dropped.
"""

from collections.abc import Iterable, Sequence

from msgspec import Raw, json
from msgspec.structs import replace

from gateway.events import Event, ExtraField, Failure, Finish, TextDelta, ToolCallStart, Usage
from gateway.formats.markers import EndTokens, Markers
from gateway.request import Request
from gateway.warnings import Warnings

# Tokens that code models write at the end of the middle (Qwen, StarCoder, Granite, CodeGemma, DeepSeek, CodeLlama).
MIDDLE_ENDS = (
    "<|endoftext|>", "<|fim_pad|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|repo_name|>",
    "<|file_sep|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<fim_pad>", "<file_sep>", "<|file_separator|>",
    "<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", "<｜end▁of▁sentence｜>", "<EOT>",
)  # fmt: skip
LLAMA_ENDS = EndTokens("<|eot_id|>", "<|eom_id|>")


def lower_prewarm(request: Request, _: Warnings) -> tuple[Request, Sequence["SilenceFilter"]]:
    """Return a prewarm request with one token of output, and the filter that drops it.

    The tools and the tool choice stay, because they are part of the prompt.
    """
    return (request, []) if request.generates else (replace(request, max_tokens=1), [SilenceFilter()])


class SilenceFilter:
    """Drop all content; keep the usage, members of the whole response, failures and the end, which becomes "stop"."""

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the event without output, if it is kept."""
        match event:
            case Usage():
                return (Usage(event.prompt, 0, event.cached, cache_written=event.cache_written),)
            case Finish():
                return (Finish(event.choice, "stop"),)
            case Failure() | ExtraField(choice=None):
                return (event,)
        return ()

    def close(self) -> Iterable[Event]:
        """Return no events."""
        return ()


class EchoFilter:
    """Begin each choice with its prompt.

    prompts: in order, each for `n` choices.
    """

    def __init__(self, prompts: Sequence[str], n: int) -> None:
        self._prompts, self._n = prompts, n
        self._begun: set[int] = set()

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the event, after the prompt if it is the first of its choice."""
        if not isinstance(event, TextDelta | Finish) or event.choice in self._begun:
            return (event,)
        self._begun.add(event.choice)
        return (TextDelta(event.choice, self._prompts[event.choice // self._n]), event)

    def close(self) -> Iterable[Event]:
        """Return no events."""
        return ()


class StopFilter:
    """End a choice before the first of these stop sequences in its text.  named: tell which one it was."""

    def __init__(self, marks: Sequence[str], *, named: bool = False) -> None:
        self._marks, self._named = Markers(*marks), named
        self._held: dict[int, str] = {}  # by choice: text that may be the beginning of a stop sequence
        self._over: set[int] = set()
        self._called: set[int] = set()  # choices with a tool call

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events up to the stop sequence, without text that may begin one."""
        if isinstance(event, Usage | ExtraField):
            return (event,)
        if isinstance(event, Failure):
            return (*(event_of_choice for choice in [*self._held] for event_of_choice in self._rest(choice)), event)
        if event.choice in self._over:
            return ()
        if isinstance(event, ToolCallStart):
            self._called.add(event.choice)
        return self._text(event) if isinstance(event, TextDelta) else (*self._rest(event.choice), event)

    def close(self) -> Iterable[Event]:
        """Return no events: each choice has ended or failed."""
        return ()

    def _text(self, event: TextDelta) -> Iterable[Event]:
        text = self._held.pop(event.choice, "") + event.text
        if found := self._marks.search(text):
            self._over.add(event.choice)
            return (*_text_event(event, text[: found.start()]), *self._end(event.choice, found[0]))
        if held := self._marks.partial_suffix(text):
            self._held[event.choice] = text[-held:]
            text = text[:-held]
        return _text_event(event, text)

    def _end(self, choice: int, mark: str) -> Iterable[Event]:
        if choice in self._called:
            return (Finish(choice, "tool_calls"),)
        name = (ExtraField(choice, "stop_reason", Raw(json.encode(mark))),) if self._named else ()
        return (*name, Finish(choice, "stop"))

    def _rest(self, choice: int) -> Iterable[Event]:
        held = self._held.pop(choice, "")
        return (TextDelta(choice, held),) if held else ()


class Ending:
    """Remove end tokens at the end of the text."""

    def __init__(self, ends: EndTokens) -> None:
        self._ends = ends
        self._held: dict[int, str] = {}  # by choice: text that may be end tokens

    def feed(self, event: Event) -> Iterable[Event]:
        """Return the events without text that may be end tokens."""
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
            return _text_event(event, text[:begin])
        if isinstance(event, Finish) and held and self._ends.is_complete(held):
            return (Finish(event.choice, "stop"),)
        return (*((TextDelta(event.choice, held),) if held else ()), event)

    def close(self) -> Iterable[Event]:
        """Return no events: each choice has ended or failed."""
        return ()


def stop_filters(request: Request) -> list[StopFilter]:
    """Return the filters for a backend that leaves stop sequences in the text."""
    if not (data := request.rest.get("stop")):
        return []
    marks = [mark for mark in ([data] if isinstance(data, str) else data) if mark]
    return [StopFilter(marks, named=request.names_stop)] if marks else []


def _text_event(event: TextDelta, text: str) -> Iterable[Event]:
    return (replace(event, text=text),) if text or event.logprobs else ()
