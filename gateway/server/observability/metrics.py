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
    aggregate: combines the gauges of several workers.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    initial_labels: tuple[LabelValues, ...] = ()
    aggregate: Literal["sum", "min"] = "sum"

    @property
    def bounds(self) -> tuple[float, ...]:
        """The upper bounds of the buckets, with infinity as the last one."""
        return (*self.buckets, inf)

    @property
    def zero(self) -> list[float]:
        """The values of an empty series: a number, or for a histogram the count of each bucket and the sum."""
        return [0.0] * (len(self.buckets) + 2 if self.buckets else 1)


_ALONE: tuple[LabelValues, ...] = ((),)

REQUESTS = Metric(
    "gateway_requests_total",
    "counter",
    "Requests that are over, by what they came to; 499: the client left.",
    ("endpoint", "model", "backend", "status"),
)
IN_FLIGHT = Metric("gateway_requests_in_flight", "gauge", "Requests that are being answered.", ("endpoint",))
DURATION = Metric(
    "gateway_request_duration_seconds",
    "histogram",
    "From the arrival of a request that a model was asked for to its end.",
    buckets=_WHOLE,
    initial_labels=_ALONE,
)
FIRST_TOKEN = Metric(
    "gateway_time_to_first_token_seconds",
    "histogram",
    "From the arrival of a request to the first content of its stream.",
    buckets=_FIRST,
    initial_labels=_ALONE,
)
BETWEEN = Metric(
    "gateway_inter_token_seconds",
    "histogram",
    "Between two pieces of a stream, as they came from the backend.",
    buckets=GAPS,
    initial_labels=_ALONE,
)
TOKENS = Metric(
    "gateway_tokens_total",
    "counter",
    "Tokens; cached ones are among the input, those of reasoning among the output.",
    ("model", "kind"),
)
FORMATS = Metric(
    "gateway_formats_total", "counter", "Requests by the format that their answer was read in.", ("format",)
)
LEDGER = Metric(
    "gateway_ledger_total",
    "counter",
    "What was not passed as it came but repaired, translated, dropped and so on.",
    ("code",),
    initial_labels=tuple((code,) for code in get_args(WarningCode)),
)
RECEIVED = Metric("gateway_received_bytes_total", "counter", "Bytes of the bodies of requests.", ("endpoint",))
SENT = Metric("gateway_sent_bytes_total", "counter", "Bytes of the bodies of answers.", ("endpoint",))
STORED = Metric("gateway_stored_total", "counter", "Answers that were stored.", initial_labels=_ALONE)
STORE_ERRORS = Metric(
    "gateway_store_errors_total",
    "counter",
    "Transactions that the store's database could not do.",
    initial_labels=_ALONE,
)
UPSTREAM_ERRORS = Metric(
    "gateway_upstream_errors_total", "counter", "Attempts that failed at a backend.", ("backend", "kind")
)
HEALTHY = Metric(
    "gateway_backend_healthy",
    "gauge",
    "1 while requests are put to it as usual, 0 while it is left alone for its failures; of several workers the least.",
    ("backend",),
    aggregate="min",
)
CIRCUIT = Metric(
    "gateway_backend_circuit",
    "gauge",
    "1 for the state that its circuit breaker is in; of several workers, in how many.",
    ("backend", "state"),
)
QUEUE = Metric("gateway_queue_depth", "gauge", "Requests that wait for their turn at a backend.", ("backend",))

METRICS = (
    REQUESTS, IN_FLIGHT, DURATION, FIRST_TOKEN, BETWEEN, TOKENS, FORMATS, LEDGER, RECEIVED, SENT, STORED, STORE_ERRORS,
    UPSTREAM_ERRORS, HEALTHY, CIRCUIT, QUEUE,
)  # fmt: skip
