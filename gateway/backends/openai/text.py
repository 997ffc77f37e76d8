"""A text to be completed, as the body of a legacy completion; what the kind does not do is in the ledger."""

from collections.abc import Set
from typing import Any

from msgspec import json
from msgspec.structs import replace

from gateway.backends.fields import request_fields
from gateway.backends.openai.body import BodyTarget
from gateway.backends.services import CompletionsSupport
from gateway.backends.verdicts import EmulatedRule, PassedRule
from gateway.errors import BadRequest
from gateway.ledger import Warnings
from gateway.request import Request

PATH = "/v1/completions"
_encode = json.Encoder().encode


def completion_body(
    does: CompletionsSupport, request: Request, target: BodyTarget, known: Set[str], ledger: Warnings
) -> bytes:
    """`known` are the fields of the API; all others are an extension.  BadRequest for what cannot be asked there."""
    said = {"model": target.model, "prompt": _prompt(request, does, ledger), "stream": request.stream}
    n = request.rest.get("n", 1)
    own = {name: value for name, value in request.rest.items() if not _is_default(name, value, n)}
    if "logprobs" in own:
        own["logprobs"] = max(own["logprobs"], 1)  # 0 is none at all to some, and the token itself to others
    if does.kind.counts_one and request.n > 1:
        ledger.note("estimated", "usage")
    return _encode({**said, **request_fields(replace(request, n=n, rest=own), does.kind, known, ledger)})


def prompt_list(request: Request) -> list[Any]:
    """Each prompt, a text or a list of the ids of its tokens."""
    said = request.rest["prompt"]
    return said if isinstance(said, list) and not isinstance(said[0], int) else [said]


def prompts_to_echo(request: Request, does: CompletionsSupport, ledger: Warnings) -> list[str]:
    """The prompts, if the gateway has to say them; it knows no tokens, nor how likely they were."""
    if not request.rest.get("echo") or not isinstance(does.kind.fields.get("echo"), EmulatedRule):
        return []
    said = prompt_list(request)
    if "logprobs" in request.rest or not all(isinstance(prompt, str) for prompt in said):
        ledger.note("dropped", "echo")
        return []
    ledger.note("emulated", "echo")
    return said


def supports_suffix(request: Request, does: CompletionsSupport) -> bool:
    """True if what is between two texts is written."""
    return bool(request.rest.get("suffix")) and isinstance(does.kind.fields.get("suffix"), PassedRule)


def _prompt(request: Request, does: CompletionsSupport, ledger: Warnings) -> object:
    """As it came, where the kind takes that; else the one text that it is."""
    if does.templated:
        ledger.note("translated", "prompt")
    if does.several:
        return request.rest["prompt"]
    prompt, *more = prompt_list(request)
    if more or not isinstance(prompt, str):
        message = "This model's backend completes one text at a time, and no lists: send 'prompt' as a string."
        raise BadRequest(message, code="unsupported_value", param="prompt")
    return prompt


def _is_default(name: str, value: object, n: int) -> bool:
    """True for what says no more than its absence, and for what is said apart."""
    return name in ("prompt", "n") or (name, value) in (("best_of", n), ("echo", False), ("suffix", ""))
