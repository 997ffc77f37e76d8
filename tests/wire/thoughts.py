"""What a model thinks is never its answer, in whatever form past thoughts come back."""

from support.worked_examples import TURNS, assistant, items, user
from wire.case import STREAMED, WHOLE, chat, respond

THINK = TURNS["think"]
# The thoughts in the text, as models write them and servers without a parser leave them.
IN_TEXT = [
    assistant(f"<think>\n{message['reasoning_content']}\n</think>\n\n{message['content']}")
    if "reasoning_content" in message
    else message
    for message in THINK.messages
]
EFFORT = "medium"  # for servers that think only where they are asked to
ANSWER = (THINK.content, THINK.thought, [], "stop")


@chat(*IN_TEXT, max_tokens=60, reasoning_effort=EFFORT, ways=(WHOLE,))
def a_thought_is_separated_and_counted(response):
    assert response.meant == ANSWER
    thought = response.usage["completion_tokens_details"]["reasoning_tokens"]
    assert 5 < thought < response.usage["completion_tokens"]


@chat(*IN_TEXT, max_tokens=60, reasoning_effort=EFFORT, ways=(STREAMED,))
def a_thought_comes_before_the_text(response):
    assert response.meant == ANSWER
    deltas = [chunk["choices"][0]["delta"] for chunk in response.body["chunks"]]
    kinds = ["content" if delta.get("content") else "thought" for delta in deltas[1:-1] if any(delta.values())]
    assert kinds == sorted(kinds, reverse=True) and {*kinds} == {"content", "thought"}


@chat(*THINK.messages, max_tokens=60, reasoning_effort=EFFORT, needs=("past_thoughts",), ways=(WHOLE,))
def a_past_thought_reaches_the_model(response):
    assert response.meant == ANSWER


@chat(*IN_TEXT, max_tokens=8, reasoning_effort=EFFORT)
def a_thought_may_be_cut(response):
    assert (
        response.content == ""
        and response.finish == "length"
        and THINK.thought.startswith(response.thought)
        and response.thought
    )


@chat(*IN_TEXT, max_tokens=60, reasoning_effort="none", needs=("thought_switch",))
def a_thought_may_be_forbidden(response):
    assert response.meant == (THINK.content, "", [], "stop")


@respond([*items(IN_TEXT)], max_output_tokens=60, reasoning={"effort": EFFORT}, ways=(STREAMED,))
def a_thought_is_an_item_of_its_own(response):
    assert response.meant == ANSWER
    assert [item["type"] for item in response.body["output"]] == ["reasoning", "message"]
    assert response.usage["output_tokens_details"]["reasoning_tokens"] > 5


@respond(
    [*items(IN_TEXT)],
    max_output_tokens=60,
    reasoning={"effort": EFFORT},
    include=["reasoning.encrypted_content"],
    ways=(WHOLE,),
)
def a_sealed_thought_comes_back(response):
    thought, message = response.body["output"]
    again = response.again(
        input=[*response.question.fields["input"], {**thought, "summary": []}, message, user("What is 1 + 1?")],
        reasoning=None,
    )
    assert again.content == "1 + 1 = 2."
