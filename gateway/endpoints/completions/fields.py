"""The parameters of a legacy completion and what each may be."""

from gateway.endpoints.body import check_stop
from gateway.endpoints.checks import ParamCheck, boolean, integer_between, number_between, object_, object_of, string
from gateway.endpoints.texts import check_texts

REQUIRED: dict[str, ParamCheck] = {"model": string, "prompt": check_texts}
OPTIONAL: dict[str, ParamCheck] = {
    "best_of": integer_between(1, 20),
    "echo": boolean,
    "frequency_penalty": number_between(-2, 2),
    "logit_bias": object_,
    "logprobs": integer_between(0, 20),
    "max_tokens": integer_between(0),
    "n": integer_between(1, 128),
    "presence_penalty": number_between(-2, 2),
    "seed": integer_between(),
    "stop": check_stop,
    "stream": boolean,
    "stream_options": object_of({}, {"include_usage": boolean, "include_obfuscation": boolean}),
    "suffix": string,
    "temperature": number_between(0, 2),
    "top_p": number_between(0, 1),
    "user": string,
}

body = object_of(REQUIRED, OPTIONAL)
KNOWN = frozenset(REQUIRED) | frozenset(OPTIONAL)
