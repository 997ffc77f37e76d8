"""A server behind the gateway, as a row."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

# What a case may need:
Ability = Literal[
    "blindness",  # an image is refused by a model that sees none
    "choices",  # n above 1
    "completions",  # /v1/completions
    "continues",  # a last message of the assistant is the beginning of the answer
    "cut_calls",  # what there is of a call that the token limit cuts is told
    "embeddings",
    "forced_tools",  # tool_choice: required, or a tool by its name
    "frequency_penalty",
    "json_object",
    "json_schema",
    "known",  # which fields it takes
    "logit_bias",
    "logprobs",
    "logprobs_beside_tools",  # in a stream
    "overflow",  # a prompt that is too long is refused
    "past_thoughts",  # reasoning_content of past messages reaches the model
    "prefills",  # the same for a client of the Messages API
    "ranks",  # /v1/rerank
    "repetition_penalty",
    "seed",
    "thought_switch",  # reasoning_effort: none
    "tokens",  # /v1/tokenize and back
    "tools",
    "top_k",
    "unheard",  # a field that nobody has heard of is passed on
    "window",  # how many tokens it takes is known
]


class Refused(NamedTuple):
    """An honest error; `message` is in its message."""

    status: int = 400
    code: str | None = "unsupported_value"
    message: str = ""

    def check(self, answer: Any) -> None:
        problem = answer.problem
        assert (answer.status, problem.get("code", self.code)) == (self.status, self.code), answer.body
        assert self.message in problem["message"]


class Listed(NamedTuple):
    """An answer all the same, and an entry in the ledger."""

    entry: str

    def check(self, answer: Any) -> None:
        assert answer.status == 200, answer.body
        assert self.entry in answer.warnings


class Left(NamedTuple):
    """An answer all the same: it is left to the template, and no server tells what its template leaves out."""

    def check(self, answer: Any) -> None:
        assert answer.status == 200 and (answer.content or answer.calls or answer.finish == "length"), answer.body


class Untold(NamedTuple):
    """An answer that does not tell."""

    def check(self, answer: Any) -> None:
        assert (
            answer.status == 200 and (answer.body.get("context_length") or answer.body.get("max_input_tokens")) is None
        ), answer.body


class Server(NamedTuple):
    """A server's entries in the configuration, but for its address, and what is to be known of it.

    window: tokens of a conversation; slots: answers at a time; cannot: what is said where it cannot do something.
    beside_thinking: the fields that it refuses beside `thinking`, and does without.
    """

    name: str
    backend: Mapping[str, Any]
    model: Mapping[str, Any]
    window: int = 4096
    slots: int = 4
    cannot: Mapping[Ability, Refused | Listed | Left | Untold] = MappingProxyType({})
    beside_thinking: tuple[str, ...] = ()

    def fitting(self, question: Any) -> Any:
        """Return a question without fields that the server refuses in the client's own body."""
        return question.but(**dict.fromkeys(self.beside_thinking)) if "thinking" in question.fields else question
