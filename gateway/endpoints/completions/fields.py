"""The parameters of a legacy completion and what each may be."""

from gateway.endpoints.body import stop
from gateway.endpoints.checks import ParamCheck, boolean, decimal, fields, integer, object_, string
from gateway.endpoints.texts import texts

REQUIRED: dict[str, ParamCheck] = {"model": string, "prompt": texts}
OPTIONAL: dict[str, ParamCheck] = {
    "best_of": integer(1, 20),
    "echo": boolean,
    "frequency_penalty": decimal(-2, 2),
    "logit_bias": object_,
    "logprobs": integer(0, 20),
    "max_tokens": integer(0),
    "n": integer(1, 128),
    "presence_penalty": decimal(-2, 2),
    "seed": integer(),
    "stop": stop,
    "stream": boolean,
    "stream_options": fields({}, {"include_usage": boolean, "include_obfuscation": boolean}),
    "suffix": string,
    "temperature": decimal(0, 2),
    "top_p": decimal(0, 1),
    "user": string,
}

body = fields(REQUIRED, OPTIONAL)
KNOWN = frozenset(REQUIRED) | frozenset(OPTIONAL)
