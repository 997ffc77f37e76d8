"""Read the members that the backends' responses of all services share."""

from collections.abc import Iterator
from typing import Any

from gateway.backends.openai.usage import count_value
from gateway.errors import UpstreamInvalid
from gateway.ledger import Warnings
from gateway.upstream import estimate_tokens_from_characters


def list_entries(said: Any, *names: str) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - decoded JSON
    """The objects of the list that is the answer, or that it has by one of these names."""
    lists = [said, *(said.get(name) for name in names)] if isinstance(said, dict) else [said]
    found = next((one for one in lists if isinstance(one, list)), None)
    if found is None or not all(isinstance(entry, dict) for entry in found):
        raise UpstreamInvalid(f"The backend's answer has no list of '{names[0]}'.")
    yield from found


def service_usage(said: Any, characters: int, ledger: Warnings) -> dict[str, int]:  # noqa: ANN401 - decoded JSON
    """The tokens that were read: as the backend says, else estimated."""
    counts = said.get("usage") if isinstance(said, dict) else None
    counts = counts if isinstance(counts, dict) else {}
    known = count_value(counts.get("prompt_tokens")) or count_value(counts.get("total_tokens"))
    if not known:
        ledger.note("estimated", "usage")
    count = known or estimate_tokens_from_characters(characters)
    return {"prompt_tokens": count, "total_tokens": count}
