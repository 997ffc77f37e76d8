"""Turn a model's summary into a compaction item, which replaces the history; /v1/responses/compact returns it alone."""

from collections.abc import Callable, Iterable, Sequence

from gateway.api.responses.history import Item
from gateway.api.responses.objects import JsonObject, encode, response_usage
from gateway.api.responses.params import EncoderInputs, ResponseHead
from gateway.api.responses.stored_items import complete_item
from gateway.api.whole_encoder import WholeEncoder
from gateway.errors import UpstreamInvalid
from gateway.events import Event, Failure, Finish, TextDelta, Usage
from gateway.request import StoredReasoning
from gateway.warnings import Warnings


class SummaryEncoder(WholeEncoder):
    """Collect a summary, and send the client nothing.  Reasoning and refusals are no part of the summary."""

    def __init__(self, inputs: EncoderInputs, ledger: Warnings) -> None:
        self._inputs, self._ledger = inputs, ledger
        self._texts: list[str] = []
        self._failed = False
        self.spent = Usage(0, 0)

    @property
    def text(self) -> str:
        """The summary so far."""
        return "".join(self._texts).strip()

    def item(self) -> JsonObject:
        """Return the item with the encrypted summary.  Raise UpstreamInvalid if the summary is empty."""
        if not self.text:
            raise UpstreamInvalid("The model returned an empty summary of the conversation. Retry the request.")
        sealed = self._inputs.seal(StoredReasoning(self.text))
        item = {"id": self._inputs.new_id("cmp_"), "type": "compaction", "status": "completed"}
        return {**item, "encrypted_content": sealed}

    def encode(self, events: Sequence[Event]) -> bytes:
        """Collect the events, and return no bytes."""
        for event in events:
            match event:
                case TextDelta():
                    self._texts.append(event.text)
                case Usage():
                    self.spent = event
                case Finish(reason="length"):
                    self._ledger.add("truncated", "compaction")
                case Failure():
                    self._failed = True
        return b""

    def stored_object(self) -> None:
        """Return None: a compaction is not stored."""

    def close(self, *, stored: bool) -> bytes:
        """Return no bytes."""
        return b""


class CompactionEncoder(SummaryEncoder):
    """Encode the response of /v1/responses/compact.

    users: the user messages, in full.
    """

    def __init__(self, head: ResponseHead, inputs: EncoderInputs, ledger: Warnings, users: list[Item]) -> None:
        super().__init__(inputs, ledger)
        self._head, self._users = head, users

    def close(self, *, stored: bool) -> bytes:
        """Return the body; empty after a failure.  Raise UpstreamInvalid if the summary is empty."""
        if self._failed:
            return b""
        fields = {"id": self._head.id, "object": "response.compaction", "created_at": self._head.created}
        return encode({**fields, "output": [*self._users, self.item()], "usage": response_usage(self.spent)})


def user_messages(items: Iterable[Item], new_id: Callable[[str], str]) -> list[Item]:
    """Return the user messages among checked items, in full."""
    return [complete_item(item, new_id) for item in items if item.get("role") == "user"]
