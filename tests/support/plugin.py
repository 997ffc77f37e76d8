"""Select tests by tier, guard the unit tests, run long tests first, and configure the depth of the run.

`pytest --tiers unit,edge` loads no module that has tests of higher tiers alone.
"""

import gc
import json
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest
from _pytest.runner import runtestprotocol
from coverage import Coverage

from support import deadlines, guard, process_state, sampling
from support.durations import Durations
from support.pauses import Pauses
from support.services import Services
from support.tiers import Tier, named_tests, tier_of

_TIERS = pytest.StashKey[set[str]]()
_DURATIONS = pytest.StashKey[Durations]()
_SERVICES = pytest.StashKey[Services]()
_PAUSES = pytest.StashKey[Pauses]()
SMOKE = "smoke"  # system tests that belong to every change


def pytest_addoption(parser):
    """Add the options of this project."""
    group = parser.getgroup("gateway")
    group.addoption("--tiers", default="", help="comma-separated: unit, edge, system, smoke; all by default")
    group.addoption("--thorough", action="store_true", help="cut every text everywhere, generate all examples")
    group.addoption("--seed", type=int, help="moves the cuts; the number of the day by default")
    group.addoption("--shuffle", type=int, metavar="SEED", help="run the files, and the tests of each, in random order")
    group.addoption("--pause", type=float, metavar="SECONDS", help="stop the event loop of each test once, for so long")
    group.addoption("--contexts", action="store_true", help="tell coverage which test runs")
    group.addoption("--outcomes-file", type=Path, help="write the outcome of each test, as JSON")
    group.addoption("--write-durations", action="store_true", help="update tests/support/durations.json")


def pytest_configure(config):
    """Configure the run."""
    for tier in Tier:
        config.addinivalue_line("markers", f"{tier.name}: derived from what a test uses, see tests/support/tiers.py")
    config.addinivalue_line("markers", f"{SMOKE}: a system test that belongs to every change")
    wanted = {one for one in config.getoption("tiers").split(",") if one}
    if unknown := wanted - {*Tier.__members__, SMOKE}:
        raise pytest.UsageError(f"--tiers: there is no {', '.join(sorted(unknown))}")
    config.stash[_TIERS] = wanted
    config.stash[_DURATIONS] = Durations()
    worker = getattr(config, "workerinput", {})
    config.option.seed = worker.get("seed", sampling.seed_or_day(config.option.seed))
    sampling.configure(thorough=config.option.thorough, seed=config.option.seed)
    guard.install()
    if config.option.pause:
        config.stash[_PAUSES] = Pauses(config.option.pause, config.option.shuffle)
        config.stash[_PAUSES].install()
    # Background jobs of a shell ignore this signal, and processes that tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(_Worker() if worker else _Recorder(config))
    if config.getoption("numprocesses", None) and (not wanted or wanted & {"system", SMOKE}):
        config.stash[_SERVICES] = Services()
        config.stash[_SERVICES].begin("postgres", "llama", "redis")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """Return one worker more than there are cores where some tests wait, for processes and timers."""
    waits = config.getoption("tiers") != Tier.unit.name
    return (os.cpu_count() or 1) + waits


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Pass the seed and the services to a worker."""
    node.workerinput["seed"] = node.config.option.seed
    if services := node.config.stash.get(_SERVICES, None):
        node.workerinput["services"] = str(services.folder)


def pytest_unconfigure(config):
    """Stop the services."""
    if services := config.stash.get(_SERVICES, None):
        services.stop()


def pytest_report_header(config):
    """Return the line about the depth of the run."""
    depth = "all cuts and examples" if config.option.thorough else "some cuts and examples"
    return f"tiers: {config.option.tiers or 'all'}; {depth}; seed {config.option.seed}"


def pytest_ignore_collect(collection_path, config):
    """Ignore a module whose tests are all above the tiers of this run."""
    wanted = config.stash[_TIERS]
    if not wanted or "system" in wanted or not collection_path.match("test_*.py"):
        return None
    if SMOKE in wanted and b"mark.smoke" in collection_path.read_bytes():
        return None
    most = max((Tier[one] for one in wanted - {SMOKE}), default=Tier.unit)
    return all(tier_of(collection_path, name) > most for name in named_tests(collection_path)) or None


def pytest_itemcollected(item):
    """Mark a test with its tier, unless a mark puts it in a higher one."""
    name = item.nodeid.split("::")[1].partition("[")[0]  # of a function, or of its class
    tier = tier_of(item.path, name)
    if not any(item.get_closest_marker(higher.name) for higher in Tier if higher > tier):
        item.add_marker(tier.name)


def pytest_collection_modifyitems(config, items):
    """Select the tests of the tiers, and sort them."""
    wanted = config.stash[_TIERS]
    if wanted:
        selected = [item for item in items if any(item.get_closest_marker(one) for one in wanted)]
        chosen = {*map(id, selected)}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
        items[:] = selected
    if (seed := config.option.shuffle) is None:
        items[:] = [items[at] for at in config.stash[_DURATIONS].longest_first([item.nodeid for item in items])]
    else:
        # The tests of a file stay together, so that its fixtures are made once.
        keys = {
            nodeid: Random(f"{seed} {nodeid}").random() for item in items for nodeid in (item.nodeid, item.location[0])
        }
        items.sort(key=lambda item: (keys[item.location[0]], keys[item.nodeid]))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep the garbage collector away from the tests themselves, thousands of objects that stay."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish():
    """Save the coverage of a worker: the controller kills a worker that takes long to exit."""
    if measured := Coverage.current():
        measured.save()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Tell coverage which test runs."""
    if item.config.option.contexts:
        Coverage.current().switch_context(item.nodeid)
    return (yield)


def pytest_runtest_setup(item):
    """Extend short deadlines of the program; let new databases be made quickly, unless the run is thorough."""
    if item.get_closest_marker("unit"):
        return
    deadlines.extend()
    if not sampling.thorough():
        from support import quick_schema  # imports SQLAlchemy, for half a second

        quick_schema.install()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Guard a unit test; stop the event loop of another one, if an option wants that.  Either leaves its process as it was."""
    if item.get_closest_marker("unit"):
        context = guard.pure(item.nodeid)
    elif pauses := item.config.stash.get(_PAUSES, None):
        context = pauses.during(item.nodeid)
    else:
        context = nullcontext()
    with context, process_state.keep():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """Check at the end of a module that no store is open."""
    result = yield
    if nextitem is None or nextitem.path != item.path:  # the module's fixtures have ended
        guard.assert_no_open_store(item.location[0])
    return result


class _Worker:
    """Report a test to the controller once, where all six messages of a test would take more time than most tests.

    The controller gets each setup and teardown that fails, that takes long, or that it has to measure.
    """

    def pytest_runtest_protocol(self, item, nextitem):
        options, hook = item.config.option, item.ihook
        least = 0 if options.write_durations or options.xmlpath else options.durations_min or 0
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed or report.duration >= least:
                hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)  # moves the percentage on
        return True


class _Recorder:
    """Write the durations and outcomes of a run, if the options ask for them."""

    def __init__(self, config):
        self._config = config
        self._outcomes = {}

    def pytest_runtest_logreport(self, report):
        self._config.stash[_DURATIONS].add(report.nodeid, report.duration)
        if report.when == "call" or report.outcome != "passed":
            self._outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self):
        if self._config.option.write_durations:
            # A thorough run takes longer for the tests that every run has.
            self._config.stash[_DURATIONS].write(replace=not self._config.option.thorough)
        if file := self._config.option.outcomes_file:
            file.write_text(json.dumps(self._outcomes, indent=0))
