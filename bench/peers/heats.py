"""Define the traffic for all programs, and the limits for the gateway.

The traffic is that of the scenarios of `python -m bench`; a heat names the abilities that it needs.  Rows have the
names of figures: scenario, colon, row.
"""

from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

from bench.peers.programs import LITELLM, SMG
from bench.scenarios import SHARES, Scenario, crowded, offered_load, scenarios
from bench.traffic import Traffic

START, IDLE, ADDED, TWO = (
    "start to first answer",
    "idle: memory",
    "added latency, idle",
    "two workers: CPU to one worker's",
)
ONE_AT_A_TIME, MANY_AT_A_TIME = "whole answer, 1 at a time", "whole answer, 32 at a time"
LATENCY, CPU = f"{ONE_AT_A_TIME}: latency, p50", f"{MANY_AT_A_TIME}: CPU"
NATIVE = "burst, native text"
_MANY_STREAMS, _MOST_STREAMS = "1000 streams × 10 chunks/s", "10000 streams × 0.5 chunks/s"
_DELAYS = ("delay of a chunk, p50", "delay of a chunk, p99")
_DETAILS = ("rate", "latency, p99", "idle gateway, memory")


class Heat(Struct, frozen=True):
    """A scenario for the programs that have the ability for it."""

    scenario: Scenario
    needs: frozenset[str] = frozenset({"chat"})  # one of these
    once: bool = False  # in the first round only
    left_out: tuple[str, ...] = (*_DETAILS, *_DELAYS)  # rows


class Want(Struct, frozen=True):
    """An upper limit for the gateway: a number, or a factor for the value of another program.

    of: the other program; "": the limit is a number.
    row: the row of the other program; "": the same.
    """

    most: float
    of: str = ""
    row: str = ""  # of that other; "": the same

    def __str__(self) -> str:
        return f"≤ {self.most:g}" + (f" × {self.of}" if self.of else "") + ("'s native" if self.row else "")


_TO_NATIVE = f"{NATIVE}: CPU"
WANTS = {
    f"{ONE_AT_A_TIME}: CPU": Want(1.35, SMG),
    CPU: Want(1.35, SMG),
    _TO_NATIVE: Want(0.7, SMG),
    "burst, hermes_json call: CPU": Want(1.0, SMG, _TO_NATIVE),
    "burst, think: CPU": Want(1.0, SMG, _TO_NATIVE),
    "burst of responses, passed on: CPU": Want(0.0086, LITELLM),  # 4.5 µs where that takes 525
    "burst of responses, stored: CPU": Want(0.0086, LITELLM),
    "20 streams × 50 chunks/s: CPU": Want(1.5, SMG),
    f"{_MANY_STREAMS}: first byte, p50": Want(1),
    f"{_MANY_STREAMS}: first byte, p99": Want(160),
    f"{_MANY_STREAMS}: memory": Want(45),
    f"{_MANY_STREAMS}: CPU": Want(1.6, SMG),
    f"{_MOST_STREAMS}: not ended well": Want(0),
    f"{_MOST_STREAMS}: first byte, p99": Want(1000),
    **{f"{offered_load(share)}: first byte, p50": Want(2, SMG) for share in SHARES},
    f"{offered_load(80)}: delay of a chunk, p99": Want(100),
    ADDED: Want(0.25),
    START: Want(0.8),
    IDLE: Want(70),
    TWO: Want(1.1),
}


def heats(quick: bool) -> Iterator[Heat]:
    """Return all heats, in the order of the table."""
    known = {scenario.name: scenario for scenario in scenarios(quick)}
    yield Heat(known[ONE_AT_A_TIME])
    yield Heat(known[MANY_AT_A_TIME], frozenset({"chat", "workers"}))
    yield Heat(known[NATIVE])
    for name in ("burst, hermes_json call", "burst, think"):
        yield Heat(known[name], frozenset({"formats"}))
    for word in ("passed on", "stored"):
        yield Heat(known[f"burst of responses, {word}"], frozenset({"responses"}))
    yield Heat(_plain(known["20 streams × 50 chunks/s"]))
    yield Heat(_shorter(_plain(known[_MANY_STREAMS]), quick), once=True)
    yield Heat(_most_streams(quick), frozenset({"streams"}), once=True)
    for share in SHARES:
        yield Heat(known[offered_load(share)], frozenset({"load"}), left_out=_DETAILS)


def _plain(scenario: Scenario) -> Scenario:
    """Return the scenario without a text format and tools, which the other programs do not support."""
    return replace(scenario, traffic=replace(scenario.traffic, model="mock", tools=False))


def _shorter(scenario: Scenario, quick: bool) -> Scenario:
    """Return a shorter scenario, which the slowest program finishes in the time of a run."""
    knobs = f"m=plain,n={10 if quick else 20},p=100,ts=1"
    return replace(scenario, traffic=replace(scenario.traffic, knobs=knobs))


def _most_streams(quick: bool) -> Scenario:
    knobs = f"m=plain,n={4 if quick else 15},p=2000,ts=1"
    traffic = Traffic("mock", knobs, streams=10_000, requests=10_000, ramp_ms=15_000)
    return Scenario("streams", _MOST_STREAMS, traffic, crowded(traffic), b'"content"', fresh=True)
