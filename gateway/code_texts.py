"""Describe the codes of warnings and errors in words: what each means, and what to do.

docs/reference/warnings.md, docs/reference/errors.md and the pages of the gateway are made from these tables.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from gateway.warnings import WarningCode

ErrorRow = tuple[int, str, str]  # status, code, meaning with the remedy

CLIENT_ERRORS: tuple[ErrorRow, ...] = (
    (400, "missing_required_parameter", "A required field is missing: add it."),
    (400, "invalid_type", "A value has the wrong type."),
    (400, "invalid_value", "A value is not allowed; the message names the allowed ones."),
    (400, "integer_below_min_value", "A number is below its minimum."),
    (400, "integer_above_max_value", "A number is above its maximum."),
    (400, "decimal_below_min_value", "A number is below its minimum."),
    (400, "decimal_above_max_value", "A number is above its maximum."),
    (400, "empty_string", "A text is empty."),
    (400, "empty_array", "A list is empty."),
    (400, "string_above_max_length", "A text is too long."),
    (400, "array_above_max_length", "A list is too long: `limits.items` or `limits.parts`."),
    (400, "object_above_max_properties", "An object has too many members."),
    (400, "mutually_exclusive_parameters", "Two fields contradict each other: remove one."),
    (400, "unknown_parameter", "The API has no such field, or the model is strict: remove it."),
    (400, "unsupported_parameter", "The backend does not support the field, and the model is strict: remove it."),
    (400, "unsupported_value", "The gateway or the backend does not support the value."),
    (400, "thread_unsupported_request", "The gateway has no threads of Anthropic's API: send the messages."),
    (400, "context_length_exceeded", "The prompt exceeds the context of the model: shorten it."),
    (400, "content_policy_violation", "A content filter of the backend refused the request: change it."),
    (400, "invalid_image_url", "An image has no valid URL."),
    (400, "invalid_base64_image", "An image is not in base64."),
    (400, "unsupported_image_media_type", "An image is no PNG, JPEG, GIF or WebP."),
    (400, "image_file_too_large", "The images of a request exceed `images.max_bytes`."),
    (400, "file_too_large", "The files of a request exceed `files.max_bytes`, or a file is too large for its purpose."),
    (400, "file_quota_exceeded", "The files of the key would exceed `limits.tenant_file_bytes`: delete some."),
    (400, "failed_to_download_image", "An image could not be fetched; the message says why."),
    (400, "failed_to_download_file", "A file could not be fetched; the message says why."),
    (400, "invalid_content_encoding", "The compressed body is damaged."),
    (
        400,
        "invalid_encrypted_content",
        "Sealed reasoning was changed, or another gateway sealed it: `store.sealing_keys`.",
    ),
    (400, "previous_response_not_found", "The response was not stored, has expired, or belongs to another key."),
    (400, "conversation_locked", "Another response is being made in the conversation: wait for it."),
    (400, "events_expired", "`responses.log_bytes` does not keep the events: retrieve the response without `stream`."),
    (400, "idempotency_key_reused", "The `Idempotency-Key` belongs to another request: use a new one."),
    (400, "invalid_stream_id", "A `stream_id` of the WebSocket is not valid."),
    (400, "websocket_stream_limit_reached", "The WebSocket has too many streams: open another one."),
    (400, "websocket_connection_limit_reached", "The WebSocket is an hour old: open another one."),
    (400, "key_exists", "The name of a new key is in use, perhaps by a revoked key: choose another one."),
    (400, "key_revoked", "A revoked key cannot be changed: add another one."),
    (401, "invalid_api_key", "The API key is missing, wrong, expired or revoked."),
    (403, "endpoint_not_allowed", "The key may not use the path: `auth.keys[].endpoints`."),
    (403, "model_not_allowed", "The key may not use the model: `auth.keys[].models`."),
    (403, "scope_not_allowed", "The key or user lacks the scope: `auth.keys[].scopes`, `auth.header.scopes`."),
    (403, "api_key_required", "A user without an API key cannot create a batch."),
    (403, "host_not_allowed", "A gateway without keys was asked by a public name: set keys, or `auth.open: true`."),
    (403, "origin_not_allowed", "A web page asks whose origin is not in `server.cors`."),
    (404, "endpoint_not_supported", "The gateway refuses the path; the message says why, and what to use."),
    (404, "file_not_found", "The key has no file with the `file_id` of the request: upload it again."),
    (404, "key_not_found", "The store has no key of this name; keys of the configuration change in its file."),
    (404, "log_not_kept", "The store keeps no log of changes: set `store.url`."),
    (404, "usage_not_kept", "The store keeps no usage: set `store.url`, and leave `store.usage` at true."),
    (404, "model_not_found", "No backend has the model: `GET /v1/models` lists those there are."),
    (405, "method_not_supported", "The path does not have the method."),
    (409, "idempotency_key_in_use", "The first request with the `Idempotency-Key` is in progress: wait."),
    (413, "request_too_large", "The body exceeds `limits.body_bytes`, or a multipart body `limits.upload_bytes`."),
    (413, "file_too_large", "A file exceeds `limits.file_bytes`."),
    (415, "unsupported_content_type", "A body with files is not `multipart/form-data`."),
    (415, "unsupported_content_encoding", "The body has an encoding other than gzip, deflate and zstd."),
    (429, "rate_limit_exceeded", "A limit of the key, the model or the backend is reached: wait for `retry-after`."),
    (429, "insufficient_quota", "The operator's account at the backend has no credit left: waiting does not help."),
    (499, "cancelled", "The client disconnected or cancelled the request. It stands in logs and stored responses."),
)
SERVER_ERRORS: tuple[ErrorRow, ...] = (
    (500, "server_error", "A fault of the gateway; the log has the details."),
    (502, "frame_too_long", "The backend sent an event beyond `limits.frame_bytes`."),
    (502, "upstream_auth_error", "The backend refuses the key, or the model to its account: `backends.NAME.api_key`."),
    (502, "upstream_error", "The backend failed, or sent no valid response; its log says why."),
    (502, "upstream_lost", "The backend closed the connection in the middle of its response."),
    (502, "upstream_unreachable", "No server listens at the backend's `url`."),
    (503, "model_loading", "The backend loads the model: wait for `retry-after`."),
    (
        503,
        "server_is_overloaded",
        "The backend or the gateway is overloaded or stops, or a queue is full: retry later.",
    ),
    (503, "store_unavailable", "The database cannot be used (the log says why), or too many writes wait for it."),
    (504, "upstream_timeout", "The backend sent nothing within `backends.NAME.timeouts`."),
)
Severity = Literal["warn", "info"]


def error_advice(status: int, code: str) -> str:
    """Return the sentence about a code; about the server error of a code that is a backend's own."""
    for _, known, text in (*CLIENT_ERRORS, *SERVER_ERRORS):
        if known == code:
            return text
    return _OWN_SERVER if status >= 500 else _OWN_CLIENT


_OWN_CLIENT = "The request breaks a rule of the API, or of the backend; the message names the field."
_OWN_SERVER = "The backend failed; its log says why."


class WarningText(Struct, frozen=True):
    """The description of a warning.

    title: a few words; severity: `warn` if a client or a user may notice the effect, else `info`.
    meaning: what the gateway found and did; action: what to do about it.
    """

    title: str
    severity: Severity
    meaning: str
    action: str = "Nothing."


class WarningDetail(Struct, frozen=True):
    """One warning in words.  entry: as in the header `x-gateway-warnings`; link: a page of the gateway."""

    entry: str
    code: str
    title: str
    severity: Severity
    meaning: str
    action: str
    link: str


# Titles have {} in the place of the subject.
CODES: Mapping[WarningCode, WarningText] = {
    "forwarded": WarningText(
        "{} passed on",
        "info",
        "The API does not know the part, and the gateway passes it on unchanged.",
        "Check its spelling if you expected an effect.",
    ),
    "renamed": WarningText("{} renamed", "info", "The part has another name at the backend."),
    "translated": WarningText("{} translated", "info", "The backend gets the same meaning in another form."),
    "emulated": WarningText(
        "{} done by the gateway",
        "info",
        "The backend cannot do it, and the gateway does it.",
        "Nothing; a retry costs a second round.",
    ),
    "synthesised": WarningText("{} added", "info", "The backend left a required part out, and the gateway made it up."),
    "repaired": WarningText("{} repaired", "warn", "The part was damaged, and the gateway sends what was meant."),
    "estimated": WarningText(
        "{} estimated",
        "info",
        "The backend does not report the number, and the gateway estimates it.",
        "Do not bill by it.",
    ),
    "truncated": WarningText(
        "{} shortened",
        "warn",
        "The part is longer than a limit, or the context, and the gateway left some of it out.",
        "Raise the limit, or shorten the conversation.",
    ),
    "unenforced": WarningText(
        "{} not enforced",
        "warn",
        "The response breaks a demand of the request that the backend does not enforce.",
        "Set `enforce` of the model, or send the request again.",
    ),
    "dropped": WarningText(
        "{} left out",
        "warn",
        "The backend does not support the part, and the gateway leaves it out.",
        "Use another backend, or leave the part out.",
    ),
    "unread": WarningText(
        "{} not read",
        "warn",
        "The text has a tool call in a format that the gateway does not read here, and it stays text.",
        "Set `format` of the model to the named format.",
    ),
    "invalid": WarningText(
        "{} invalid",
        "warn",
        "The arguments of a tool call are beyond repair, and the gateway passes them on unchanged.",
        "Do not run the tool call: return an error as its output.",
    ),
}
# Entries for which the text of their code is too general.
ENTRIES: Mapping[str, WarningText] = {
    "repaired:connection": WarningText(
        "connection opened again",
        "info",
        "The backend had closed an idle connection, and the gateway sent the request again on a new one.",
    ),
    "repaired:tool_calls.function.arguments": WarningText(
        "arguments repaired",
        "warn",
        "The model wrote arguments that are no valid JSON, and the gateway sends the JSON that the model meant.",
    ),
    "repaired:tool_calls.function.name": WarningText(
        "tool name repaired",
        "warn",
        "The model wrote the name of the tool with other characters, and the gateway sends the name of the request.",
    ),
    "translated:model": WarningText(
        "fallback model used",
        "info",
        "No backend of the model could respond, and a model of its `fallback` did.",
        "Look at the overview for the state of the backends.",
    ),
    "emulated:empty": WarningText(
        "empty response retried",
        "info",
        "The model ended its turn without text and tool calls, and the retry helped.",
        "Nothing; each retry costs a second round.",
    ),
    "unenforced:empty": WarningText(
        "response empty",
        "warn",
        "The model ended its turn without text and tool calls, and no retry helped.",
        "Send the request again.",
    ),
    "dropped:store": WarningText(
        "response not stored",
        "warn",
        "The database could not be used, so the response cannot be retrieved later.",
        "Read the log of the gateway for the reason.",
    ),
}
_SUBJECTS: Mapping[str, str] = {
    "tool_calls": "tool call",
    "tool_calls.function.arguments": "arguments",
    "tool_calls.function.name": "tool name",
    "tool_calls.id": "tool call id",
    "messages.reasoning_content": "earlier reasoning",
    "usage.reasoning_tokens": "reasoning tokens",
}
_ALL = "parts"  # the subject of a title for all warnings of a code
_PAGE = "/docs/warnings"  # at the gateway


def code_title(code: WarningCode) -> str:
    """Return the title of all warnings of a code."""
    return CODES[code].title.format(_ALL).capitalize()


def describe(entry: str) -> WarningDetail:
    """Describe an entry of a warning list; one of an unknown code, as an old recording may have, by itself."""
    code, _, subject = entry.partition(":")
    found = ENTRIES.get(entry) or next((text for name, text in CODES.items() if name == code), None)
    if not found:
        return WarningDetail(
            entry, code, entry, "warn", "This version of the gateway does not know the code.", "", _PAGE
        )
    title = found.title.format(_words(subject))
    return WarningDetail(entry, code, title, found.severity, found.meaning, found.action, f"{_PAGE}#{code}")


def _words(subject: str) -> str:
    """Return a subject in words: without the name of a format, and with `+40` as "40 more"."""
    name = subject.partition("=")[0]
    return _SUBJECTS.get(name) or (f"{name[1:]} more" if name.startswith("+") else name)
