"""A model's summary as an item that stands for what was said before it; alone it is what /v1/responses/compact says."""

from collections.abc import Callable, Iterable

from gateway.api.responses.history import Item
from gateway.api.responses.objects import JsonObject, encode, response_usage
from gateway.api.responses.params import EncoderInputs, ResponseHead
from gateway.api.responses.stored_items import complete_item
from gateway.errors import UpstreamInvalid
from gateway.events import Event, Failure, Finish, TextDelta, Usage
from gateway.request import StoredReasoning
from gateway.warnings import Warnings


class SummaryEncoder:
    """An endpoint that tells nobody.  What the model thinks, or refuses to say, is no part of its summary."""

    def __init__(self, edge: EncoderInputs, ledger: Warnings) -> None:
        self._edge, self._ledger = edge, ledger
        self._said: list[str] = []
        self._failed = False
        self.spent = Usage(0, 0)

    @property
    def text(self) -> str:
        return "".join(self._said).strip()

    def item(self) -> JsonObject:
        """Return the encrypted summary; raise UpstreamInvalid if there is none."""
        if not self.text:
            raise UpstreamInvalid("The model returned an empty summary of the conversation. Retry the request.")
        sealed = self._edge.seal(StoredReasoning(self.text))
        item = {"id": self._edge.new_id("cmp_"), "type": "compaction", "status": "completed"}
        return {**item, "encrypted_content": sealed}

    def start(self) -> bytes:
        return b""

    def encode(self, *events: Event) -> bytes:
        for event in events:
            match event:
                case TextDelta():
                    self._said.append(event.text)
                case Usage():
                    self.spent = event
                case Finish(reason="length"):
                    self._ledger.add("truncated", "compaction")
                case Failure():
                    self._failed = True
        return b""

    def keep_alive(self) -> bytes:
        return b""

    def stored_object(self) -> None:
        """Return None, as a compaction is not stored."""

    def close(self, *, kept: bool) -> bytes:
        return b""


class CompactionEncoder(SummaryEncoder):
    """The same as an answer of its own; `users` is what they said, in full."""

    def __init__(self, head: ResponseHead, edge: EncoderInputs, ledger: Warnings, users: list[Item]) -> None:
        super().__init__(edge, ledger)
        self._head, self._users = head, users

    def close(self, *, kept: bool) -> bytes:
        if self._failed:
            return b""
        fields = {"id": self._head.id, "object": "response.compaction", "created_at": self._head.created}
        return encode({**fields, "output": [*self._users, self.item()], "usage": response_usage(self.spent)})


def user_messages(items: Iterable[Item], new_id: Callable[[str], str]) -> list[Item]:
    """The messages of users among checked items, in full."""
    return [complete_item(item, new_id) for item in items if item.get("role") == "user"]
