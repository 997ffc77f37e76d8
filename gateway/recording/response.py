"""Read the response of a request from the events of its recording: text, reasoning, tool calls, usage and warnings."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field, json

from gateway.recording.entries import EndEntry, RoundEndEntry, UpstreamDataEntry
from gateway.recording.recording import Recording

_TEXTS = {"Text": "text", "Reasoning": "reasoning", "Refusal": "refusal"}


class RecordedToolCall(Struct):
    """A tool call of the model.  arguments: as the client got them; complete: False if they are cut or no JSON."""

    id: str
    name: str
    arguments: str = ""
    complete: bool = False


class RecordedChoice(Struct):
    """One choice of a response.  gateway_tools: the output items of tools that ran at the gateway."""

    reasoning: str = ""
    text: str = ""
    refusal: str = ""
    tool_calls: list[RecordedToolCall] = field(default_factory=list)
    gateway_tools: list[Any] = field(default_factory=list)
    finish_reason: str | None = None


class RecordedUsage(Struct):
    """Tokens of all rounds.  input includes the cached ones, output the reasoning."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


class RecordedResponse(Struct):
    """The response of a request.  status, error, message: None while the request runs; usage: None if none came."""

    status: int | None
    error: str | None
    message: str | None
    choices: list[RecordedChoice]
    usage: RecordedUsage | None
    warnings: list[str]


def recorded_response(recording: Recording) -> RecordedResponse:
    """Return the response so far.  The output of an attempt that another one replaced is left out."""
    choices: dict[int, RecordedChoice] = {}
    usage: RecordedUsage | None = None
    rounds = [*_rounds(recording)]
    for events in rounds:
        counted = None
        for event in events:
            if event["event"] == "Usage":
                counted = event
            elif event["event"] != "Failure" and event.get("choice") is not None:
                _add(choices.setdefault(event["choice"], RecordedChoice()), event)
        if counted:
            usage = _sum(usage or RecordedUsage(), counted)
    last = recording.entries[-1] if recording.entries else None
    over = last if isinstance(last, EndEntry) else None
    problem = over.problem if over else None
    return RecordedResponse(
        status=over.status if over else None,
        error=(problem.code or problem.type) if problem else None,
        message=problem.message if problem else None,
        choices=[choices[number] for number in sorted(choices)],
        usage=usage,
        warnings=[*over.ledger] if over else [],
    )


def _rounds(recording: Recording) -> Iterator[list[dict[str, Any]]]:
    """Yield the events of each round, without those of a failed round before another one."""
    events: list[dict[str, Any]] = []
    failed = False
    for entry in recording.entries:
        if not isinstance(entry, UpstreamDataEntry | RoundEndEntry):
            continue
        if failed:
            events, failed = [], False
        events += json.decode(entry.events or b"[]")
        if isinstance(entry, RoundEndEntry):
            failed = entry.problem is not None
            if not failed:
                yield events
                events = []
    yield events


def _add(choice: RecordedChoice, event: dict[str, Any]) -> None:
    name = event["event"]
    if member := _TEXTS.get(name):
        setattr(choice, member, getattr(choice, member) + event["text"])
    elif name == "ToolStart":
        choice.tool_calls.append(RecordedToolCall(event["id"], event["name"]))
    elif name in ("ToolArgs", "ToolInput"):
        choice.tool_calls[-1].arguments += event["json" if name == "ToolArgs" else "text"]
    elif name == "ToolEnd":
        choice.tool_calls[-1].complete = event.get("complete", True)
    elif name == "HostedTool":
        choice.gateway_tools.append(event["item"])
    elif name == "Finish":
        choice.finish_reason = event["reason"]


def _sum(before: RecordedUsage, event: dict[str, Any]) -> RecordedUsage:
    return RecordedUsage(
        before.input + event["prompt"],
        before.cached + event.get("cached", 0),
        before.output + event["completion"],
        before.reasoning + event.get("reasoning", 0),
    )
