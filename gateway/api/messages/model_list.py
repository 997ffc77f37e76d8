"""List models in Anthropic's shape, page by page."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from gateway.api.messages.errors import refused

JsonObject = dict[str, Any]

_CREATED = "2026-01-01T00:00:00Z"  # of each model, as the real time is unknown
_FEW, _MAX = 20, 1000


class ModelSummary(Struct, frozen=True):
    """A model.  id: a name or an alias; window: its context length in tokens, None: unknown."""

    id: str
    window: int | None = None

    def members(self) -> JsonObject:
        """Return the object of one model."""
        return {
            "type": "model",
            "id": self.id,
            "display_name": self.id,
            "created_at": _CREATED,
            "max_input_tokens": self.window,
            "max_tokens": None,
            "lifecycle": "active",
            "capabilities": None,
        }


def model_page(
    models: Sequence[ModelSummary], limit: str | None = None, after_id: str | None = None, before_id: str | None = None
) -> JsonObject:
    """Return one page of models.  Raise BadRequest for an invalid limit.

    limit, after_id, before_id: from the query; no model is before or behind an unknown name.
    """
    most = _limit(limit)
    names = [model.id for model in models]
    rest = models
    if before_id is not None:
        before = models[: names.index(before_id)] if before_id in names else []
        page, more = before[-most:], len(before) > most
    else:
        if after_id is not None:
            rest = models[names.index(after_id) + 1 :] if after_id in names else []
        page, more = rest[:most], len(rest) > most
    first, last = (page[0].id, page[-1].id) if page else (None, None)
    return {"data": [model.members() for model in page], "has_more": more, "first_id": first, "last_id": last}


def _limit(text: str | None) -> int:
    if text is None:
        return _FEW
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX)) and 1 <= int(text) <= _MAX):
        raise refused(f"Input should be between 1 and {_MAX}", "limit")
    return int(text)
