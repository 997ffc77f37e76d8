"""Hold the values of the metrics of one process, or of several together."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import add

from gateway.server.telemetry.metrics import METRICS, LabelValues, Metric

SeriesByMetric = dict[
    str, dict[LabelValues, list[float]]
]  # by the name of a metric; a number, or a histogram's buckets and sum


class MetricValues:
    """A metric's series, one for each combination of labels; only one task may change it at a time."""

    def __init__(self, metrics: Iterable[Metric] = METRICS) -> None:
        self.series: SeriesByMetric = {one.name: {labels: one.nothing for labels in one.known} for one in metrics}

    def cell(self, metric: Metric, labels: LabelValues) -> list[float]:
        """The numbers of a series, which are in this list from now on."""
        values = self.series[metric.name].get(labels)
        if values is None:
            values = self.series[metric.name][labels] = metric.nothing
        return values

    def count(self, metric: Metric, labels: LabelValues = (), amount: float = 1) -> None:
        self.cell(metric, labels)[0] += amount

    def measure(self, metric: Metric, value: float) -> None:
        values = self.series[metric.name][()]
        values[bisect_left(metric.buckets, value)] += 1
        values[-1] += value

    def add(self, metric: Metric, values: Iterable[float]) -> None:
        """Add measured values: a count per bucket, and their sum."""
        mine = self.series[metric.name][()]
        mine[:] = map(add, mine, values)


def sum_series(several: Iterable[Mapping[str, Mapping[LabelValues, list[float]]]]) -> SeriesByMetric:
    """Return the sum of all, which does not change with them."""
    joined: SeriesByMetric = {}
    ways = {one.name: min if one.joined == "min" else add for one in METRICS}
    for series in several:
        for name, of_it in series.items():
            mine, way = joined.setdefault(name, {}), ways[name]
            for labels, values in of_it.items():
                mine[labels] = [*map(way, mine[labels], values)] if labels in mine else [*values]
    return joined
