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


def meant_as(turn, said):
    assert (said.content, said.thought) == (turn.content, turn.thought)
    assert [call.meant for call in said.calls] == turn.calls
    assert said.finish == ("tool_calls" if turn.calls else "stop")


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
def only_one_tool_use_where_one_is_wanted(said):
    assert [call.meant for call in said.calls] == PARALLEL.calls[:1] and said.finish == "tool_calls"


@use(SINGLE, ways=(WHOLE,))
def a_result_is_given_to_a_tool_use(said):
    (call,) = said.calls
    past = said.question.fields["messages"]
    content = [text('{"temperature": 18}')]
    again = said.again(messages=[*past, assistant(said.body["content"]), result(call.id, content)])
    assert again.content == FOLLOW_UP.content


@use(SINGLE, max_tokens=16, needs=("cut_calls",), varies=True)
def a_tool_use_may_be_cut(said):
    assert said.content == "" and said.body["stop_reason"] == "max_tokens"


@call_messages(*turns(SINGLE.messages), tools=tools(SINGLE), tool_choice={"type": "none"})
def no_tool_use_where_none_is_wanted(said):
    assert said.calls == [] and said.finish in ("stop", "length")


# Reasoning


@think()
def a_thinking_block_comes_before_the_text(said):
    assert said.meant == (THINK.content, THINK.thought, [], "stop")
    assert [block["type"] for block in said.body["content"]] == ["thinking", "text"]


@think(ways=(STREAMED,))
def a_thinking_block_comes_back(said):
    past = said.question.fields["messages"]
    again = said.again(messages=[*past, assistant(said.body["content"]), user("What is 1 + 1?")], thinking=None)
    assert again.content == "1 + 1 = 2."


@think(thinking={"type": "adaptive", "display": "omitted"})
def a_thinking_block_may_be_without_its_text(said):
    block = said.body["content"][0]
    assert (block["type"], block["thinking"], said.content) == ("thinking", "", THINK.content) and block["signature"]


@think(max_tokens=8)
def a_thinking_block_may_be_cut(said):
    assert (said.content, said.finish) == ("", "length")
    assert said.thought and THINK.thought.startswith(said.thought)


@think(thinking={"type": "disabled"}, needs=("thought_switch",))
def a_thinking_block_may_be_forbidden(said):
    assert said.meant == (THINK.content, "", [], "stop")
