"""Serve /metrics in Prometheus's text format.

Its library is imported with the first request, as that takes as long as 400 requests.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from gateway.server.middleware.auth import authenticate
from gateway.server.observability.metric_values import SeriesByMetric
from gateway.server.observability.metrics import GEN_AI_METRICS, METRICS, PROCESS_METRICS, LabelValues, Metric
from gateway.server.observability.telemetry import Telemetry

if TYPE_CHECKING:
    from prometheus_client import Metric as Family

router = APIRouter()


def prometheus_text(series: SeriesByMetric, processes: Mapping[str, int], accept: str) -> tuple[bytes, str]:
    """Return the metrics in the best accepted format, and its content type.  processes: ids of workers by place."""
    from prometheus_client.exposition import choose_encoder  # noqa: PLC0415 - see above

    encode, content_type = choose_encoder(accept)
    return encode(_MetricFamilies({**series, **_process_series(processes)})), content_type


def _process_series(processes: Mapping[str, int]) -> SeriesByMetric:
    """Return the metrics of processes, which exist on Linux only."""
    from prometheus_client import ProcessCollector  # noqa: PLC0415 - see above

    series: SeriesByMetric = {one.name: {} for one in PROCESS_METRICS}
    for place, pid in processes.items():
        for family in ProcessCollector(pid=partial(int, pid), registry=None).collect():
            for sample in family.samples:
                series[sample.name][(place,)] = [sample.value]
    return series


class _MetricFamilies:
    """A collector for the Prometheus library."""

    def __init__(self, series: SeriesByMetric) -> None:
        self._series = series

    def collect(self) -> Iterator["Family"]:
        used = (one for one in GEN_AI_METRICS if self._series.get(one.name))
        return (_family(one, self._series.get(one.name, {}).items()) for one in (*METRICS, *used))


def _family(metric: Metric, series: Iterable[tuple[LabelValues, list[float]]]) -> "Family":
    from prometheus_client import core  # noqa: PLC0415 - see above
    from prometheus_client.utils import floatToGoString  # noqa: PLC0415

    if metric.kind == "histogram":
        histogram = core.HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, (*counts, total) in series:
            below = zip(map(floatToGoString, metric.bounds), accumulate(counts), strict=True)
            histogram.add_metric(labels, [*below], total)
        return histogram
    made = core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily
    family = made(metric.name, metric.help, labels=metric.labels)
    for labels, (value,) in series:
        named = zip(metric.labels, labels, strict=True)
        family.add_sample(metric.name, {name: one for name, one in named if one or name not in metric.optional}, value)
    return family


@router.get("/metrics", include_in_schema=False)
async def metrics(request: Request) -> Response:
    """Return the metrics of all workers; needs a key of the scope admin unless `metrics.open` is set."""
    if not request.app.state.config.metrics.open:
        await authenticate(request, "admin")
    telemetry: Telemetry = request.app.state.telemetry
    data, type = await asyncio.to_thread(
        prometheus_text, await telemetry.series(), telemetry.processes(), request.headers.get("accept", "")
    )
    return Response(data, headers={"content-type": type})
