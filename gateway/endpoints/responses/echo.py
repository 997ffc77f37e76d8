"""Return the request's parameters as a Response object repeats them, with the API's defaults for the others."""

from typing import Any

from gateway.endpoints.responses.tools import tools_echo

_DEFAULTS: dict[str, Any] = {
    "background": False,
    "conversation": None,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "store": True,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
_IF_GIVEN = ("prompt_cache_options", "prompt_cache_retention")


def request_echo(body: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in body.items() if name in _DEFAULTS or name in _IF_GIVEN}
    reasoning, text = body.get("reasoning") or {}, body.get("text") or {}
    return {
        **_DEFAULTS,
        **given,
        "reasoning": {"effort": None, "summary": reasoning.get("generate_summary"), **_without_null(reasoning)},
        "service_tier": "default",
        "text": {"format": {"type": "text"}, "verbosity": "medium", **_without_null(text)},
        "tools": tools_echo(body.get("tools") or []),
    }


def _without_null(said: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None and name != "generate_summary"}
