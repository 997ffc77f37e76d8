"""Check streams of /v1/responses.

`checked` compares a stream with all specifications: the strict types of the openai package, the accumulator of its
stream helper, the types of Open Responses as far as they apply, and `Replay`.  Replay builds the output from the events
alone and checks their order.
"""

import inspect
import json
from functools import cache
from typing import get_args

import openresponses_types.types as open_responses
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

BEGINNING = ("response.created", "response.in_progress")
IN_BACKGROUND = ("response.created", "response.queued", "response.in_progress")
TERMINAL = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}

# Additions to the types of the openai package, by class.
BEYOND = {
    "Response": {"store", "presence_penalty", "frequency_penalty"},  # in the API, not in its types
    "ResponseErrorEvent": {"error"},  # half of the clients look here
    "ResponseFunctionCallArgumentsDoneEvent": {"name"},  # for older versions
    "ResponseFunctionToolCall": {"provider_specific_fields"},
    "ResponseCustomToolCall": {"provider_specific_fields", "status"},
    "ResponseFunctionShellToolCall": {"provider_specific_fields"},
    "ResponseFunctionWebSearch": {"results"},  # may be included, but is not in the types
    "ResponseApplyPatchToolCall": {"provider_specific_fields"},
    "ResponseToolSearchCall": {"provider_specific_fields"},
    "LocalShellCall": {"provider_specific_fields"},
}
NOT_IN_THE_TYPES = ("context_length_exceeded", "insufficient_quota")  # codes of the live API

# By the prefix of event names: the member that holds the part, the member with its text, and the type of the part.
RUNS = {
    "response.output_text": ("content", "text", "output_text"),
    "response.refusal": ("content", "refusal", "refusal"),
    "response.reasoning_text": ("content", "text", "reasoning_text"),
    "response.reasoning_summary_text": ("summary", "text", "summary_text"),
    "response.function_call_arguments": ("", "arguments", ""),
    "response.custom_tool_call_input": ("", "input", ""),
    "response.mcp_call_arguments": ("", "arguments", ""),
}
# By type of built-in item: its stages in order, its last stages, and the members that only its end has.
STAGES = {
    "mcp_call": (["in_progress"], {"completed", "failed"}, {"output", "error"}),
    "mcp_list_tools": (["in_progress"], {"completed", "failed"}, {"tools", "error"}),
    "web_search_call": (["in_progress", "searching"], {"completed"}, {"action", "results"}),
    "file_search_call": (["in_progress", "searching"], {"completed"}, {"queries", "results"}),
}
AROUND = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}
OF_TYPE = {
    "message": {"response.output_text", "response.refusal"},
    "reasoning": {"response.reasoning_text", "response.reasoning_summary_text"},
    "function_call": {"response.function_call_arguments"},
    "custom_tool_call": {"response.custom_tool_call_input"},
    "mcp_call": {"response.mcp_call_arguments"},
}


def events_of(data):
    """Return the events of a whole stream.

    Each `event:` line matches the type of its data.  Comments are left out, and [DONE] is the last.
    """
    *frames, last, nothing = data.decode().split("\n\n")
    assert last == "data: [DONE]" and nothing == ""
    events = []
    for frame in frames:
        if frame.startswith(": "):
            continue
        name, payload = frame.split("\n")
        event = json.loads(payload.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def checked(data, extras=(), *, silent=False):
    """Return the Response at the end of a stream.

    extras: fields outside of the API that the client asked for.
    silent: the response has no output.
    """
    events = events_of(data)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    replay, state = Replay(silent), ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(validated(event, frozenset(extras)))
        replay.take(event)
    assert replay.ended
    response = events[-1]["response"]
    _check_folded(state, response)
    _check_open_responses(events, response)
    return response


def checked_whole(data, extras=()):
    """Return the Response in a body."""
    model = TypeAdapter(Response).validate_json(data, strict=True)
    _check_beyond(model, frozenset(extras))
    return json.loads(data)


def validated(event, extras=frozenset()):
    """Return the event in the strict types of the openai package; check that only known additions exceed them."""
    text = json.dumps(event)
    error = (event.get("response") or {}).get("error")
    if error and error["code"] in NOT_IN_THE_TYPES:
        text = text.replace(error["code"], "server_error")
    model = _adapters()[event["type"]].validate_json(text, strict=True)
    if event["type"].endswith(".delta"):
        extras |= {"obfuscation"}
    _check_beyond(model, extras)
    return model


@cache
def _adapters():
    union, *_ = get_args(ResponseStreamEvent)
    return {get_args(model.model_fields["type"].annotation)[0]: TypeAdapter(model) for model in get_args(union)}


def _check_beyond(value, extras):
    if isinstance(value, list):
        for one in value:
            _check_beyond(one, extras)
    if isinstance(value, BaseModel):
        name = type(value).__name__
        assert set(value.model_extra or ()) <= BEYOND.get(name, set()) | extras, name
        for field in type(value).model_fields:
            _check_beyond(getattr(value, field), extras)


def _check_folded(state, response):
    """Check that the SDK folds the deltas to the final response."""
    for index, item in enumerate(response["output"]):
        folded = state._output_items[index]
        if item["type"] == "message":
            for part, wanted in zip(folded.content, item["content"], strict=True):
                assert wanted["type"] != "output_text" or part.text == wanted["text"]
        if item["type"] == "function_call":
            assert folded.arguments == item["arguments"]
        assert state._completed_output[index].id == item["id"]
    if response["status"] == "completed":
        assert [item.id for item in state._completed_response.output] == [item["id"] for item in response["output"]]


@cache
def _open_adapters():
    """Return the events of Open Responses by type; each class names its type by an enumeration or a literal."""
    found = {}
    for name, model in inspect.getmembers(open_responses, inspect.isclass):
        if name.endswith("StreamingEvent"):
            named = model.model_fields["type"].annotation
            values = get_args(named) or [member.value for member in named]
            found[values[0]] = TypeAdapter(model)
    return found


def _check_open_responses(events, response):
    """Check all events with the types of Open Responses, if these cover the response.

    Log probabilities in events have no bytes, as in the openai package.  A schema is always null in these types.
    """
    known = _open_adapters()
    if any(event.get("logprobs") for event in events) or "schema" in response["text"]["format"]:
        return
    types = {item["type"] for item in response["output"]} | {tool["type"] for tool in response["tools"]}
    if types <= {"message", "reasoning", "function_call", "function"} and all(e["type"] in known for e in events):
        for event in events:
            known[event["type"]].validate_json(json.dumps(event))


class Replay:
    """Build the output as a client does, and check which events may come next.

    https://platform.openai.com/docs/api-reference/responses-streaming
    """

    def __init__(self, silent=False):
        self.output = []
        self.ended = False
        self._silent = silent
        self._beginning = BEGINNING
        self._seen = 0
        self._item = self._part = self._run = None
        self._begun = None
        self._failed = False

    def take(self, event):
        """Take the next event."""
        assert not self.ended
        type = event["type"]
        prefix, _, verb = type.rpartition(".")
        if self._seen < len(self._beginning) or type == "response.in_progress":
            self._lifecycle(event)
        elif type in TERMINAL:
            self._end(event["response"], TERMINAL[type])
        elif type == "error":
            self._error(event)
        else:
            assert not self._failed and (self._item or verb == "added")
            if prefix == "response.output_item":
                getattr(self, f"_item_{verb}")(event)
            elif prefix in AROUND:
                getattr(self, f"_part_{verb}")(event, AROUND[prefix])
            elif prefix in RUNS:
                getattr(self, f"_run_{verb}")(event, prefix)
            elif prefix.removeprefix("response.") in STAGES:
                self._stage(event, prefix.removeprefix("response."), verb)
            else:
                assert type == "response.output_text.annotation.added"
                self._annotation(event)
        self._seen += 1

    def _lifecycle(self, event):
        response = event["response"]
        self._beginning = IN_BACKGROUND if response["background"] else BEGINNING
        assert event["type"] == self._beginning[min(self._seen, len(self._beginning) - 1)]
        waits = response["background"] and event["type"] != "response.in_progress"
        assert response["output"] == [] and response["usage"] is None
        assert response["status"] == ("queued" if waits else "in_progress")
        begun = {**response, "status": "in_progress"}
        assert self._begun in (None, begun)
        self._begun = begun

    def _error(self, event):
        assert self._item is None and not self._failed
        assert {name: event["error"][name] for name in ("code", "message", "param")}.items() <= event.items()
        self._failed = True

    def _end(self, response, status):
        cancelled = status == "failed" and response["status"] == "cancelled"
        assert self._item is None and (cancelled or response["status"] == status)
        assert response["output"] == self.output and response.keys() >= self._begun.keys()
        same = self._begun.keys() - {"status", "output", "usage", "error", "incomplete_details", "completed_at"}
        assert {name: response[name] for name in same} == {name: self._begun[name] for name in same}
        assert (response["error"] is not None) == self._failed == (status == "failed" and not cancelled)
        assert (response["incomplete_details"] is not None) == (status == "incomplete")
        assert (response["completed_at"] is not None) == (status == "completed")
        assert self._failed or cancelled or bool(self.output) is not self._silent
        cut = [item for item in self.output if item.get("status") == "incomplete"]
        assert cut in ([], self.output[-1:]) and (not cut or status != "completed")
        self.ended = True

    def _item_added(self, event):
        item = event["item"]
        assert self._item is None and event["output_index"] == len(self.output)
        assert item["id"] not in [other["id"] for other in self.output] and item["id"] != item.get("call_id")
        self._item, self._runs, self._deltas, self._stages = item, 0, 0, []
        self._lists = {name: [] for name in ("content", "summary") if name in item}
        assert all(item[name] == [] for name in self._lists)
        assert item["type"] not in OF_TYPE or item["status"] == "in_progress"

    def _item_done(self, event):
        item = event["item"]
        assert self._part is None and self._run is None and event["output_index"] == len(self.output)
        assert item.keys() == self._item.keys()
        names = {name for name in ("arguments", "input") if isinstance(item.get(name), str) and item["type"] in OF_TYPE}
        assert all(item[name] == self._text for name in names) and self._runs >= len(names)
        assert item["type"] != "function_call" or self._deltas or item["status"] == "incomplete"
        assert all(item[name] == parts for name, parts in self._lists.items())
        begins, ends, later = STAGES.get(item["type"], ([], {}, set()))
        if self._stages:
            *before, last = self._stages
            assert before == begins[: len(before)] and last in ends
            cut = {"incomplete"} if last == "failed" else set()
            untold = {"failed", "incomplete"} if ends == {"completed"} else set()
            assert item.get("status", last) in {last} | cut | untold
        same = item.keys() - self._lists.keys() - names - later - {"status", "encrypted_content"}
        assert all(item[name] == self._item[name] for name in same)
        self._item = None
        self.output.append(item)

    def _stage(self, event, type, verb):
        assert type == self._item["type"] and self._run is None
        assert (event["item_id"], event["output_index"]) == (self._item["id"], len(self.output))
        assert verb not in STAGES[type][1] or self._runs or type not in OF_TYPE
        self._stages.append(verb)

    def _part_added(self, event, place):
        assert self._item and self._part is None and self._run is None
        self._check_place(event, place, len(self._lists[place]))
        self._part, self._runs = event["part"], 0
        assert not any(value for name, value in self._part.items() if name != "type")

    def _part_done(self, event, place):
        part = event["part"]
        self._check_place(event, place, len(self._lists[place]))
        (field,) = {"text", "refusal"} & part.keys()
        assert self._part and self._run is None and self._runs == 1
        spelled = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
        assert part == {**self._part, field: self._text, **spelled}
        assert [without_bytes(one) for one in spelled.get("logprobs", ())] == self._logprobs
        self._lists[place].append(part)
        self._part = None

    def _run_delta(self, event, name):
        self._check_run(event, name)
        self._run = self._run or (name, [], [])
        assert self._run[0] == name
        self._run[1].append(event["delta"])
        self._run[2].extend(event.get("logprobs", []))
        self._deltas += 1

    def _run_done(self, event, name):
        self._check_run(event, name)
        same, pieces, logprobs = self._run or (name, [], [])
        assert same == name and event[RUNS[name][1]] == "".join(pieces) and event.get("logprobs", []) == logprobs
        self._text, self._logprobs = "".join(pieces), logprobs
        self._run, self._runs = None, self._runs + 1
        assert self._runs == 1

    def _check_run(self, event, name):
        place, _, type = RUNS[name]
        assert name in OF_TYPE[self._item["type"]] and (not place or (self._part and self._part["type"] == type))
        self._check_place(event, place, len(self._lists[place]) if place else None)

    def _check_place(self, event, place, index):
        assert event["item_id"] == self._item["id"] and event["output_index"] == len(self.output)
        assert {name: event[name] for name in event if name in ("content_index", "summary_index")} == (
            {f"{place}_index": index} if place else {}
        )

    def _annotation(self, event):
        self._check_place(event, "content", len(self._lists["content"]))
        assert self._part and event["annotation_index"] == len(self._part["annotations"])
        self._part["annotations"] = [*self._part["annotations"], event["annotation"]]


def without_bytes(logprob):
    """Return a log probability of a part in the form of events."""
    top = [{name: one[name] for name in ("token", "logprob")} for one in logprob["top_logprobs"]]
    assert all(isinstance(one["bytes"], list) for one in (logprob, *logprob["top_logprobs"]))
    return {"token": logprob["token"], "logprob": logprob["logprob"], "top_logprobs": top}
