"""What the cases of wire/ are about, in a user's words: each belongs to the first of these that it fits."""

from wire import chat, message_errors, message_tools, messages, refusals, responses, services, thoughts, tools

SAMPLED = ("seed", "top_k", "logit_bias", "frequency_penalty", "repetition_penalty")
AT_ONCE = ("answers_at_the_same_time_are_their_own", "a_client_that_leaves_frees_the_server")
DOCTOR = "`gateway doctor`: what it finds is true"


def in_module(module):
    """A check that several cases share is a partial one."""
    return lambda case: getattr(case.holds, "func", case.holds).__module__ == module.__name__


def needs(*abilities):
    return lambda case: not {*abilities}.isdisjoint(case.needs)


def has_fields(*fields):
    return lambda case: not {*fields}.isdisjoint(case.question.fields)


FEATURES = {
    "Messages: text, counts and models": in_module(messages),
    "Messages: reasoning": lambda case: in_module(message_tools)(case) and has_fields("thinking")(case),
    "Messages: tools": in_module(message_tools),
    "Messages: errors": in_module(message_errors),
    "Several at a time, and clients that leave": lambda case: case.name in AT_ONCE,
    "Errors": in_module(refusals),
    "Text completions": needs("completions"),
    "Tokens and their counts": lambda case: case.question.path.endswith(("tokenize", "_tokens")),
    "Embeddings": needs("embeddings"),
    "Ranks": needs("ranks"),
    "Models and readiness": in_module(services),
    "Usage": lambda case: "count" in case.name,
    "Stored answers": lambda case: case.question.fields.get("store") or has_fields("previous_response_id")(case),
    "Log probabilities": needs("logprobs"),
    "Several choices": needs("choices"),
    "Sampling": needs(*SAMPLED),
    "Continued answers": needs("continues"),
    "JSON and schemas": has_fields("response_format", "guided_json", "text"),
    "Thoughts before calls": lambda case: in_module(tools)(case) and needs("past_thoughts")(case),
    "Choice of tools": lambda case: in_module(tools)(case) and has_fields("tool_choice", "function_call")(case),
    "Several calls": lambda case: "several_calls" in case.name or has_fields("parallel_tool_calls")(case),
    "Calls and their results": in_module(tools),
    "Thoughts": in_module(thoughts),
    "Responses": in_module(responses),
    "Stop sequences": has_fields("stop"),
    "Unknown fields": needs("known", "unheard"),
    "Text, roles and limits": in_module(chat),
}  # fmt: skip


def feature(case):
    return next(name for name, fits in FEATURES.items() if fits(case))
