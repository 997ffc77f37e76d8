"""Calls: who is called, with what, in which order, and what comes back, in both APIs.

Neighbours share the beginning of their prompts, which the server then need not read again.
"""

import json
from functools import partial

from support.worked_examples import TIME, TOOLS, TURNS, WEATHER, calling, items, results, user, weather_question
from wire.case import STREAMED, WHOLE, chat, respond
from wire.thoughts import EFFORT

SINGLE, PARALLEL, THINKING = TURNS["single"], TURNS["parallel"], TURNS["think_then_call"]
OF_PARIS = '{"city": "Paris", "unit": "celsius"}'


def turn(one, needs=(), **fields):
    """A chat completion that a worked example leads to."""
    messages = fields.pop("messages", one.messages)
    effort = {"reasoning_effort": EFFORT} if one.thought else {}
    return chat(*messages, **{"tools": one.tools, "max_tokens": 120, "needs": needed(one, needs), **effort, **fields})


def response_turn(one, needs=(), **fields):
    """The same as a response, with the thoughts of all its turns."""
    tools = [{"type": "function", "strict": False, **tool["function"]} for tool in one.tools]
    reasoning = {"context": "all_turns"} | ({"effort": EFFORT} if one.thought else {})
    common = {"tools": tools, "max_output_tokens": 120, "reasoning": reasoning}
    return respond([*items(one.messages)], **{**common, "needs": needed(one, needs), **fields})


def needed(one, more):
    """The examples of a turn that thinks have their thoughts beside the calls."""
    return ("tools", *(("past_thoughts",) if one.thought else ()), *more)


def named(name):
    return {"type": "function", "function": {"name": name}}


def meant_as(one, response):
    assert (response.content, response.thought) == (one.content, one.thought)
    assert [call.meant for call in response.calls] == one.calls
    assert response.finish == ("tool_calls" if one.calls else "stop")


calls_paris = partial(meant_as, SINGLE)


def is_no_call(response):
    assert response.calls == [] and response.finish in ("stop", "length")


# One call

turn(SINGLE, name="a_call")(calls_paris)
turn(SINGLE, tool_choice="required", needs=("forced_tools",), name="a_call_that_is_required")(calls_paris)
response_turn(SINGLE, name="a_call_of_a_response")(calls_paris)
response_turn(
    SINGLE, tool_choice="required", needs=("forced_tools",), ways=(WHOLE,), name="a_call_that_a_response_requires"
)(calls_paris)


@turn(SINGLE, ways=(STREAMED,))
def a_call_begins_with_its_name(response):
    deltas = [chunk["choices"][0]["delta"] for chunk in response.body["chunks"]]
    first, *more = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert (first["index"], first["type"], first["function"]) == (
        0,
        "function",
        {"name": "get_weather", "arguments": ""},
    )
    assert json.loads("".join(piece["function"]["arguments"] for piece in more)) == SINGLE.calls[0][1]


@turn(SINGLE, tool_choice="auto", stream_options={"include_usage": True}, ways=(STREAMED,))
def a_call_is_counted(response):
    calls_paris(response)
    assert response.usage_counts == response.gate.ask(response.question.but(stream_options=None)).usage_counts


@turn(SINGLE, logprobs=True, needs=("logprobs", "logprobs_beside_tools"), ways=(STREAMED,))
def chances_beside_a_call(response):
    calls_paris(response)


@turn(SINGLE, max_tokens=16, needs=("cut_calls",), varies=True)
def a_call_may_be_cut(response):
    assert response.content == "" and response.finish == "length"
    for call in response.calls:
        assert call.name == "get_weather" and (call.arguments == "{}" or OF_PARIS.startswith(call.arguments.rstrip()))


@response_turn(SINGLE, max_output_tokens=16, needs=("cut_calls",), varies=True)
def a_call_of_a_response_may_be_cut(response):
    assert (response.body["status"], response.content, response.finish) == ("incomplete", "", "length")


@turn(SINGLE, tools=None, functions=[WEATHER["function"], TIME["function"]], varies=True)
def functions_are_tools_of_old(response):
    (choice,) = response.body["choices"]
    called = choice["message"]["function_call"]
    assert (called["name"], json.loads(called["arguments"])) == SINGLE.calls[0]
    assert choice["finish_reason"] == "function_call" and not choice["message"].get("tool_calls")


@response_turn(SINGLE, store=True, ways=(WHOLE,))
def a_result_is_given_to_a_call_that_is_stored(response):
    (call,) = response.calls
    result = {"type": "function_call_output", "call_id": call.id, "output": '{"temperature": 18}'}
    assert (
        response.again(previous_response_id=response.body["id"], input=[result]).content == TURNS["follow_up"].content
    )


@chat(user("Hello!"), tools=TOOLS, tool_choice="required", stop=["."], max_tokens=60, needs=("tools",), varies=True)
def a_call_that_is_owed_is_made_or_missed(response):
    assert response.calls or "unenforced:tool_choice" in response.warnings


# What a conversation brings along

turn(TURNS["follow_up"], name="a_result")(partial(meant_as, TURNS["follow_up"]))
response_turn(TURNS["follow_up"], name="a_result_for_a_response")(partial(meant_as, TURNS["follow_up"]))

IN_PARTS = [{**message, "content": [{"type": "text", "text": message["content"]}]} for message in results(Paris=18)]
BARE = [message | {"content": None} if message.get("tool_calls") else message for message in SINGLE.messages]
turn(SINGLE, messages=[*SINGLE.messages, calling("Paris"), *IN_PARTS], ways=(WHOLE,), name="a_result_in_parts")(
    partial(meant_as, TURNS["follow_up"])
)
turn(SINGLE, messages=BARE, ways=(WHOLE,), name="past_calls_without_content")(calls_paris)


@turn(
    SINGLE,
    messages=[*SINGLE.messages[:-1], weather_question("Oslo"), calling("Oslo"), weather_question("Paris")],
    ways=(WHOLE,),
)
def a_call_without_a_result_is_no_obstacle(response):
    assert response.content or response.calls


@chat(*SINGLE.messages, *results(Lima=3), tools=TOOLS)
def a_result_of_no_call(response):
    assert (response.status, response.problem["param"]) == (400, f"messages[{len(SINGLE.messages)}].role")


@chat(*SINGLE.messages, tools=TOOLS, tool_choice=named("get_news"))
def a_name_that_is_not_offered(response):
    assert (response.status, response.problem["param"]) == (400, "tool_choice")


# Several calls


@turn(PARALLEL)
def several_calls(response):
    meant_as(PARALLEL, response)
    past = [call["id"] for message in PARALLEL.messages for call in message.get("tool_calls", ())]
    ids = [call.id for call in response.calls]
    assert all(ids) and len({*ids, *past}) == len(ids) + len({*past})


@turn(PARALLEL, parallel_tool_calls=False, ways=(STREAMED,))
def only_one_call_where_one_is_wanted(response):
    assert [call.meant for call in response.calls] == PARALLEL.calls[:1] and response.finish == "tool_calls"


response_turn(PARALLEL, ways=(STREAMED,), name="several_calls_of_a_response")(partial(meant_as, PARALLEL))


@response_turn(PARALLEL, parallel_tool_calls=False, ways=(WHOLE,))
def only_one_call_of_a_response_where_one_is_wanted(response):
    assert [call.meant for call in response.calls] == PARALLEL.calls[:1]


# Thoughts before them


@turn(THINKING, max_tokens=10)
def a_thought_before_a_call_may_be_cut(response):
    assert (response.content, response.calls, response.finish) == ("", [], "length")
    assert response.thought and THINKING.thought.startswith(response.thought)


turn(THINKING, name="think_then_call")(partial(meant_as, THINKING))
response_turn(THINKING, ways=(STREAMED,), name="think_then_call_in_a_response")(partial(meant_as, THINKING))
turn(TURNS["think_then_calls"], ways=(STREAMED,), name="think_then_calls")(partial(meant_as, TURNS["think_then_calls"]))
response_turn(TURNS["think_then_calls"], ways=(WHOLE,), name="think_then_calls_in_a_response")(
    partial(meant_as, TURNS["think_then_calls"])
)


# Other tools, or none, which are other prompts

turn(SINGLE, tool_choice=named("get_weather"), needs=("forced_tools",), name="a_call_by_name")(calls_paris)
turn(
    SINGLE,
    tools=[WEATHER, {"type": "function", "function": {"name": "get_time"}}],
    ways=(WHOLE,),
    name="a_tool_without_parameters",
)(calls_paris)
chat(*SINGLE.messages, tools=TOOLS, tool_choice="none", name="no_call_where_none_is_wanted")(is_no_call)
chat(
    *SINGLE.messages,
    functions=[WEATHER["function"]],
    function_call="none",
    ways=(WHOLE,),
    name="no_function_where_none_is_wanted",
)(is_no_call)
respond(
    [*items(SINGLE.messages)],
    tools=[{"type": "function", **WEATHER["function"]}],
    tool_choice="none",
    ways=(WHOLE,),
    name="no_call_of_a_response_where_none_is_wanted",
)(is_no_call)
