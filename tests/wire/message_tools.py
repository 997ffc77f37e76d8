"""Tools and reasoning in the Messages API."""

from functools import partial

from support.worked_examples import TURNS
from wire.case import STREAMED, WHOLE, call_messages
from wire.messages import assistant, result, text, tools, turns, user
from wire.thoughts import IN_TEXT

SINGLE, PARALLEL, FOLLOW_UP, THINK = (TURNS[name] for name in ("single", "parallel", "follow_up", "think"))


def use(turn, **fields):
    """Decorate a check of the response to a turn of the worked examples that has tools."""
    needs = ("tools", *fields.pop("needs", ()))
    return call_messages(*turns(turn.messages), **{"tools": tools(turn), "max_tokens": 120, "needs": needs, **fields})


def think(**fields):
    """Decorate a check of the response to a turn with reasoning."""
    thinking = {"thinking": {"type": "adaptive", "display": "summarized"}, "max_tokens": 60}
    return call_messages(*turns(IN_TEXT), **{**thinking, **fields})


def meant_as(turn, response):
    assert (response.content, response.thought) == (turn.content, turn.thought)
    assert [call.meant for call in response.calls] == turn.calls
    assert response.finish == ("tool_calls" if turn.calls else "stop")


# Tools

calls_paris = partial(meant_as, SINGLE)
use(SINGLE, name="a_tool_use")(calls_paris)
use(SINGLE, tool_choice={"type": "any"}, needs=("forced_tools",), name="a_tool_use_that_is_required")(calls_paris)
use(SINGLE, tool_choice={"type": "tool", "name": "get_weather"}, needs=("forced_tools",), name="a_tool_use_by_name")(
    calls_paris
)
use(FOLLOW_UP, name="a_tool_result")(partial(meant_as, FOLLOW_UP))
use(PARALLEL, name="several_tool_uses")(partial(meant_as, PARALLEL))


@use(PARALLEL, tool_choice={"type": "auto", "disable_parallel_tool_use": True})
def only_one_tool_use_where_one_is_wanted(response):
    assert [call.meant for call in response.calls] == PARALLEL.calls[:1] and response.finish == "tool_calls"


@use(SINGLE, ways=(WHOLE,))
def a_result_is_given_to_a_tool_use(response):
    (call,) = response.calls
    past = response.question.fields["messages"]
    content = [text('{"temperature": 18}')]
    again = response.again(messages=[*past, assistant(response.body["content"]), result(call.id, content)])
    assert again.content == FOLLOW_UP.content


@use(SINGLE, max_tokens=16, needs=("cut_calls",), varies=True)
def a_tool_use_may_be_cut(response):
    assert response.content == "" and response.body["stop_reason"] == "max_tokens"


@call_messages(*turns(SINGLE.messages), tools=tools(SINGLE), tool_choice={"type": "none"})
def no_tool_use_where_none_is_wanted(response):
    assert response.calls == [] and response.finish in ("stop", "length")


# Reasoning


@think()
def a_thinking_block_comes_before_the_text(response):
    assert response.meant == (THINK.content, THINK.thought, [], "stop")
    assert [block["type"] for block in response.body["content"]] == ["thinking", "text"]


@think(ways=(STREAMED,))
def a_thinking_block_comes_back(response):
    past = response.question.fields["messages"]
    again = response.again(messages=[*past, assistant(response.body["content"]), user("What is 1 + 1?")], thinking=None)
    assert again.content == "1 + 1 = 2."


@think(thinking={"type": "adaptive", "display": "omitted"})
def a_thinking_block_may_be_without_its_text(response):
    block = response.body["content"][0]
    assert (block["type"], block["thinking"], response.content) == ("thinking", "", THINK.content) and block[
        "signature"
    ]


@think(max_tokens=8)
def a_thinking_block_may_be_cut(response):
    assert (response.content, response.finish) == ("", "length")
    assert response.thought and THINK.thought.startswith(response.thought)


@think(thinking={"type": "disabled"}, needs=("thought_switch",))
def a_thinking_block_may_be_forbidden(response):
    assert response.meant == (THINK.content, "", [], "stop")
