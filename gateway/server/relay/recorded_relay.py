"""Relay a response that is recorded.

A chunk that needs no task costs little more than without a recording: the relay keeps what came and what went out, and
the entries are made when a page asks for them.
"""

from time import perf_counter

from gateway.config.schema import StreamSettings
from gateway.pipeline.pipeline import Pipeline
from gateway.recording.recording import LONGEST_RUN
from gateway.server.http.client_connection import TryWrite
from gateway.server.http.response_writer import ResponseWriter
from gateway.server.observability.request_recorder import RequestRecorder
from gateway.server.relay.relay import AttemptSource, Relay, StoreCallback
from gateway.server.upstream import DECLINED, HANDLED, WAKE, DataOutcome


class RecordedRelay(Relay):
    """A Relay that records the chunks it reads, decodes and writes in one step; a chunk has one time."""

    _try_write_unrecorded: TryWrite  # of the writer of the stream

    def __init__(
        self,
        pipeline: Pipeline,
        attempts: AttemptSource,
        settings: StreamSettings,
        store: StoreCallback,
        recorder: RequestRecorder,
    ) -> None:
        super().__init__(pipeline, attempts, settings, store)
        self._recording = recorder.recording

    async def stream(self, writer: ResponseWriter) -> None:
        """Send all but the last piece, as a Relay does."""
        self._try_write_unrecorded = writer.try_write_unrecorded
        await super().stream(writer)

    def _on_data(self, data: bytes) -> DataOutcome:
        """Handle data as a Relay does, and record it.  The writer records output that the task sends."""
        pipeline = self._pipeline
        if self._outcome_open or not (lone := pipeline.lone) or (events := lone(data)) is None:
            return DECLINED
        if not (output := pipeline.encode_events(events)):
            outcome = self._on_unseen_data()
            self._recording.keep_unseen(perf_counter(), data, events)
            return outcome
        if pipeline.problem or not self._try_write_unrecorded(output):
            self._pending = output
            self._recording.keep_unseen(perf_counter(), data, events)
            return WAKE
        chunks = self._recording.chunks
        chunks += self._record.pace.chunk_received(True), data, events, output
        if len(chunks) >= LONGEST_RUN:
            self._recording.settle()
        return HANDLED


def open_relay(pipeline: Pipeline, attempts: AttemptSource, settings: StreamSettings, store: StoreCallback) -> Relay:
    """Return the relay of a response, which is recorded if its request is."""
    if recorder := attempts.record.recorder:
        return RecordedRelay(pipeline, attempts, settings, store, recorder)
    return Relay(pipeline, attempts, settings, store)
