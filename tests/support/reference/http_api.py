"""Generate docs/reference/http-api.md from the description of the API that the gateway serves at `/openapi.json`."""

import json
from collections.abc import Iterator
from typing import Any

from gateway import config
from gateway.api.sdk_groups import SDK_GROUPS
from gateway.backends.pass_through import PASS_THROUGH
from gateway.server.app import create_app

_HEAD = """\
# HTTP API

The gateway serves OpenAI's and Anthropic's APIs; their own documentation has the fields. `GET /openapi.json` describes all paths for programs.
`make regenerate` writes this page.

- The address is `http://127.0.0.1:8900/v1`. Clients may leave `/v1` out, or end the address in a slash.
- With keys, a request needs `authorization: Bearer KEY`, or `x-api-key: KEY`.
- A field that the API does not know goes to the backend, if its [kind](backends.md) supports it.

## Headers

| header | direction | meaning |
|---|---|---|
| `x-request-id` | both | The client's own id, or one that the gateway made; the log has it. |
| `x-gateway-warnings` | response | The parts that did not pass unchanged: [Warnings](warnings.md). |
| `x-gateway-strict: 1` | request | Refuse fields that would be dropped or could not be enforced. |
| `x-gateway-debug: 1` | request | Add the chosen model, backend and format, and the reason, to the response's headers. |
| `x-gateway-record: 1` | request | Record the exchange, if `recording.mode` is `header`. |
| `Idempotency-Key` | request | Sent again within ten minutes, it gets the same response, and the model is not asked again. |
| `retry-after`, `x-should-retry` | response | When, and whether, another attempt can succeed: [Errors](errors.md). |
| `x-ratelimit-…` | response | The rest of the key's limits. |
| `x-gateway-budgets` | response | The tokens that are left of each budget, and the budget: [Budgets](../how-to/keys-and-limits.md#budgets). |

## Streams

- A streamed chat completion ends with `data: [DONE]`, a response with its last event, a message with `message_stop`.
- Reasoning comes in `reasoning_content` of chat completions (`models.NAME.reasoning.field`), in items of responses, and in thinking blocks of messages.
- A `GET /v1/responses` with an upgrade opens a WebSocket: send `response.create` with the fields of a response. Each event is a message.
- `GET /v1/responses/{id}?stream=true&starting_after=N` continues the stream of a stored response behind event N.
- During a silence the gateway sends a comment as a keep-alive (`stream.keepalive_seconds`).

## Stored data

The gateway stores responses unless the request has `store: false`, and chat completions if it has `store: true`. It also stores conversations. Each key of
`auth.keys` sees its own data only. Entries that were not used for `store.ttl_days` are deleted.

Files stay until they are deleted or expire (`expires_after`); the input of a batch expires after 30 days. `limits.file_bytes` and
`limits.tenant_file_bytes` limit them, and a key may have limits of its own. With SQLite the bytes are in a folder beside the database (`gateway.db.files`),
with PostgreSQL in its rows. A backup needs both the database and the folder. Clients of Anthropic's Files API, which send `anthropic-version`, get a 404.

A request may name a stored file by its `file_id`, in each API: [Files](../how-to/files.md).

A batch runs the requests of a file with the purpose `batch`: [Run batches](../how-to/batches.md). It is deleted 30 days after its end.
"""
_GROUPS = """\
## Methods of the OpenAI SDK

- **Served** methods ask a model of a backend. The gateway has data of its **own** for others.
- For methods that are **passed on**, the gateway changes only the model's name and, for some kinds, names of fields. Bodies stream in both directions.
- `realtime` is a WebSocket. The gateway replaces the model's name in its query, and no message. vLLM reads the model in the message `session.update`: write
  there the name that the server knows. A message of the backend has 16 MiB at most.
- If a key has `models`, a message that names another model ends the session: an event `error` with `model_not_allowed`, and the code 1008.
- The close code of a side reaches the other side. If the backend fails, the client gets an event `error` and the code 1011; after a timeout 1001. If the
  gateway stops, both sides get 1012.
- For **refused** methods, the gateway answers 404 with the code `endpoint_not_supported`, the reason and what to use.

| methods of the client | what the gateway does | |
|---|---|---|
"""
_TAIL = """\
## Other paths

| path | what it is |
|---|---|
| `GET /` | the overview; before the first request, what to paste into clients; without a key, the key prompt |
| `GET /usage` | a page with the usage of keys, models and days, for a key of the scope `admin` |
| `GET /playground` | a page to try models, with the bytes of each response |
| `GET /docs` | this API as a page, which loads nothing from another host |
| `GET /inspector` | single requests, if `inspector.enabled` is set: [Observe](../how-to/observe.md#overview-and-inspector) |
| `GET /docs/warnings` | what warnings mean, as a page: [Warnings](warnings.md) |
| `GET /metrics` | [Metrics](metrics.md) |
| `GET`, `POST /admin/keys`, `PATCH`, `DELETE /admin/keys/{name}`, `POST /admin/keys/{name}/rotate` | [keys of the store](../how-to/keys-and-limits.md#keys-in-the-store), for a key of the scope `admin` |
| `GET /admin/keys/log` | [the log of changes](#log-of-changes), for a key of the scope `admin` |
| `GET /admin/usage` | [usage](#usage) of keys, models and days, for a key of the scope `admin` |
| `GET /admin/first-run` | [what to paste into clients](#first-run), for a key of the scope `admin` |
| `GET /admin/overview`, `GET /admin/exchanges`, … | the data behind both pages; they need a key of the scope `admin` |

## Overview

`GET /admin/overview` describes all workers. Only `prompts` has contents of requests. Times are Unix seconds, durations are seconds.

| member | meaning |
|---|---|
| `pace` | requests in progress, requests and output tokens a second |
| `models[]` | each model with its aliases, context length, capabilities, formats and backends |
| `backends[].state`, `.cause` | `healthy`, `degraded` (some attempts fail) or `unreachable` (no requests get through), and a sentence with the cause |
| `backends[].hour` | `requests`, failed attempts (`errors`) and `first_token_median` of the last hour; `minutes`: the requests of each minute |
| `hour.minutes[]` | 60 minutes, the oldest first: `requests`, `errors`, `output_tokens`, `first_token_median`, `first_token_p95` |
| `hour.requests`, `.failed_requests`, … | their sums |
| `hour.errors[]` | equal errors with their `count` and `last_time`, by `status`, `code`, `message`, `model` and `backend`; at most 50 |
| `hour.warnings[]` | the `count` of each `code` and `model`, with a `title` and a `severity` (`warn` or `info`); at most 50 |
| `requests[]`, `errors[]` | the running and the last requests; the last failed ones |
| `prompts` | the first words of these requests by `id`, if the inspector is on |

- Each worker keeps the last hour in memory: in each minute up to 64 groups of errors and 64 of warnings. It counts more errors in a group of status 0.
- Percentiles of the first token are within 3 %. Requests for pages and for `/admin` are not counted.

## Usage

`GET /admin/usage` returns what [the store keeps](../how-to/keys-and-limits.md#see-what-keys-used). It needs a key of the scope `admin`.

| parameter | meaning |
|---|---|
| `since`, `until` | the first and the last day (UTC), like `2026-01-31`; by default the last 30 days |
| `by` | `key` (default), `model` or `day`; may be repeated: `?by=day&by=key` |

| member | meaning |
|---|---|
| `object` | `usage` |
| `since`, `until`, `by` | the days and the columns of the report |
| `data[]` | a row for each combination, in order: `key` (null without one), `model`, `day`, as in `by` |
| `….requests` | the requests that a backend got and that are over |
| `….input_tokens`, `.cached_tokens`, `.output_tokens` | tokens; input includes cached ones, output includes reasoning |
| `….seconds` | the sum of the times from the arrival of a request to the end of its response |
| `total` | the sums of all rows |

Without `store.url`, and with `store.usage: false`, the gateway answers 404 `usage_not_kept`.

## Log of changes

`GET /admin/keys/log` lists [changes of stored keys, and reloads](../how-to/keys-and-limits.md#see-who-changed-what), the newest first. It needs a key of the
scope `admin`. `limit` (20; at most 100), `after` (an `id`) and `order` (`desc` or `asc`) choose the page, as for other lists.

| member of `data[]` | meaning |
|---|---|
| `object`, `id`, `created_at` | `audit_entry`, the number of the entry as a text, and Unix seconds |
| `actor` | `key:NAME`, `sso:NAME` (a user of a proxy), `cli:USER`, or `gateway:HOST` for a reload |
| `action` | `key.added`, `key.changed`, `key.rotated`, `key.revoked` or `configuration.reloaded` |
| `key` | the name of the key; null for a reload |
| `changes[].path` | the setting, like `auth.keys[ci].limits.concurrent`, or the field of the key |
| `changes[].from`, `.to` | its values; null without the setting; texts of more than 300 characters are cut |
| `changes[].secret` | instead of the values of a secret: `changed`, `added` or `removed` |
| `changes[].more` | the number of further changes, behind 100 |

Without `store.url`, the gateway answers 404 `log_not_kept`.

## Requests in the inspector

With `inspector: {enabled: true}`, `GET /admin/exchanges` lists the running requests, then the finished ones, each the newest first. It needs a key of the scope
`admin`.

| parameter | the requests that fit |
|---|---|
| `q` | those with this text in the prompt, the id, the error, a called tool, the model or the key |
| `status` | `live`, a number, a class like `4xx`, or `error` for 400 and above |
| `model` | those whose model contains it |
| `key`, `endpoint`, `backend` | those of this key, endpoint or backend |
| `warning` (also `code`) | those with a warning of this code, or with `any` |
| `since`, `before` | those that started at or after, or before, a time in ISO 8601; `before` leaves running ones out |
| `limit` | at most this number, from 1 to 1000, 100 by default |

| member | meaning |
|---|---|
| `total`, `matching` | the number of known requests, and of those that fit |
| `keys`, `models` | the values of the known requests |
| `workers` | the number of `configured` workers, and of those `heard` |
| `exchanges[]` | `id`, `started`, `endpoint`, `key`, `model`, `backend`, `format`, `status`, `error`, `live` |
| `….prompt` | the first 160 characters of the last text of the user |
| `….tools_called` | the names of called tools, once the request has ended; at most eight |
| `….first_byte`, `.first_token`, `.duration` | seconds since the start |
| `….input_tokens`, `.output_tokens` | tokens |
| `….ledger`, `.warnings[]` | the warnings, and the first 16 in words: `title`, `severity`, `meaning`, `action` and `link` |
| `….kept` | true if the worker that responded has the steps of the request, in memory or as a recording |
| `unreadable` | the number of recordings that are skipped; the log names them |

- Each worker keeps the steps of its last 200 requests, of 64 MiB in all, and the list of its last 1000.
- With `inspector.recordings`, the list also has the newest 1000 recordings of `recording.directory`.
- For the next page, give the `started` of the last request as `before`.
"""
_FIRST_RUN = """
## First run

`GET /admin/first-run` returns the content of the page before the first request. The texts are those of `gateway launch`, and they have no key.

| member | meaning |
|---|---|
| `root`, `keyed` | the URL of the gateway as the client has it, and whether requests need a key |
| `backends[]` | each backend with its `address`, its `models`, and the `problem` of one that cannot be used |
| `model`, `models` | the model in all texts (`?model=` chooses one), and those that can be chosen |
| `clients[]` | `name`, `title`, `steps` with a `place` and the `text` to paste, `notes`, and the `problems` of the model with this client |
"""
_EXCHANGE = """
## One request

With `inspector.enabled`, the gateway keeps the last requests of each worker in memory. A key of the scope `admin` reads them. Secrets are masked.
If two requests have the same id, `?started=` with the start of one selects it.

| path | what it is |
|---|---|
| `GET /admin/exchanges/{id}` | the details |
| `GET /admin/exchanges/{id}/conversation` | messages, tools and the response |
| `GET /admin/exchanges/{id}/entries?after=N` | the recorded steps after number N: [Recordings](recordings.md) |
| `GET /admin/exchanges/{id}/recording` | the recording as a file |
| `POST /admin/exchanges/{id}/replay` | a replay in another `format`; the request stays as it is |

The details have these members. All times are seconds since the request arrived, and `null` if they are unknown.

| member | meaning |
|---|---|
| `times` | `prepared`, `queue_start`, `queue_end`, `connected`, `first_byte`, `first_token`, `client_start`, `end` |
| `times.attempts` | each call of a backend: `backend`, `model`, `status`, `error`, `started`, `sent`, `answered`, `ended`, and the `wait` before it |
| `times.pace` | `bars`, the number of pieces of output in each of 120 equal parts of the time so far; `first_byte`; `silences` of more than a second |
| `times.parts` | each piece of reasoning, text and tool call: `kind`, `name`, `start`, `end`, its first `entry`, and the number of `pieces` |
| `tokens` | `input`, `cached`, `output`, `reasoning`, `text`; `estimated` names the counts that the gateway estimated |
| `warning_entries` | the number of the recorded entry that each warning belongs to |
| `failure` | `null`, or the error: `backend`, `upstream_status` and `body` of its response, the end of the response to the client (`sent`), `advice`, and the number of `equal` failures in the last hour |
| `client`, `client_status` | the first product of the client's user agent; the status that the client received |
| `newer`, `older` | `id` and `started` of the requests around it |
| `shown` | what the page of the request shows, in words: `verdict`, `facts`, `usage`, `details`, `axis`, `pace`, and the `picture` of the pace. It may change with the page |

The conversation has the request as the model received it (`received`) and as the client sent it (`sent`): `messages`, `tools` and `parameters`. The `response`
has `choices` with `text`, `reasoning`, `tool_calls` and `finish_reason`, and `usage` and `warnings`.

If the response came whole and is not as it should be, `verdict` says so.

If tools were offered and none was called, `looks_like` has the formats whose markup the text has. `calls: true` says that the format reads a tool call in it.

`changes` has the text `before` and `after` by warning: of a field in both requests, or of a read and what the client got of it, each of at most 2,000
characters.

A replay returns `same`, `differences` as lines, and the new `response` in the same form. If it is not possible, `reason` says why.
"""
_TITLES = {
    "/v1/chat": "Chat completions", "/v1/completions": "Completions", "/v1/responses": "Responses",
    "/v1/messages": "Messages", "/v1/models": "Models", "/v1/conversations": "Conversations",
    "/v1/files": "Files", "/v1/uploads": "Files", "/v1/batches": "Batches",
    "/v1/embeddings": "Embeddings and ranks", "/v1/rerank": "Embeddings and ranks", "/v1/tokenize": "Tokens",
    "/v1/detokenize": "Tokens",
    **{row.path: "Passed on" for row in PASS_THROUGH}, "/health": "Health", "/ready": "Health",
}  # fmt: skip


def page() -> str:
    """Return the whole page in Markdown."""
    return "\n".join([_HEAD, *_sections(), _groups(), _TAIL, _EXCHANGE, _FIRST_RUN])


def _groups() -> str:
    rows = (f"| {', '.join(f'`{name}`' for name in one.names)} | {one.treatment} | {one.note} |" for one in SDK_GROUPS)
    return _GROUPS + "\n".join(rows) + "\n"


def _sections() -> Iterator[str]:
    settings = config.parse("", "gateway.yaml", {}, [])
    sections: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in create_app(settings).openapi()["paths"].items():
        title = next(title for root, title in _TITLES.items() if path.startswith(root))
        sections.setdefault(title, []).extend((method, path, operation) for method, operation in operations.items())
    for title, operations in sections.items():
        yield f"## {title}\n\n| request | what it does |\n|---|---|"
        for method, path, operation in operations:
            summary = operation["description"].partition("\n")[0]
            yield f"| `{method.upper()} {path}` | {summary} |"
        yield from (example for one in operations for example in _example(*one))
        yield ""


def _example(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if "example" in content:
        body = json.dumps(content["example"], indent=2)
        yield f"\n`{method.upper()} {path}`:\n\n```json\n{body}\n```"
