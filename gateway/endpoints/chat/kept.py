"""A stream whose answer is stored: shown as it comes, and folded beside it into the completion that is kept."""

from typing import Any

from gateway.endpoints.chat.stream import ChatStreamEncoder
from gateway.endpoints.chat.whole import ChatBodyEncoder
from gateway.events import Event


class StoredChatStream:
    def __init__(self, shown: ChatStreamEncoder, fold: ChatBodyEncoder) -> None:
        self._shown, self._fold = shown, fold

    def start(self) -> bytes:
        return self._shown.start()

    def encode(self, *events: Event) -> bytes:
        self._fold.encode(*events)
        return self._shown.encode(*events)

    def keep_alive(self) -> bytes:
        return self._shown.keep_alive()

    def record(self) -> dict[str, Any] | None:
        return self._fold.record()

    def close(self, *, kept: bool) -> bytes:
        return self._shown.close(kept=kept)
