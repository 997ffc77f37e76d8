"""Define recordings: the steps of one request, to be viewed and replayed.

docs/recordings.md describes the format.

entries      the types of entries, and the list of them            ← start here
jsonl        a recording as the lines of a file, and back
redaction    removal of secrets and contents, byte for byte
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
from gateway.recording.jsonl import UnreadableRecording, entry_to_dict, parse_recording, write_lines
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
