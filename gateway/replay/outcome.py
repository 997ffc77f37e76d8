"""Reduce a recording to a comparable result, independent of chunking, ids and times."""

from collections.abc import Iterator, Sequence
from difflib import unified_diff
from typing import Any

from msgspec import Struct, json

from gateway.recording import EndEntry, Recording, ResponseDataEntry, RoundEndEntry, UpstreamDataEntry

# Members that differ between two runs, or between two requests of the same meaning.
_OWN = frozenset(
    (
        "call_id", "completed_at", "created", "created_at", "encrypted_content", "id", "item_id", "obfuscation",
        "previous_response_id", "store", "background", "conversation", "prompt_cache_key", "signature",
    )
)  # fmt: skip
_PIECES = {"Text": "text", "Reasoning": "text", "Refusal": "text", "ToolInput": "text", "ToolArgs": "json"}


_ONCE = frozenset(("finish_reason", "model", "object", "role", "service_tier", "system_fingerprint", "type"))


class Outcome(Struct, frozen=True):
    """The comparable result of a request.

    problem: the code of the error, else its type.
    said: the output of each choice in order; each text is one string.
    usage: the usage of each round.
    ledger: the warnings.
    answer: the response to the client, its chunks merged; None for the acceptance of a background response.
    """

    status: int
    problem: str | None
    said: list[Any]
    usage: list[Any]
    ledger: list[str]
    answer: Any


def outcome_of(recording: Recording) -> Outcome:
    """Return the outcome of a complete recording."""
    over = recording.entries[-1]
    assert isinstance(over, EndEntry)
    events = [
        one
        for entry in recording.entries
        if isinstance(entry, UpstreamDataEntry | RoundEndEntry)
        for one in _decoded_events(entry)
    ]
    problem = (over.problem.code or over.problem.type) if over.problem else None
    usage = [*_usage(recording)]
    return Outcome(over.status, problem, _choice_outputs(events), usage, sorted(over.ledger), _answer(recording))


def diff_outcomes(before: Outcome, now: Outcome, members: Sequence[str]) -> list[str]:
    """Return lines that show the differences in these members; none if they are equal.

    A replay runs in the foreground, so it cannot repeat the acceptance of a background response.
    """
    lines: list[str] = []
    for name in members:
        old, new = getattr(before, name), getattr(now, name)
        if old != new and (name != "answer" or old is not None):
            shown = unified_diff(_lines(old), _lines(new), "recorded", "now", lineterm="", n=1)
            lines += [f"{name}:", *list(shown)[2:]]
    return lines


def _lines(value: object) -> list[str]:
    return json.format(json.encode(value), indent=1).decode().splitlines()


def _usage(recording: Recording) -> Iterator[Any]:
    """Yield the last usage of each round."""
    last = None
    for entry in recording.entries:
        if isinstance(entry, UpstreamDataEntry | RoundEndEntry):
            last = next((one for one in reversed(_decoded_events(entry)) if one["event"] == "Usage"), last)
        if isinstance(entry, RoundEndEntry) and last:
            yield last
            last = None


def _decoded_events(entry: UpstreamDataEntry | RoundEndEntry) -> list[dict[str, Any]]:
    """Return the events of an entry as data."""
    return json.decode(entry.events, type=list[dict[str, Any]]) if entry.events else []


def _choice_outputs(events: Sequence[dict[str, Any]]) -> list[Any]:
    """Return the output of each choice, independent of its chunks."""
    choices: dict[int, list[Any]] = {}
    for one in events:
        if one["event"] not in ("Usage", "Failure"):
            one.pop("id", None)
            _add(choices.setdefault(one.pop("choice", None) or 0, []), one)
    return [choices[choice] for choice in sorted(choices)]


def _add(items: list[Any], new: dict[str, Any]) -> None:
    text, last = _PIECES.get(new["event"]), items[-1] if items else {}
    same = last.get("event") == new["event"] and last.get("call") == new.get("call")
    if text and same and not last.get("signature"):
        joined = {name: last[name] + new[name] for name in ("logprobs",) if name in last and name in new}
        items[-1] = {**last, **new, **joined, text: last[text] + new[text]}
    else:
        items.append(new)


def _answer(recording: Recording) -> Any:  # noqa: ANN401 - decoded JSON
    data = b"".join(entry.data for entry in recording.entries if isinstance(entry, ResponseDataEntry))
    if data[:1] == b"{":
        whole = json.decode(data)
        return None if whole.get("status") == "queued" else _normal(whole)
    frames = [json.decode(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
    if responses := [frame["response"] for frame in frames if "response" in frame]:
        return _normal(responses[-1])
    answer: Any = None
    for frame in frames:
        answer = _folded(answer, frame)
    return _normal(answer)


def _folded(before: Any, new: Any, name: str = "") -> Any:  # noqa: ANN401 - decoded JSON
    """Merge a chunk into the value of the chunks before it."""
    if isinstance(before, dict) and isinstance(new, dict):
        return {**before, **{key: _folded(before.get(key), value, key) for key, value in new.items()}}
    if isinstance(before, list) and isinstance(new, list):
        return _united(before, new)
    if isinstance(before, str) and isinstance(new, str) and name not in _ONCE:
        return before + new
    return before if new is None else new


def _united(before: list[Any], new: list[Any]) -> list[Any]:
    """Merge two lists; entries with the same index are merged."""
    result = [*before]
    for one in new:
        index = one.get("index") if isinstance(one, dict) else None
        place = next((i for i, old in enumerate(result) if index is not None and old.get("index") == index), None)
        if place is None:
            result.append(one)
        else:
            result[place] = _folded(result[place], one)
    return result


def _normal(value: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if isinstance(value, dict):
        return {name: _normal(one) for name, one in value.items() if name not in _OWN and not _worded(name, one)}
    return [_normal(one) for one in value] if isinstance(value, list) else value


def _worded(name: str, value: object) -> bool:
    """Return True for an error message; its wording may change."""
    return name == "message" and isinstance(value, str)
