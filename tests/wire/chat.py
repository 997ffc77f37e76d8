"""Chat completions without tools: text, roles, how an answer ends, how it is sampled and counted."""

import json

from support.worked_examples import assistant, user
from wire.case import STREAMED, STRICT, WHOLE, chat

CAPITAL = user("What is the capital of France?")
OF_FRANCE = "The capital of France is Paris."
STORY = user("Tell me a story.")
SONG = (user("Say la la la la la la la la."), assistant("la la la la la la la la"), user("Again."))
PARIS = "7042"  # the token " Paris"


def system(text, role="system"):
    return {"role": role, "content": text}


def text(*parts):
    return [{"type": "text", "text": part} for part in parts]


# Text


@chat(CAPITAL)
def a_text_ends_by_itself(response):
    assert response.meant == (OF_FRANCE, "", [], "stop")
    assert response.body["model"] == "m" and response.warnings == []


@chat(CAPITAL, ways=(STREAMED,))
def a_role_comes_first_and_a_reason_last(response):
    first, *_, last = [chunk["choices"][0] for chunk in response.body["chunks"]]
    assert first["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")


@chat(user("Say: é"), assistant("é"), user("Say: 🐦"), assistant("🐦"), user("Say: 🐦🦊"))
def characters_of_many_bytes_stay_whole(response):
    assert "🐦" in response.content and "\ufffd" not in response.content


@chat(CAPITAL, assistant(OF_FRANCE), user("And of Italy?"))
def a_conversation_goes_on(response):
    assert "Rome" in response.content


@chat(user(text("What is the capital", "of France?")), ways=(WHOLE,))
def parts_are_one_text(response):
    assert "Paris" in response.content
    assert response.again(messages=[user("What is the capital\nof France?")]).usage_counts == response.usage_counts


@chat(CAPITAL, assistant(text("The capital of France", " is Paris.")), user("And of Italy?"))
def parts_of_an_answer_are_one_text(response):
    assert "Rome" in response.content


@chat(CAPITAL, assistant(None), CAPITAL)
def past_content_may_be_null(response):
    assert "Paris" in response.content


# Roles


@chat(system("Answer in one word.", "developer"), CAPITAL)
def a_developer_is_the_system(response):
    assert response.again(messages=[system("Answer in one word."), CAPITAL]).meant == response.meant


@chat(system("Be kind."), system("Be brief."), CAPITAL)
def leading_system_messages_are_one(response):
    assert response.again(messages=[system("Be kind.\n\nBe brief."), CAPITAL]).meant == response.meant


@chat(CAPITAL, assistant(OF_FRANCE), system("Answer in one word."), user("And of Italy?"))
def a_late_system_message_is_kept(response):
    late = user("<system_message>Answer in one word.</system_message>")
    assert response.warnings == ["translated:messages.role"]
    assert response.again(messages=[CAPITAL, assistant(OF_FRANCE), late, user("And of Italy?")]).meant == response.meant


@chat(
    CAPITAL,
    assistant("The capital of France is"),
    continue_final_message=True,
    add_generation_prompt=False,
    needs=("continues",),
)
def the_beginning_of_an_answer_is_gone_on_from(response):
    assert response.content.strip() == "Paris."


@chat(CAPITAL, assistant("The capital of France is"))
def a_last_message_of_the_assistant_is_answered(response):
    assert "Paris" in response.content


# How it ends


@chat(CAPITAL, max_tokens=3)
def max_tokens_cuts(response):
    assert response.finish == "length" and response.content and OF_FRANCE.startswith(response.content)


@chat(CAPITAL, max_tokens=None, max_completion_tokens=3)
def max_completion_tokens_cuts(response):
    assert response.meant == response.again(max_completion_tokens=None, max_tokens=3).meant


@chat(CAPITAL, max_tokens=None, max_new_tokens=3, needs=("known",))
def another_word_for_the_limit_cuts(response):
    assert response.meant == response.again(max_new_tokens=None, max_tokens=3).meant
    assert response.warnings == ["renamed:max_new_tokens"]


@chat(CAPITAL, stop=" is")
def a_stop_sequence_ends_it_and_is_left_out(response):
    assert response.meant == ("The capital of France", "", [], "stop")


@chat(CAPITAL, stop=["Rome", "Paris"])
def any_of_several_stop_sequences_ends_it(response):
    assert response.content.rstrip() == "The capital of France is" and response.finish == "stop"


# How it is sampled


@chat(STORY, temperature=1.5, seed=7, max_tokens=10, needs=("seed",))
def a_seed_repeats_the_response(response):
    assert response.again(seed=8).content != response.content


@chat(STORY, temperature=1.5, top_k=1, max_tokens=10, needs=("top_k",))
def the_most_likely_token_is_the_answer_at_any_temperature(response):
    assert response.content == response.again(temperature=0, top_k=None).content


@chat(CAPITAL, logit_bias={PARIS: -100}, needs=("logit_bias",))
def a_token_is_never_generated(response):
    assert "Paris" not in response.content and response.content.startswith("The capital of France is")


@chat(*SONG, frequency_penalty=2, max_tokens=12, needs=("frequency_penalty",))
def what_was_generated_often_is_penalised(response):
    assert response.content.lower().count("la ") < response.again(frequency_penalty=None).content.count("la ")


@chat(*SONG, repetition_penalty=2.0, max_tokens=10, needs=("repetition_penalty",))
def a_penalty_has_two_names(response):
    """The prompt is cached by then for both names: reading it anew can round otherwise, and a penalty makes close calls."""
    one, other = response.again(), response.again(repetition_penalty=None, repeat_penalty=2.0)
    assert one.meant == other.meant != response.again(repetition_penalty=None).meant
    named = [entry for entry in (*response.warnings, *other.warnings) if entry.endswith("_penalty")]
    assert {entry.partition(":")[0] for entry in named} <= {"forwarded", "renamed"}, (one, other)


@chat(CAPITAL, temperature=0.7, n=2, needs=("choices",), varies=True)
def several_choices(response):
    choices = response.body["choices"]
    assert [choice["index"] for choice in choices] == [0, 1]
    assert all(choice["message"]["content"] and choice["finish_reason"] for choice in choices)


@chat(CAPITAL, logprobs=True, top_logprobs=2, needs=("logprobs",))
def chances_of_the_tokens(response):
    tokens = response.body["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens).startswith(OF_FRANCE)
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in tokens)


# How it is counted


@chat(CAPITAL, ways=(WHOLE,))
def a_whole_answer_is_counted(response):
    prompt, completion = response.usage_counts
    assert prompt > 10 and completion >= 7 and response.usage["total_tokens"] == prompt + completion


@chat(CAPITAL, stream_options={"include_usage": True}, ways=(STREAMED,))
def a_count_comes_once_where_it_is_requested(response):
    *others, last = response.body["chunks"]
    assert last["choices"] == [] and all(chunk["usage"] is None and chunk["choices"] for chunk in others)
    assert response.usage_counts == response.gate.ask(response.question.but(stream_options=None)).usage_counts


@chat(CAPITAL, ways=(STREAMED,))
def no_count_comes_unasked(response):
    assert all(chunk["choices"] and "usage" not in chunk for chunk in response.body["chunks"])


@chat(CAPITAL, stream_options={"include_usage": True, "continuous_usage_stats": True}, ways=(STREAMED,))
def a_count_may_come_with_the_chunks(response):
    assert response.body["chunks"][-1]["usage"] and response.content == OF_FRANCE


# Text in a form

OBJECTS = (user("A JSON object with a=1, please."), assistant('{"a": 1}'), user("A JSON object with b=2, please."))
SEVEN = {
    "type": "object",
    "properties": {"n": {"type": "integer", "enum": [7]}},
    "required": ["n"],
    "additionalProperties": False,
}


@chat(*OBJECTS, response_format={"type": "json_object"}, needs=("json_object",))
def an_object_is_json(response):
    assert isinstance(json.loads(response.content), dict)


@chat(
    *OBJECTS,
    response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": SEVEN}},
    needs=("json_schema",),
)
def an_object_follows_its_schema(response):
    assert json.loads(response.content) == {"n": 7}


@chat(*OBJECTS, guided_json=SEVEN, needs=("json_schema",))
def a_schema_in_other_words_is_the_same(response):
    assert json.loads(response.content) == {"n": 7} and response.warnings == ["translated:guided_json"]


@chat(*OBJECTS, response_format={"type": "text"})
def text_is_in_no_form(response):
    assert response.content and response.warnings == []


# What is not there


@chat(CAPITAL, user="u", metadata={"a": "b"}, service_tier="auto", safety_identifier="s", prompt_cache_key="k")
def what_has_no_effect_is_taken_in_silence(response):
    assert response.warnings == [] and response.content == OF_FRANCE


@chat(CAPITAL, verbosity="low", prediction={"type": "content", "content": "Paris"}, needs=("known",))
def unsupported_field_is_listed(response):
    assert {*response.warnings} == {"dropped:verbosity", "dropped:prediction"} and response.content == OF_FRANCE


@chat(CAPITAL, verbosity="low", headers=STRICT, needs=("known",))
def unsupported_field_is_refused_where_that_is_wanted(response):
    assert (response.status, response.problem["code"], response.problem["param"]) == (
        400,
        "unsupported_parameter",
        "verbosity",
    )


@chat(CAPITAL, made_up_yesterday=3, needs=("unheard",))
def an_unknown_field_is_passed_on(response):
    assert response.warnings == ["forwarded:made_up_yesterday"] and response.content == OF_FRANCE


@chat(CAPITAL, chat_template_kwargs={"enable_thinking": False})
def a_switch_of_the_template_is_taken(response):
    assert response.content == OF_FRANCE


# What is kept


@chat(CAPITAL, store=True)
def a_completion_is_stored(response):
    kept = response.gate.get(f"/v1/chat/completions/{response.body['id']}")
    assert kept["choices"][0]["message"]["content"] == response.content
