"""Define recordings: the steps of one request, to be viewed and replayed.

docs/reference/recordings.md describes the format.

entries      the types of entries                                   ← start here
recording    the list of entries, while it grows
chunk_run    chunks whose entries are made on demand
jsonl        a recording as the lines of a file, and back
response     the response, from the events
json_strings the strings of JSON, with their places
redaction    removal of secrets and contents, byte for byte
summary      a recording in a list of requests
"""

from gateway.recording.entries import (
    EndEntry,
    PreparedEntry,
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
from gateway.recording.jsonl import UnreadableRecording, entry_to_dict, parse_recording, read_summary, write_lines
from gateway.recording.recording import Recording
from gateway.recording.redaction import redact, redact_text
from gateway.recording.response import RecordedResponse, recorded_response
from gateway.recording.summary import ExchangeSummary, end_entry, prepared_entry, summarize

__all__ = [
    "EndEntry",
    "ExchangeSummary",
    "PreparedEntry",
    "RecordedResponse",
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
    "end_entry",
    "entry_to_dict",
    "parse_recording",
    "prepared_entry",
    "read_summary",
    "recorded_response",
    "redact",
    "redact_text",
    "summarize",
    "write_lines",
]  # fmt: skip
