"""Count finished requests in OpenTelemetry's metrics for generative AI as well (`metrics.gen_ai`)."""

from collections.abc import Mapping

from gateway.events import Usage
from gateway.server.observability.metrics import GEN_AI_DURATION, GEN_AI_FIRST_TOKEN, GEN_AI_TOKENS
from gateway.server.observability.metrics_store import MetricValues, observe
from gateway.server.observability.request_record import RequestRecord
from gateway.server.observability.spans import operation_name


class GenAiMetrics:
    """The metrics of one process.  kinds: the kind of each backend, which is the provider."""

    def __init__(self, tally: MetricValues, kinds: Mapping[str, str]) -> None:
        self._tally, self.kinds = tally, kinds

    def count(self, record: RequestRecord, model: str, used: Usage, first: float | None) -> None:
        """Count a request that a backend got.

        model: the value of the label; first: the time of the first content of a stream, None without one.
        """
        series, outcome = self._tally.series_values, record.outcome
        labels = operation_name(record.endpoint), self.kinds.get(record.backend, ""), model
        error = str(outcome) if outcome >= 400 else ""
        observe(series(GEN_AI_DURATION, (*labels, error)), GEN_AI_DURATION, record.ended - record.arrived)
        if first is not None:
            observe(series(GEN_AI_FIRST_TOKEN, labels), GEN_AI_FIRST_TOKEN, first - record.arrived)
        for type, tokens in ("input", used.prompt), ("output", used.completion):
            if tokens:
                observe(series(GEN_AI_TOKENS, (*labels, type)), GEN_AI_TOKENS, tokens)
