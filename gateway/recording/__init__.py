"""Define recordings: the steps of one request, to be viewed and replayed.  The format is described in
docs/recordings.md.

entries      what can happen, and the list of it                   ← start here
lines        a recording as the lines of a file, and back
scan         the strings in bytes that are JSON, or events or lines of it
vocabulary   the words that a text keeps where its contents are taken out
redaction    secrets and contents taken out, so that everything is still where it was
"""

from gateway.recording.entries import (
    EndEntry,
    PreparedEntry,
    Recording,
    RecordingEntry,
    RequestEntry,
    ResponseDataEntry,
    ResponseHeadersEntry,
    RoundEndEntry,
    UpstreamDataEntry,
    UpstreamErrorEntry,
    UpstreamHeadersEntry,
    UpstreamRequestEntry,
)
from gateway.recording.lines import UnreadableRecording, entry_to_dict, parse_recording, write_lines
from gateway.recording.redaction import redact

__all__ = [
    "EndEntry",
    "PreparedEntry",
    "Recording",
    "RecordingEntry",
    "RequestEntry",
    "ResponseDataEntry",
    "ResponseHeadersEntry",
    "RoundEndEntry",
    "UnreadableRecording",
    "UpstreamDataEntry",
    "UpstreamErrorEntry",
    "UpstreamHeadersEntry",
    "UpstreamRequestEntry",
    "entry_to_dict",
    "parse_recording",
    "redact",
    "write_lines",
]  # fmt: skip
