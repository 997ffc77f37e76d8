"""Members of a response that have no event of their own, as they come in pieces, and which of them are reported."""

from typing import Any

from msgspec import Raw, json

from gateway.events import ExtraField
from gateway.ledger import Warnings

# Members of every chunk of a stream, as clients keep them of the last one.
IN_EACH = frozenset(("provider", "service_tier", "system_fingerprint"))
# Members that OpenAI's API has, or that servers are known to send: a chat passes them on without a warning.
_USUAL = IN_EACH | frozenset(
    (
        "audio", "citations", "content_filter_results", "done_reason", "eval_duration", "hidden_states",
        "kv_transfer_params", "load_duration", "matched_stop", "metadata", "metrics", "moderation",
        "native_finish_reason", "prompt_eval_duration", "prompt_filter_results", "prompt_logprobs", "prompt_progress",
        "prompt_token_ids", "provider_specific_fields", "reasoning_details", "remote_host", "remote_model",
        "search_results", "sglext", "stop_reason", "timings", "token_ids", "total_duration",
    )
)  # fmt: skip


def forward(extra: ExtraField, ledger: Warnings) -> None:
    """Report a member that is passed on as it came, unless servers are known to send it."""
    if extra.name not in _USUAL and not extra.asked:
        ledger.note("forwarded", extra.name)


def join_extra(before: Raw | None, more: Raw) -> Raw:
    """A list grows, anything else is replaced."""
    if before is None or bytes(before)[:1] != b"[" or bytes(more)[:1] != b"[":
        return more
    return Raw(json.encode([*json.decode(before), *json.decode(more)]))


def joined(before: Raw | None, more: Raw) -> Raw:
    """Return the value of a message's member of which this is a further delta, as OpenAI's SDKs join them."""
    return more if before is None else Raw(json.encode(_joined(json.decode(before), json.decode(more))))


def _joined(before: Any, more: Any) -> Any:  # noqa: ANN401 - decoded JSON
    if isinstance(before, dict) and isinstance(more, dict):
        return before | {
            name: _joined(before[name], value) if name in before else value for name, value in more.items()
        }
    texts, lists = (
        isinstance(before, str) and isinstance(more, str),
        isinstance(before, list) and isinstance(more, list),
    )
    return before + more if texts or lists else more
