"""Count requests and tokens per second."""

from collections.abc import Iterable
from itertools import chain

from gateway.server.telemetry.sight import ModelRate, RequestSnapshot

SECONDS = 10.0  # that are looked back


def compute_rates(
    live: Iterable[RequestSnapshot], over: Iterable[RequestSnapshot], since: float, now: float
) -> list[ModelRate]:
    """Of each model at each backend.  since: from then on all that are over are told; times are in Unix seconds."""
    begin = max(now - SECONDS, since)
    seconds = max(now - begin, 0.001)
    found: dict[tuple[str, str], ModelRate] = {}
    recent = (seen for seen in over if seen.ended >= begin)
    for seen in chain(live, recent):
        place = seen.model, seen.backend
        before = found.get(place, ModelRate(*place, 0, 0.0, 0.0))
        found[place] = ModelRate(
            *place,
            in_flight=before.in_flight + seen.live,
            requests=before.requests + (not seen.live) / seconds,
            tokens=before.tokens + seen.output_tokens * _share(seen, begin) / seconds,
        )
    return [*found.values()]


def _share(seen: RequestSnapshot, begin: float) -> float:
    """Of its tokens those that came since then, as if they came evenly: a whole answer from when it was asked for."""
    first = seen.first_content if seen.streamed else seen.asked
    took = seen.duration - (first or 0.0)
    return min(1.0, (seen.ended - begin) / took) if took > 0 else 1.0
