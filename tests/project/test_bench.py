"""Test the evaluation of the bench: growth, targets, tables, the plot and peers."""

import subprocess
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from bench.capacity import CoreUse, at_rate, new_clients
from bench.document import replaced
from bench.growth import Growth
from bench.growth import markdown as growths_as_markdown
from bench.peers.heats import ADDED, CPU, IDLE, LATENCY, START, TWO, WANTS, heats
from bench.peers.instructions import UNITS, rows
from bench.peers.instructions import markdown as markdown_of_instructions
from bench.peers.outcome import markdown, outcome, text
from bench.peers.plot import svg
from bench.peers.programs import GATEWAY_NAME, PEERS, SMG, TWO_WORKERS, Peer, prepare
from bench.rounds import Program
from bench.scenarios import Run, scenarios
from bench.traffic import Report, Traffic

SIZES = (10, 100, 1000)


@pytest.mark.parametrize(
    ("may", "costs", "power", "last", "verdict"),
    [
        ("flat", (5, 5, 5), 0, 0, "ok"),
        ("flat", (1, 10, 100), 1, 1, "over"),
        ("linear", (1, 10, 100), 1, 1, "ok"),
        ("linear", (1, 1, 100), 1, 2, "over"),
        ("flat", (5, 10, 10), 0.15, 0, "ok"),
    ],
)
def test_bench_growth_is_a_power_and_counts_the_last_step(may, costs, power, last, verdict):
    growth = Growth("it", "µs", SIZES, costs, may)
    assert growth.power == pytest.approx(power, abs=0.01) and growth.powers[-1] == pytest.approx(last)
    assert growth.verdict == verdict


def test_bench_growth_is_a_row_of_the_document():
    row = growths_as_markdown([Growth("it", "µs", SIZES, (5, 5, 5))]).splitlines()[2]
    assert row == "| it | µs | 10: 5.00, 100: 5.00, 1,000: 5.00 | 0.00 | 0.00 | flat | ok |"


def test_bench_document_keeps_text_outside_the_marks():
    document = "before\n<!-- it -->\nold\n<!-- end of it -->\nafter\n"
    assert replaced(document, "it", "new") == "before\n<!-- it -->\nnew\n<!-- end of it -->\nafter\n"
    assert replaced(replaced(document, "it", "new"), "it", "old") == document
    with pytest.raises(ValueError, match="no <!-- other -->"):
        replaced(document, "other", "new")


NATIVE, CALL = "burst, native text: CPU", "burst, hermes_json call: CPU"
SLOW = "20 streams × 50 chunks/s: CPU"


def race(**more):
    rows = {
        START: {GATEWAY_NAME: [0.7], SMG: [0.1]},
        CPU: {GATEWAY_NAME: [100, 90, 110], TWO_WORKERS: [120], SMG: [80]},
        LATENCY: {"direct": [0.01], GATEWAY_NAME: [0.2], SMG: [0.1]},
        NATIVE: {GATEWAY_NAME: [3], SMG: [5]},
        CALL: {GATEWAY_NAME: [6]},
        SLOW: {SMG: [20]},
    }
    units = dict.fromkeys(rows, "µs")
    versions = {GATEWAY_NAME: "0.1", TWO_WORKERS: "0.1", SMG: "1.13.0"}
    return SimpleNamespace(rows=rows, units=units, versions=versions, notes=["nginx could not be installed"], **more)


def test_bench_outcome_compares_each_row_with_its_target():
    values = {line.name: (line.values.get(GATEWAY_NAME), line.wanted, line.verdict) for line in outcome(race()).lines}
    assert values == {
        CPU: (100, "≤ 1.35 × smg", "ok: 1.25 ×"),
        LATENCY: (0.2, "", ""),
        NATIVE: (3, "≤ 0.7 × smg", "ok: 0.60 ×"),
        CALL: (6, "≤ 1 × smg's native", "over: 1.20 ×"),
        SLOW: (None, "≤ 1.5 × smg", "not measured"),
        ADDED: (pytest.approx(0.19), "≤ 0.25", "ok"),
        START: (0.7, "≤ 0.8", "ok"),
        TWO: (1.2, "≤ 1.1", "over"),
    }


def test_bench_table_has_a_column_for_each_peer_and_names_missing_ones():
    found = outcome(race())
    assert found.columns == [GATEWAY_NAME, SMG, "direct"]
    head, rule, *rows = markdown(found).splitlines()[2:]
    assert head == "|  | unit | gateway | smg | direct | wanted | reached |"
    assert rule.count("|") == head.count("|") == rows[0].count("|")
    assert rows[-1] == "- nginx could not be installed" and "nginx could not be installed" in text(found)


def test_bench_plot_has_a_dot_for_each_value_and_a_dark_mode():
    picture = svg(outcome(race()))
    dots = [one for one in ElementTree.fromstring(picture).iter() if one.tag.endswith("circle")]
    assert len(dots) == 2 + 2 + 2 + 1 + 1, "the legend, and what the rows have"
    assert "prefers-color-scheme: dark" in picture


@pytest.mark.parametrize("quick", [False, True])
def test_bench_measures_every_target(quick):
    titles = {f"{heat.scenario.name}: {row.name}" for heat in heats(quick) for row in heat.scenario.rows}
    titles |= {ADDED, START, IDLE, TWO}
    assert WANTS.keys() <= titles and LATENCY in titles
    assert {want.row for want in WANTS.values()} - {""} <= titles


def test_bench_instructions_of_a_delta_are_compared_with_smgs_burst():
    ours = {unit.name: 120.0 for unit in UNITS}
    head, rule, *lines = markdown_of_instructions(rows(ours, dict.fromkeys(ours, 100.0)), "smg 1").splitlines()[2:]
    assert head.count("|") == rule.count("|") == lines[0].count("|") and len(lines) == len(UNITS)
    assert lines[0] == "| whole answer | 120 | 100 | 1.20 | ≤ 1 | over |"
    theirs = {unit.name: 100.0 for unit in UNITS if not unit.of}
    assert rows(ours, theirs)[-1].cells()[3:] == ("1.20", "≤ 1.1 × smg's burst line", "over")


def report(dones, failures=0, lat99=0.0, err=""):
    times = dict.fromkeys(("s", "rps", "lps", "ttfd50", "ttfd99", "tot50", "tot99", "lat50"), 1.0)
    return Report(ok=dones, errs=0, lines=dones, dones=dones, failures=failures, lat99=lat99, err=err, **times)


class Loaded:
    """A run whose use of the core follows a curve."""

    def __init__(self, rate, used):
        self.rate, self.used = rate, used


def nearest(share, curve, use=None):
    """Return the run for a share of the core, and the rates of all runs."""
    rates = []

    def run(rate):
        rates.append(rate)
        return Loaded(rate, curve(rate))

    return (use or CoreUse()).nearest(share, run), rates


def test_bench_clients_at_a_rate_are_as_many_as_their_time_takes():
    load = at_rate(new_clients(4.0, 80), 400.0)
    assert (load.rate, load.requests, load.open.streams) == (400.0, 1600, 400)


def test_bench_run_for_a_share_of_a_core_is_found_where_the_use_is_a_curve():
    def curve(rate):
        return min(0.5 + 0.5 * (rate / 2000) ** 0.7, 1.0)

    use, most = CoreUse(), 0
    for share in (60, 80, 95):
        run, rates = nearest(share, curve, use)
        assert run.used == pytest.approx(share / 100, abs=0.01) and max(rates) < 3000
        most = max(most, len(rates))
    assert most <= 6


def test_bench_share_is_found_in_one_run_where_an_earlier_round_has_found_its_rate():
    use = CoreUse()
    nearest(80, lambda rate: 0.2 + 0.0005 * rate, use)
    assert nearest(80, lambda rate: 0.2 + 0.0005 * rate, use)[1] == [1200]


def test_bench_share_is_searched_again_where_the_rate_of_an_earlier_round_uses_less():
    use = CoreUse()
    nearest(95, lambda rate: 0.2 + 0.0005 * rate, use)
    run, rates = nearest(95, lambda rate: 0.2 + 0.00046 * rate, use)
    assert rates[0] == 1500 and run.used == pytest.approx(0.95, abs=0.01)


def test_bench_rate_is_the_least_if_the_streams_alone_use_more():
    assert nearest(50, lambda rate: 0.7 + rate / 1e5)[0].rate == 10


def test_bench_run_is_the_nearest_one_if_none_uses_that_share():
    assert nearest(90, lambda rate: 0.4 if rate < 700 else 1.0)[0].rate >= 700


def test_bench_run_counts_failures_of_requests_and_of_the_streams_open_meanwhile():
    load = at_rate(new_clients(4.0, 80), 400.0)
    run = Run(load, report(1600), report(400, lat99=7.0))
    assert not run.missing
    delay = {row.name: row.value(run) for one in scenarios(True) if one.traffic.share for row in one.rows}
    assert delay["delay of a chunk, p99"] == 7 and delay["new clients"] == 400
    run = Run(load, report(1590, failures=2), report(397, err="reset"))
    assert run.missing == 15 and run.failure == "15 of 2000 requests and streams did not end well; reset"


@pytest.mark.parametrize("name", [peer.name for peer in PEERS])
def test_bench_peer_takes_part_and_can_be_started(name):
    (peer,) = (peer for peer in PEERS if peer.name == name)
    assert any(peer.can & heat.needs for heat in heats(False))
    words = {"python": "p", "port": 1, "spare": 2, "mock": 3, "store": "s", "config": "c", "folder": "f"}
    for template in (peer.program.command, peer.program.config):
        assert "{{" not in template.format(**words)


def test_bench_peer_that_is_slow_gets_one_request_per_stream_at_least():
    peer = Peer("it", "1", Program(""), headers=(("host", "h:{mock}"),), slow=10)
    assert peer.traffic_for(Traffic("m", "", 4, 100), 7).requests == 10
    load = peer.traffic_for(Traffic("m", "", 16, 100), 7)
    assert load.requests == 16 and load.headers == (("host", "h:7"),)


def test_bench_peer_is_installed_once_and_again_after_a_change(tmp_path):
    def run(*commands):
        return prepare(Peer("it", "1.0", Program("it"), commands), tmp_path)

    for _ in range(2):
        assert run("echo once >> ran") == "1.0"
    assert (tmp_path / "it" / "ran").read_text() == "once\n"
    run("echo other >> ran")
    assert (tmp_path / "it" / "ran").read_text() == "other\n"
    for _ in range(2):
        with pytest.raises(subprocess.CalledProcessError):
            run("exit 1")
