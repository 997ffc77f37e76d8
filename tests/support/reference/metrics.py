"""Generate docs/reference/metrics.md from the table of metrics."""

from collections.abc import Iterator
from typing import get_args

from gateway.routing.health import CircuitState
from gateway.server.observability.metric_values import MAX_MODELS, TOKEN_KINDS, UPSTREAM_ERROR_KINDS
from gateway.server.observability.metrics import ALL_METRICS, GEN_AI_METRICS, METRICS, Metric

_HEAD = """\
# Metrics

`GET /metrics` has these metrics in the text format of Prometheus. [Observe](../how-to/observe.md#metrics) explains who may read them.
`make regenerate` writes this page.

| metric | type | labels | description |
|---|---|---|---|
"""


def page() -> str:
    """Return the whole page in Markdown."""
    return _HEAD + "\n".join([*map(_row, METRICS), *_gen_ai(), "", *_labels(), *_buckets()]) + "\n"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def _gen_ai() -> Iterator[str]:
    yield "\nWith `metrics: {gen_ai: true}`, requests are also counted by the names of OpenTelemetry's conventions:\n"
    yield "| metric | type | labels | description |\n|---|---|---|---|"
    yield from map(_row, GEN_AI_METRICS)


def _labels() -> Iterator[str]:
    yield "## Labels\n\n| label | values |\n|---|---|"
    for label, values in {
        "endpoint": "the path of the request, like `/v1/chat/completions`; `other` for paths that are none of the API",
        "model": f"the name of a model that a backend serves, as the client wrote it; `other` after {MAX_MODELS} of them",
        "backend": "the name of a backend; empty if the request reached none",
        "status": "the outcome as an HTTP status; for a stream that broke off, that of the failure; 499: the client left",
        "key": "the name of the API key, only with `metrics.keys`; `other` for keys after that number",
        "kind` of `gateway_tokens_total": _list(TOKEN_KINDS),
        "kind` of `gateway_model_price": _list(("input", "cached", "output")),
        "kind` of `gateway_upstream_errors_total": _list(sorted({*UPSTREAM_ERROR_KINDS.values(), "error"})),
        "gen_ai_operation_name": "what the endpoint does: `chat`, `text_completion`, `embeddings` and others",
        "gen_ai_provider_name": "the `kind` of the backend",
        "gen_ai_request_model": "as `model`",
        "gen_ai_token_type": "`input`, `output`; requests without tokens are left out",
        "error_type": "`status` of a failed request, empty otherwise",
        "format": "a name of [Formats](formats.md)",
        "code": "a code of [Warnings](warnings.md)",
        "state": _list(get_args(CircuitState)),
        "worker": "the place of the worker, from `0`; a replacement of a dead worker gets its place",
    }.items():
        yield f"| `{label}` | {values} |"


def _list(values) -> str:
    return ", ".join(f"`{value}`" for value in values)


def _buckets() -> Iterator[str]:
    yield "\n## Buckets\n\n| histogram | upper bounds in seconds, or in tokens |\n|---|---|"
    for metric in ALL_METRICS:
        if metric.buckets:
            yield f"| `{metric.name}` | {', '.join(f'{bound:g}' for bound in metric.buckets)} |"
