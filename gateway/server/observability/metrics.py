"""Define the metrics.  Names and labels are stable; a label has few values, and none is made up by a client."""

from math import inf
from typing import Literal, get_args

from msgspec import Struct

from gateway.warnings import WarningCode

LabelValues = tuple[str, ...]  # in the order of the label names

GAPS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds
_FIRST = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
_WHOLE = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0)


class Metric(Struct, frozen=True):
    """A metric.

    labels: label names; buckets: upper bounds of a histogram; initial_labels: series that exist from the beginning.
    optional: labels that are left out where they are empty; aggregate: combines the gauges of several workers.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    initial_labels: tuple[LabelValues, ...] = ()
    optional: tuple[str, ...] = ()
    aggregate: Literal["sum", "min"] = "sum"

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper bounds of the buckets, with infinity as the last one."""
        return (*self.buckets, inf)

    @property
    def zero(self) -> list[float]:
        """The values of an empty series: a number, or for a histogram the count of each bucket and the sum."""
        return [0.0] * (len(self.buckets) + 2 if self.buckets else 1)


# The buckets that OpenTelemetry's conventions recommend.
_GEN_AI_FIRST = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
_GEN_AI_WHOLE = tuple(0.01 * 2**power for power in range(14))
_GEN_AI_TOKENS = tuple(4.0**power for power in range(14))

_ALONE: tuple[LabelValues, ...] = ((),)
_KEY = ("key",)
_ROUTE = ("endpoint", "model", "backend")

REQUESTS = Metric(
    "gateway_requests_total",
    "counter",
    "Completed requests by outcome; status 499: the client disconnected.",
    (*_ROUTE, "status", *_KEY),
    optional=_KEY,
)
IN_FLIGHT = Metric("gateway_requests_in_flight", "gauge", "Requests in progress.", ("endpoint",))
DURATION = Metric(
    "gateway_request_duration_seconds",
    "histogram",
    "Time from the arrival of a model request to the end of its response.",
    _ROUTE,
    buckets=_WHOLE,
)
FIRST_TOKEN = Metric(
    "gateway_time_to_first_token_seconds",
    "histogram",
    "Time from the arrival of a request to the first content of its stream.",
    _ROUTE,
    buckets=_FIRST,
)
BETWEEN = Metric(
    "gateway_inter_token_seconds",
    "histogram",
    "Time between two chunks of a stream from the backend.",
    _ROUTE,
    buckets=GAPS,
)
TOKENS = Metric(
    "gateway_tokens_total",
    "counter",
    "Tokens; input includes cached tokens, output includes reasoning tokens.",
    ("model", "kind", *_KEY),
    optional=_KEY,
)
FORMATS = Metric(
    "gateway_formats_total", "counter", "Requests by the format in which the gateway parsed the response.", ("format",)
)
LEDGER = Metric(
    "gateway_ledger_total",
    "counter",
    "Warnings: parts of requests and responses that were repaired, translated, dropped and so on.",
    ("code",),
    initial_labels=tuple((code,) for code in get_args(WarningCode)),
)
RECEIVED = Metric("gateway_received_bytes_total", "counter", "Bytes of request bodies.", ("endpoint",))
SENT = Metric("gateway_sent_bytes_total", "counter", "Bytes of response bodies.", ("endpoint",))
STORED = Metric("gateway_stored_total", "counter", "Stored responses.", initial_labels=_ALONE)
STORE_ERRORS = Metric(
    "gateway_store_errors_total",
    "counter",
    "Failed transactions of the store.",
    initial_labels=_ALONE,
)
STORE_QUEUE = Metric("gateway_store_queue_depth", "gauge", "Writes that wait for the store.", initial_labels=_ALONE)
UPSTREAM_ERRORS = Metric(
    "gateway_upstream_errors_total", "counter", "Failed attempts at a backend.", ("backend", "kind")
)
HEALTHY = Metric(
    "gateway_backend_healthy",
    "gauge",
    "1 while the backend receives requests, 0 while its circuit breaker is open; the minimum of all workers.",
    ("backend",),
    aggregate="min",
)
CIRCUIT = Metric(
    "gateway_backend_circuit",
    "gauge",
    "1 for the current state of the circuit breaker; with several workers, the number of workers in that state.",
    ("backend", "state"),
)
QUEUE = Metric("gateway_queue_depth", "gauge", "Requests in the queue of a backend.", ("backend",))

PRICE = Metric(
    "gateway_model_price",
    "gauge",
    "Price of a million tokens, for models with `models.NAME.price`; cached tokens are part of input.",
    ("model", "kind"),
    aggregate="min",
)
BUILD = Metric(
    "gateway_build_info",
    "gauge",
    "Always 1; the labels have the versions of the gateway and of Python.",
    ("version", "python"),
    aggregate="min",
)

_WORKER = ("worker",)
PROCESS_METRICS = (
    Metric("process_cpu_seconds_total", "counter", "CPU time of a worker, of the user and the system.", _WORKER),
    Metric("process_resident_memory_bytes", "gauge", "Resident memory of a worker.", _WORKER),
    Metric("process_virtual_memory_bytes", "gauge", "Virtual memory of a worker.", _WORKER),
    Metric("process_open_fds", "gauge", "Open file descriptors of a worker.", _WORKER),
    Metric("process_max_fds", "gauge", "Maximum of open file descriptors of a worker.", _WORKER),
    Metric("process_start_time_seconds", "gauge", "Start time of a worker, in seconds since 1970.", _WORKER),
)

METRICS = (
    REQUESTS, IN_FLIGHT, DURATION, FIRST_TOKEN, BETWEEN, TOKENS, FORMATS, LEDGER, RECEIVED, SENT, STORED, STORE_ERRORS,
    STORE_QUEUE, UPSTREAM_ERRORS, HEALTHY, CIRCUIT, QUEUE, PRICE, BUILD, *PROCESS_METRICS,
)  # fmt: skip

# With `metrics.gen_ai` only: OpenTelemetry's metrics for generative AI, with the names that they have in Prometheus.
_GEN_AI = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
GEN_AI_DURATION = Metric(
    "gen_ai_server_request_duration_seconds",
    "histogram",
    "Time from the arrival of a model request to the end of its response.",
    (*_GEN_AI, "error_type"),
    buckets=_GEN_AI_WHOLE,
)
GEN_AI_FIRST_TOKEN = Metric(
    "gen_ai_server_time_to_first_token_seconds",
    "histogram",
    "Time from the arrival of a request to the first content of its stream.",
    _GEN_AI,
    buckets=_GEN_AI_FIRST,
)
GEN_AI_TOKENS = Metric(
    "gen_ai_client_token_usage",
    "histogram",
    "Tokens of a request and its response.",
    (*_GEN_AI, "gen_ai_token_type"),
    buckets=_GEN_AI_TOKENS,
)
GEN_AI_METRICS = (GEN_AI_DURATION, GEN_AI_FIRST_TOKEN, GEN_AI_TOKENS)
ALL_METRICS = (*METRICS, *GEN_AI_METRICS)
